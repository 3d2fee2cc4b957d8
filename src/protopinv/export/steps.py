"""What a network does to a row, step by step: all that an export must know how to write.

Every step takes a row of ``n_inputs`` numbers to one of ``n_outputs``, and can do so itself in
float64, for whole arrays of rows: that is what the exports are compared with.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.special import erf, expit

from protopinv.export.encode import Encode

Rows = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pick:
    """Some of the features: a pixel that was always dark in training has no weights."""

    columns: NDArray[np.int64]
    n_inputs: int

    @property
    def n_outputs(self) -> int:
        """Those that are used."""
        return len(self.columns)

    @property
    def operations(self) -> int:
        """None."""
        return 0

    def __call__(self, X: Rows) -> Rows:
        """Every row without the others."""
        return X[:, self.columns]


@dataclass(frozen=True, eq=False)
class Shift:
    """x - centre, so that what follows need not cancel large numbers."""

    centre: Rows

    @property
    def n_inputs(self) -> int:
        """As many as come out."""
        return len(self.centre)

    @property
    def n_outputs(self) -> int:
        """As many as go in."""
        return len(self.centre)

    @property
    def operations(self) -> int:
        """A subtraction each."""
        return len(self.centre)

    def __call__(self, X: Rows) -> Rows:
        """Every row less the centre."""
        return X - self.centre


@dataclass(frozen=True, eq=False)
class Bend:
    """curve((x - centre) / width) in some columns; the others are left alone.

    ``kind`` is "squash" for asinh, and "clip" for z / sqrt(1 + (z / 3)^2) of a z that is first cut
    off at a million.
    """

    kind: str
    columns: NDArray[np.int64]
    centre: Rows
    width: Rows
    n_inputs: int

    @property
    def n_outputs(self) -> int:
        """As many as go in."""
        return self.n_inputs

    @property
    def operations(self) -> int:
        """About five for each column."""
        return 5 * len(self.columns)

    def curve(self, Z: Rows) -> Rows:
        """Rising, and the identity near zero."""
        if self.kind == "squash":
            return np.asarray(np.arcsinh(Z))
        Z = np.clip(Z, -1e6, 1e6)
        return np.asarray(Z / np.sqrt(1 + (Z / 3.0) ** 2))

    def __call__(self, X: Rows) -> Rows:
        """Rows with some columns bent."""
        bent = X.astype(np.float64)
        bent[:, self.columns] = self.curve((bent[:, self.columns] - self.centre) / self.width)
        return bent


@dataclass(frozen=True, eq=False)
class Affine:
    """x W + b. With several blocks each has inputs and outputs of its own, side by side."""

    weights: Rows  # blocks, inputs, outputs
    bias: Rows  # one for each output of all blocks

    @property
    def n_inputs(self) -> int:
        """Of all blocks together."""
        return int(self.weights.shape[0] * self.weights.shape[1])

    @property
    def n_outputs(self) -> int:
        """Of all blocks together."""
        return int(self.weights.shape[0] * self.weights.shape[2])

    @property
    def has_bias(self) -> bool:
        """Whether anything is added; the first of two factors adds nothing."""
        return bool(self.bias.any())

    @property
    def operations(self) -> int:
        """A product and a sum for every weight."""
        return 2 * int(self.weights.size)

    @property
    def dense(self) -> Rows:
        """One matrix, with the zeros that blocks leave out."""
        blocks, n_in, n_out = self.weights.shape
        whole = np.zeros((blocks * n_in, blocks * n_out))
        for number, block in enumerate(self.weights):
            place = slice(number * n_in, (number + 1) * n_in)
            whole[place, number * n_out : (number + 1) * n_out] = block
        return whole

    def __call__(self, X: Rows) -> Rows:
        """Every row through all blocks."""
        blocks, n_in, n_out = self.weights.shape
        parts = X.reshape(len(X), blocks, n_in).swapaxes(0, 1) @ self.weights
        return parts.swapaxes(0, 1).reshape(len(X), blocks * n_out) + self.bias


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "relu": lambda Z: np.maximum(Z, 0),
    "silu": lambda Z: Z * expit(Z),
    "gelu": lambda Z: 0.5 * Z * (1 + erf(Z / np.sqrt(2))),
    "tanh": np.tanh,
    "sigmoid": expit,
    "cos": np.cos,
    "identity": lambda Z: Z,
}


@dataclass(frozen=True, eq=False)
class Activate:
    """A function of every number."""

    name: str
    n_inputs: int

    @property
    def n_outputs(self) -> int:
        """As many as go in."""
        return self.n_inputs

    @property
    def operations(self) -> int:
        """One each."""
        return self.n_inputs

    def __call__(self, X: Rows) -> Rows:
        """Every number by itself."""
        return np.asarray(ACTIVATIONS[self.name](X))


Windows = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Convolve:
    """One stage of a stem: filters, divided by the contrast of the patch, two-sided, pooled.

    Maps are laid out channels first, but for the pixels that a user gives: ``channels_last``.
    ``rows`` and ``columns`` say which of them, from where to before where, a pooled field averages.
    """

    filters: Rows  # filters, channels, size, size
    floor: float
    height: int
    width: int
    rows: Windows
    columns: Windows
    channels_last: bool

    @property
    def channels(self) -> int:
        """Maps that go in."""
        return int(self.filters.shape[1])

    @property
    def size(self) -> int:
        """Pixels on a side of a filter."""
        return int(self.filters.shape[2])

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width of what the filters answer, before pooling."""
        return self.height - self.size + 1, self.width - self.size + 1

    @property
    def n_inputs(self) -> int:
        """Numbers of all maps."""
        return self.channels * self.height * self.width

    @property
    def n_outputs(self) -> int:
        """Twice as many maps as filters."""
        return 2 * len(self.filters) * len(self.rows) * len(self.columns)

    @property
    def operations(self) -> int:
        """A product and a sum for every weight at every place."""
        return 2 * int(self.filters.size) * prod(self.inner)

    def __call__(self, X: Rows) -> Rows:
        """Rows of maps, flat."""
        if self.channels_last:
            X = X.reshape(-1, self.height, self.width, self.channels).transpose(0, 3, 1, 2)
        X = X.reshape(-1, self.channels, self.height, self.width)
        patches = sliding_window_view(X, (self.size, self.size), axis=(2, 3))
        mean = patches.mean(axis=(1, 4, 5))
        variance = np.maximum((patches**2).mean(axis=(1, 4, 5)) - mean**2, 0)
        answers = np.einsum("nchwij,mcij->nmhw", patches, self.filters, optimize=True)
        answers = answers / np.sqrt(variance + self.floor)[:, None]
        whole, positive = self._pooled(answers), self._pooled(np.maximum(answers, 0))
        return np.concatenate([positive, positive - whole], axis=1).reshape(len(X), -1)

    def _pooled(self, Z: Rows) -> Rows:
        """Averages over fields."""
        down, across = (
            pooling(windows, side)
            for windows, side in zip((self.rows, self.columns), self.inner, strict=True)
        )
        return np.asarray(down @ Z @ across.T)


def pooling(windows: Windows, side: int) -> Rows:
    """A matrix with a row for each window that averages what is in it."""
    matrix = np.zeros((len(windows), side))
    for number, (start, stop) in enumerate(windows):
        matrix[number, start:stop] = 1 / (stop - start)
    return matrix


Step = Encode | Pick | Shift | Bend | Affine | Activate | Convolve


@dataclass(frozen=True, eq=False)
class ClassAnswer:
    """The most likely of some classes, and the probability of each."""

    labels: NDArray[Any]

    @property
    def n_outputs(self) -> int:
        """One for each class."""
        return len(self.labels)

    def probabilities(self, outputs: Rows) -> Rows:
        """Softmax."""
        shifted = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class LabelAnswer:
    """Several labels a row, each there or not."""

    n_outputs: int

    def probabilities(self, outputs: Rows) -> Rows:
        """Each by itself."""
        return np.asarray(expit(outputs))


@dataclass(frozen=True, eq=False)
class NumberAnswer:
    """Numbers, kept within bounds if there are any."""

    n_outputs: int
    low: Rows | None
    high: Rows | None

    def numbers(self, outputs: Rows) -> Rows:
        """Within bounds."""
        if self.low is None or self.high is None:
            return outputs
        return np.clip(outputs, self.low, self.high)


Answer = ClassAnswer | LabelAnswer | NumberAnswer
