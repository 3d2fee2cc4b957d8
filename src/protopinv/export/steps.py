"""The steps that a network takes a row through: one executable description for every format.

A step is called with rows and works in the precision of its tensors. In float64 exports are
compared with that, in float32 it shows what rounding costs, and as a torch module it learns.

A new step is a class here, a case in ``c.py`` and in ``onnx.py``, and a function in
``assets/functions.c`` and in ``assets/model.mjs``; a new part of a table needs all but the class.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain, pairwise
from math import prod
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.errors import ExportError
from protopinv.features import Clip, Squash, Stage, TailTransform
from protopinv.network import ACTIVATIONS
from protopinv.tables import Column, Date, Table
from protopinv.tables.parts import Part

CURVES: dict[str, type[TailTransform]] = {"squash": Squash, "clip": Clip}


@dataclass(frozen=True, eq=False)
class Step(ABC):
    """From rows to rows, by tensors that a format writes down."""

    @abstractmethod
    def __call__(self, X: Tensor) -> Tensor:
        """What the step makes of rows."""

    def to(self, dtype: torch.dtype) -> Self:
        """The step in another precision."""
        numbers = {
            name: value.to(dtype)
            for name, value in vars(self).items()
            if isinstance(value, Tensor) and value.is_floating_point()
        }
        return replace(self, **numbers)


@dataclass(frozen=True, eq=False)
class Encode(Step):
    """From the codes of all columns of a frame to the features that the network sees.

    A row has one number for each column, its code (``tables/columns.py``), but dates count from an
    origin near them, so that float32 has digits enough.
    """

    table: Table

    @cached_property
    def parts(self) -> tuple[tuple[int, Part], ...]:
        """The parts in the order of the features, each with the number of its column."""
        return tuple(
            (number, part)
            for number, (column, origin) in enumerate(self.columns)
            for part in column.made_of(origin)
        )

    @property
    def columns(self) -> list[tuple[Column, float]]:
        """The columns, each with the day that dates are counted from, or 0 for what is no date."""
        return list(zip(self.table.columns, self.origins.tolist(), strict=True))

    @cached_property
    def origins(self) -> NDArray[np.float64]:
        """The origin of every column."""
        columns = self.table.columns
        return np.array([np.floor(c.middle) if isinstance(c, Date) else 0.0 for c in columns])

    def __call__(self, X: Tensor) -> Tensor:
        """The features of every part, side by side."""
        codes = X.double().numpy()
        features = [part(codes[:, column]) for column, part in self.parts]
        return torch.from_numpy(np.concatenate(features, axis=1)).to(X.dtype)


@dataclass(frozen=True, eq=False)
class Pick(Step):
    """Some of the features: a pixel that was always dark in training has no weights."""

    columns: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Every row without the others."""
        return X[:, self.columns]


@dataclass(frozen=True, eq=False)
class Shift(Step):
    """x - centre, so that what follows need not cancel large numbers."""

    centre: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Every row less the centre."""
        return X - self.centre


@dataclass(frozen=True, eq=False)
class Bend(Step):
    """curve((x - centre) / width) in the chosen columns; the others are left alone.

    ``kind`` is "squash" for asinh, and "clip" for z / sqrt(1 + (z / 3)^2) of a z that is first cut
    off at a million.
    """

    kind: str
    chosen: Tensor
    centre: Tensor
    width: Tensor

    @property
    def front(self) -> TailTransform:
        """The transform with its curve and the inverse of that."""
        return CURVES[self.kind](self.chosen, self.centre, self.width)

    def __call__(self, X: Tensor) -> Tensor:
        """Rows with some columns bent."""
        return self.front(X)


@dataclass(frozen=True, eq=False)
class Rise(Step):
    """Some features as they are, and clip((x - low) / (high - low), 0, 1) for each step of one."""

    raw: Tensor
    column: Tensor
    low: Tensor
    high: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        """Every row with its steps."""
        rises = (X[:, self.column] - self.low) / (self.high - self.low)
        return torch.cat([X[:, self.raw], rises.clamp(0, 1)], dim=1)


@dataclass(frozen=True, eq=False)
class Affine(Step):
    """x W + b. With several blocks each has inputs and outputs of its own, side by side."""

    weight: Tensor  # blocks, inputs, outputs
    bias: Tensor  # one for each output of all blocks

    @property
    def has_bias(self) -> bool:
        """Whether anything is added; the first of two factors adds nothing."""
        return bool(self.bias.any())

    def __call__(self, X: Tensor) -> Tensor:
        """Every row through all blocks."""
        parts: Tensor = X.unflatten(1, self.weight.shape[:2]).movedim(1, 0) @ self.weight
        return parts.movedim(0, 1).flatten(1) + self.bias


@dataclass(frozen=True, eq=False)
class Activate(Step):
    """A function of every number."""

    name: str

    def __call__(self, X: Tensor) -> Tensor:
        """Every number by itself."""
        return ACTIVATIONS[self.name](X)


@dataclass(frozen=True, eq=False)
class Convolve(Step):
    """One stage of a stem: filters, divided by the contrast of the patch, two-sided, pooled.

    Maps are laid out channels first, but for the pixels that a user gives: ``channels_last``. They
    are averaged over a grid of ``pool`` x ``pool`` fields, or over 2 x 2 pixels where that is 0.
    """

    filters: Tensor  # filters, channels, size, size
    floor: Tensor
    height: int
    width: int
    channels_last: bool
    pool: int

    @property
    def inner(self) -> tuple[int, int]:
        """Height and width of what the filters answer, before pooling."""
        size = self.filters.shape[-1]
        return self.height - size + 1, self.width - size + 1

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width of the maps that come out."""
        down, across = self.inner
        return (self.pool, self.pool) if self.pool else (down // 2, across // 2)

    def __call__(self, X: Tensor) -> Tensor:
        """Rows of maps, flat, to rows of pooled maps, flat."""
        channels = self.filters.shape[1]
        if self.channels_last:
            maps = X.unflatten(1, (self.height, self.width, channels)).permute(0, 3, 1, 2)
        else:
            maps = X.unflatten(1, (channels, self.height, self.width))
        return Stage(self.filters, self.floor)(maps, self.pool).flatten(1)


def no_case(language: str, step: Step) -> ExportError:
    """The error for a step that a format has no case for."""
    return ExportError(
        f"{language} can hold the steps it knows. {type(step).__name__} is none of them. Export to "
        "another format."
    )


@dataclass(frozen=True, eq=False)
class Sum(Step):
    """An ensemble: every row through several branches of steps, whose outputs are added up."""

    branches: tuple[tuple[Step, ...], ...]

    def to(self, dtype: torch.dtype) -> Self:
        """All branches in another precision."""
        return replace(
            self, branches=tuple(tuple(step.to(dtype) for step in each) for each in self.branches)
        )

    def __call__(self, X: Tensor) -> Tensor:
        """The sum of what the branches make of rows."""
        return torch.stack([in_turn(branch, X) for branch in self.branches]).sum(0)


def in_turn(steps: Sequence[Step], X: Tensor) -> Tensor:
    """Rows through all steps, one after another."""
    return reduce(lambda Z, step: step(Z), steps, X)


def sizes_of(steps: Sequence[Step], n_inputs: int) -> tuple[int, ...]:
    """How many numbers a row has: before the first step, and after each."""
    rows, sizes = torch.zeros(1, n_inputs, dtype=torch.float64), [n_inputs]
    for step in steps:
        rows = step(rows)
        sizes.append(rows.shape[1])
    return tuple(sizes)


def all_of(steps: Iterable[Step]) -> Iterator[Step]:
    """Every step, those of branches too."""
    for step in steps:
        yield from all_of(chain(*step.branches)) if isinstance(step, Sum) else (step,)


def operations(steps: Sequence[Step], n_inputs: int) -> int:
    """Additions and multiplications for a row."""
    sizes = pairwise(sizes_of(steps, n_inputs))
    return sum(_operations(step, *size) for step, size in zip(steps, sizes, strict=True))


def _operations(step: Step, n_inputs: int, n_outputs: int) -> int:
    """About one a number, unless a step takes more."""
    match step:
        case Pick():
            return 0
        case Encode():
            return 2 * n_outputs
        case Rise():
            return 5 * len(step.column)
        case Sum():
            inside = (operations(branch, n_inputs) for branch in step.branches)
            return sum(inside) + n_outputs * len(step.branches)
        case Bend():
            return 5 * int(step.chosen.sum())
        case Affine():
            return 2 * step.weight.numel()
        case Convolve():
            return 2 * step.filters.numel() * prod(step.inner)
    return n_inputs
