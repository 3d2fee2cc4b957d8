"""A network in whole numbers, as TensorFlow Lite defines them, and what it answers, bit for bit.

Weights are int8 with a scale for each output, zero in the middle. Activations are int8 with one
scale and one zero point a layer. Sums and biases are int32; a sum goes to the next layer's scale by
a multiplier of 31 bits and a shift. Outputs stay int32, with one scale for all of them, so that the
largest is found without rounding first, and those of an ensemble are added up as they are.

How rows become whole numbers is said in ``entry.py``; no function of math.h is called on the way to
a label.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.errors import ExportError, ExportWarning
from protopinv.export.description import Description, Rows
from protopinv.export.entry import HIGH, LOW, Entry, Front
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    Convolve,
    Pick,
    Rise,
    Shift,
    Step,
    Sum,
    no_case,
)
from protopinv.network import ACTIVATIONS
from protopinv.objective import Numbers

# Outputs are scaled such that those of the calibration rows have about so many bits.
OUTPUT_BITS = 24
# Fewer rows than these do not say what the ranges are.
FEW = 16
# With more inputs a sum of products may leave 31 bits.
MOST_INPUTS = 2**15
LONGEST_SHIFT = 61
# Beyond these an activation is nothing but a constant or a straight line: no need to tell apart.
USEFUL = {
    "silu": (-8.0, math.inf),
    "gelu": (-4.0, math.inf),
    "tanh": (-4.0, 4.0),
    "sigmoid": (-8.0, 8.0),
}


@dataclass(frozen=True, eq=False)
class Layer:
    """int8 to int8, or to int32 for the last: sums, then multiplier and shift, then a table."""

    weights: NDArray[np.int8]  # blocks, inputs, outputs
    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    zero: int = 0
    lowest: int = LOW
    table: NDArray[np.int8] | None = None
    is_last: bool = False

    @classmethod
    def of(cls, affine: Affine, seen: tuple[float, int], out: Any, **others: Any) -> "Layer":
        """The layer for inputs of this scale and zero point, whose sums come out in scale ``out``.

        Weights of a unit have a scale of their own.
        """
        scale, zero = seen
        blocks, n_in, n_out = affine.weight.shape
        if n_in > MOST_INPUTS:
            raise ExportError(
                f"Sums of int8 must fit into 32 bits. A layer has {n_in:,} inputs, more than "
                f"{MOST_INPUTS:,}. Use dtype='float32'."
            )
        exact, bias = affine.weight.numpy(), affine.bias.numpy().reshape(blocks, 1, n_out)
        units = np.abs(exact).max(axis=1, keepdims=True) / HIGH
        # a bias that is large beside all weights must still fit into 30 bits
        units = np.maximum(units, np.abs(bias) / scale / 2**30)
        units = np.where(units > 0, units, 1.0)
        weights = np.clip(np.round(exact / units), -HIGH, HIGH)
        sums = weights.sum(axis=1, keepdims=True)
        biases = (np.round(bias / (scale * units)) - zero * sums).reshape(-1)
        factors = _multipliers((scale * units).reshape(-1) / out)
        return cls(weights.astype(np.int8), biases.astype(np.int32), *factors, **others)

    def __call__(self, X: NDArray[np.int64]) -> NDArray[np.int64]:
        """One layer for all rows; sums * multiplier / 2^shift is rounded half up."""
        blocks, n_in, n_out = self.weights.shape
        parts = X.reshape(len(X), blocks, n_in).swapaxes(0, 1) @ self.weights.astype(np.int64)
        sums = parts.swapaxes(0, 1).reshape(len(X), blocks * n_out) + self.bias
        shift = self.shift.astype(np.int64)
        scaled = (sums * self.multiplier.astype(np.int64) + (np.int64(1) << (shift - 1))) >> shift
        if self.is_last:
            return np.asarray(scaled)
        codes = np.clip(scaled + self.zero, self.lowest, HIGH)
        return np.asarray(codes if self.table is None else self.table.astype(np.int64)[codes - LOW])


@dataclass(frozen=True, eq=False)
class Branch:
    """One network in whole numbers, from the row to its share of the outputs."""

    entry: Entry
    layers: tuple[Layer, ...]

    def __call__(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Its outputs, which may be too large for int32."""
        return reduce(lambda rows, layer: layer(rows), self.layers, self.entry(X))


@dataclass(frozen=True, eq=False)
class Quantised:
    """The networks of a model in whole numbers; ``output_scale`` makes numbers of their sum.

    Classes and labels have one scale for all, so that they can be compared; numbers one each.
    """

    branches: tuple[Branch, ...]
    output_scale: NDArray[np.float32]

    def whole(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Outputs as whole numbers: branches are added one after another, and stay within int32."""
        first, *others = (branch(X) for branch in self.branches)
        return reduce(lambda total, each: _within(total + each), others, _within(first))

    def outputs(self, X: NDArray[Any]) -> Rows:
        """Outputs as numbers, by the float32 arithmetic of the C code."""
        return (self.whole(X).astype(np.float32) * self.output_scale).astype(np.float64)


def _within(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.clip(numbers, -(2**31) + 1, 2**31 - 1)


# A layer and the name of the activation behind it.
Pair = tuple[Affine, str]


def quantise(description: Description, rows: Rows) -> Quantised:
    """The network in whole numbers, with the ranges of its activations on these rows."""
    steps, branches = _parts(description)
    rows = np.asarray(rows, dtype=np.float64)
    if 0 < len(rows) < FEW:
        warnings.warn(
            ExportWarning(
                f"Ranges of int8 should come from many rows. There were {len(rows)}. Give some of "
                "the training rows: calibration=rows."
            ),
            stacklevel=2,
        )
    if len(rows) == 0:
        raise ExportError(
            "Whole numbers are calibrated on rows. None were passed. Give some: calibration=rows."
        )
    front = Front(steps, rows, description.deviations)
    begun = [_Begun.of(front, branch, rows) for branch in branches]
    # one scale for all: outputs of a branch may be larger than the sum
    outputs = [each.last(each.rows) for each in begun]
    sizes = torch.stack([sum(outputs[1:], outputs[0]), *outputs]).abs().amax((0, 1))
    largest = sizes if isinstance(description.model.objective, Numbers) else sizes.max().reshape(1)
    scale = torch.where(largest > 0, largest / 2**OUTPUT_BITS, 1.0).float().numpy()
    return Quantised(tuple(each.branch(scale.astype(np.float64)) for each in begun), scale)


@dataclass(frozen=True, eq=False)
class _Begun:
    """A branch but for its last layer, and the calibration rows behind it, in scale ``seen``."""

    entry: Entry
    layers: tuple[Layer, ...]
    last: Affine
    rows: Tensor
    seen: tuple[float, int]

    @classmethod
    def of(cls, front: Front, steps: Sequence[Step], rows: Rows) -> "_Begun":
        """The branch with the ranges that its activations have for these rows."""
        rise, ((first, name), *others) = _pairs(steps)
        entry, first = front.entry(rise, first)
        Z = torch.from_numpy(entry(rows).astype(np.float64))
        *pairs, (last, _) = _even([(first, name), *others], Z)
        layers: list[Layer] = []
        seen = 1.0, 0
        for affine, name in pairs:
            Z = affine(Z)
            layer, seen = _layer(affine, name, Z, seen)
            layers.append(layer)
            Z = ACTIVATIONS[name](Z)
        return cls(entry, tuple(layers), last, Z, seen)

    def branch(self, scale: Rows) -> Branch:
        """All of it, with outputs in this scale."""
        layers = (*self.layers, Layer.of(self.last, self.seen, scale, is_last=True))
        # without inputs whose weights are all zero now that they are whole
        used = layers[0].weights[0].any(axis=1)
        if not used.any():
            return Branch(self.entry, layers)
        first = replace(layers[0], weights=layers[0].weights[:, used])
        return Branch(self.entry.some(used), (first, *layers[1:]))


def _parts(description: Description) -> tuple[Sequence[Step], Sequence[Sequence[Step]]]:
    """The steps before all branches, and those of each branch."""
    steps = description.steps
    if description.encode is not None:
        raise ExportError(
            "C in int8 takes rows of numbers. This model takes a frame, of which it makes "
            f"{description.sizes[1]} numbers. Use dtype='float32'."
        )
    if any(isinstance(step, Convolve) for step in steps):
        raise ExportError(
            "int8 holds layers, shifted and bent columns. This model has a convolutional "
            "stem, whose contrast needs square roots. Use dtype='float32'."
        )
    before = list(takewhile(lambda step: isinstance(step, Pick | Shift | Bend), steps))
    first, *_ = others = steps[len(before) :]
    return before, first.branches if isinstance(first, Sum) else (others,)


def _pairs(steps: Sequence[Step]) -> tuple[Rise | None, list[Pair]]:
    """The steps of columns in a branch, and its layers with their activation."""
    rise, pairs = None, list[Pair]()
    for step in steps:
        match step:
            case Rise() if not pairs:
                rise = step
            case Rise():
                raise ExportError(
                    "int8 holds steps of columns. This model projects its rows, or cuts them to "
                    "what it has learned, and sees steps of that. Use dtype='float32', or train "
                    "with number_encoding='raw'."
                )
            case Affine():
                pairs.append((step, "identity"))
            case Activate():
                pairs[-1] = (pairs[-1][0], step.name)
            case _:
                raise no_case("C in int8", step)
    return rise, pairs


def _even(pairs: list[Pair], rows: Tensor) -> list[Pair]:
    """The network with units of one range, where nothing bends between two layers.

    One scale serves all units of a layer. Units of a factor differ much in size; each is divided by
    its own, and the next layer multiplied.
    """
    pairs = list(pairs)
    for number, (following, next_name) in enumerate(pairs[1:]):
        affine, name = pairs[number]
        rows = affine(rows)
        if name == "identity":
            largest = rows.abs().amax(0)
            largest = torch.where(largest > 0, largest, 1.0)
            blocks, _, n_out = affine.weight.shape
            smaller = affine.weight / largest.reshape(blocks, 1, n_out)
            pairs[number] = (Affine(smaller, affine.bias / largest), name)
            larger = following.weight * largest.reshape(len(following.weight), -1, 1)
            pairs[number + 1] = (replace(following, weight=larger), next_name)
            rows = rows / largest
        rows = ACTIVATIONS[name](rows)
    return pairs


def _layer(
    affine: Affine, name: str, before: Tensor, seen: tuple[float, int]
) -> tuple[Layer, tuple[float, int]]:
    """One layer in whole numbers, and scale and zero point of what it gives."""
    activation = ACTIVATIONS[name]
    if name in ("relu", "identity"):
        out, zero = _range(activation(before))
        lowest = zero if name == "relu" else LOW
        return Layer.of(affine, seen, out, zero=zero, lowest=lowest), (out, zero)
    inner, centre = _range(before.clamp(*USEFUL.get(name, (-math.inf, math.inf))))
    values = activation((torch.arange(LOW, HIGH + 1, dtype=torch.float64) - centre) * inner)
    out, zero = _range(values)
    table = (values / out).round().add(zero).clamp(LOW, HIGH).to(torch.int8).numpy()
    return Layer.of(affine, seen, inner, zero=centre, table=table), (out, zero)


def _range(values: Tensor) -> tuple[float, int]:
    """Scale and zero point such that int8 reaches over all values, and has a zero."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if not high - low < math.inf:
        raise ExportError(
            "Ranges of int8 must be finite. Numbers inside this model overflow. Give calibration "
            "rows that are like those of training, or use dtype='float32'."
        )
    scale = (high - low) / (HIGH - LOW) or 1.0
    return scale, int(np.clip(np.round(LOW - low / scale), LOW, HIGH))


def _multipliers(factors: Rows) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Every factor as a whole number of 31 bits and a shift to the right."""
    fraction, exponent = np.frexp(factors)
    multiplier = np.round(fraction * 2.0**31)
    carried = multiplier == 2.0**31
    multiplier = np.where(carried, 2.0**30, multiplier)
    shift = 31 - (exponent + carried)
    tiny = shift > LONGEST_SHIFT
    if bool((shift < 1).any()):
        raise ExportError(
            "Whole numbers need layers of a like size. One of this model is 2^30 times larger than "
            "the one before it. Use dtype='float32'."
        )
    return (
        np.where(tiny, 0, multiplier).astype(np.int32),
        np.where(tiny, 1, shift).astype(np.int32),
    )
