"""A network in whole numbers, as TensorFlow Lite defines them, and what it answers, bit for bit.

Weights are int8 with a scale for each output, zero in the middle. Activations are int8 with one
scale and one zero point a layer. Sums and biases are int32; a sum goes to the next layer's scale by
a multiplier of 31 bits and a shift. Outputs stay int32, with one scale for all of them, so that the
largest is found without rounding first.

A row becomes whole numbers feature by feature, (x - middle) * factor, and bent columns by a table
of where each number begins: no function of math.h is called on the way to a label.
"""

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ExportError, ExportWarning
from protopinv.export.description import Description
from protopinv.export.steps import (
    ACTIVATIONS,
    Activate,
    Affine,
    Bend,
    NumberAnswer,
    Pick,
    Rows,
    Shift,
)

LOW, HIGH = -128, 127
# Outputs are scaled such that those of the calibration rows have about so many bits.
OUTPUT_BITS = 24
# A feature that does not vary in the calibration rows is given so many standard deviations.
DEVIATIONS = 3.0
# Fewer rows than these do not say what the ranges are.
FEW = 16
# With more inputs a sum of products may leave 31 bits.
MOST_INPUTS = 2**15
LONGEST_SHIFT = 61
# Beyond these an activation is nothing but a constant or a straight line: no need to tell apart.
USEFUL = {
    "silu": (-8.0, np.inf),
    "gelu": (-4.0, np.inf),
    "tanh": (-4.0, 4.0),
    "sigmoid": (-8.0, 8.0),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """How features become int8: (x - middle) * factor, or by a table for bent columns.

    ``columns`` are those that are used; the rest speaks of these. ``starts`` are the
    z = (x - centre) / width from which on a bent column is -126, ..., 127.
    """

    columns: NDArray[np.int64]
    middle: NDArray[np.float32]
    factor: NDArray[np.float32]
    bent: NDArray[np.int64]
    centre: NDArray[np.float32]
    width: NDArray[np.float32]
    starts: NDArray[np.float32]

    def __call__(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Rows as whole numbers, by the float32 arithmetic of the C code."""
        X = np.asarray(X, dtype=np.float32)[:, self.columns]
        with np.errstate(over="ignore", invalid="ignore"):
            z = (X - self.middle) * self.factor
        z = np.where(z > np.float32(-127), z, np.float32(-127))
        z = np.where(z < np.float32(127), z, np.float32(127))
        found = (z + np.float32(128.5)).astype(np.int64) - 128
        if len(self.bent):
            with np.errstate(over="ignore", invalid="ignore"):
                place = (X[:, self.bent] - self.centre) / self.width
            behind = np.searchsorted(self.starts, place, side="right")
            found[:, self.bent] = np.where(np.isnan(place), 0, behind) - 127
        return found


@dataclass(frozen=True, eq=False)
class Layer:
    """int8 to int8, or to int32 for the last: sums, then multiplier and shift, then a table."""

    weights: NDArray[np.int8]  # blocks, inputs, outputs
    bias: NDArray[np.int32]
    multiplier: NDArray[np.int32]
    shift: NDArray[np.int32]
    zero: int
    lowest: int
    table: NDArray[np.int8] | None
    is_last: bool

    def __call__(self, X: NDArray[np.int64]) -> NDArray[np.int64]:
        """One layer for all rows."""
        blocks, n_in, n_out = self.weights.shape
        parts = X.reshape(len(X), blocks, n_in).swapaxes(0, 1) @ self.weights.astype(np.int64)
        sums = parts.swapaxes(0, 1).reshape(len(X), blocks * n_out) + self.bias
        scaled = multiply(sums, self.multiplier, self.shift)
        if self.is_last:
            return np.clip(scaled, -(2**31) + 1, 2**31 - 1)
        found = np.clip(scaled + self.zero, self.lowest, HIGH)
        return found if self.table is None else self.table.astype(np.int64)[found - LOW]


@dataclass(frozen=True, eq=False)
class Quantised:
    """The whole network; ``output_scale`` makes numbers of its outputs again.

    Classes and labels have one scale for all, so that they can be compared; numbers one each.
    """

    entry: Entry
    layers: tuple[Layer, ...]
    output_scale: NDArray[np.float32]

    def whole(self, X: NDArray[Any]) -> NDArray[np.int64]:
        """Outputs as whole numbers."""
        rows = self.entry(X)
        for layer in self.layers:
            rows = layer(rows)
        return rows

    def outputs(self, X: NDArray[Any]) -> Rows:
        """Outputs as numbers, by the float32 arithmetic of the C code."""
        return (self.whole(X).astype(np.float32) * self.output_scale).astype(np.float64)


def multiply(
    sums: NDArray[np.int64], multiplier: NDArray[np.int32], shift: NDArray[np.int32]
) -> NDArray[np.int64]:
    """sums * multiplier / 2^shift, rounded half up."""
    half = np.int64(1) << (shift.astype(np.int64) - 1)
    found: NDArray[np.int64] = (sums * multiplier.astype(np.int64) + half) >> shift
    return found


def quantise(description: Description, rows: Rows) -> Quantised:
    """The network in whole numbers, with the ranges of its activations on these rows."""
    columns, front, pairs = _parts(description)
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
    seen = np.asarray(rows, dtype=np.float64)
    entry, (first, name) = _entry(columns, front, *pairs[0], seen, description)
    pairs = _even([(first, name), *pairs[1:]], seen := _entered(entry, seen))
    layers: list[Layer] = []
    scale: Any = 1.0
    zero = 0
    apart = isinstance(description.answer, NumberAnswer)
    for number, (affine, name) in enumerate(pairs):
        before = affine(seen)
        seen = ACTIVATIONS[name](before)
        last = number == len(pairs) - 1
        if last:
            largest = np.abs(before).max(axis=0 if apart else None, keepdims=True).reshape(-1)
            layer, scale = _last_layer(affine, largest / 2**OUTPUT_BITS, scale, zero)
        else:
            layer, scale, zero = _layer(affine, name, before, scale, zero)
        layers.append(layer)
    entry, layers[0] = _without_zeros(entry, layers[0])
    return Quantised(entry, tuple(layers), np.asarray(scale, dtype=np.float32))


def _without_zeros(entry: Entry, layer: Layer) -> tuple[Entry, Layer]:
    """The same without features whose weights are all zero now that they are whole."""
    used = layer.weights[0].any(axis=1)
    if not used.any():
        return entry, layer
    places = np.cumsum(used) - 1
    bent = used[entry.bent]
    smaller = Entry(
        entry.columns[used],
        entry.middle[used],
        entry.factor[used],
        places[entry.bent[bent]],
        entry.centre[bent],
        entry.width[bent],
        entry.starts,
    )
    return smaller, replace(layer, weights=layer.weights[:, used])


def _parts(
    description: Description,
) -> tuple[NDArray[np.int64], list[Shift | Bend], list[tuple[Affine, str]]]:
    """Features that are used, what stands before the layers, and these with their activation."""
    columns = np.arange(description.n_inputs)
    front: list[Shift | Bend] = []
    pairs: list[tuple[Affine, str]] = []
    for step in description.steps:
        if isinstance(step, Pick):
            columns = step.columns
        elif isinstance(step, Shift | Bend):
            front.append(step)
        elif isinstance(step, Affine):
            pairs.append((step, "identity"))
        elif isinstance(step, Activate):
            pairs[-1] = (pairs[-1][0], step.name)
        else:
            raise ExportError(
                "int8 holds layers, shifted and bent columns. This model has a convolutional stem, "
                "whose contrast needs square roots. Use dtype='float32'."
            )
    return columns, front, pairs


def _entry(
    columns: NDArray[np.int64],
    front: list[Shift | Bend],
    first: Affine,
    name: str,
    rows: Rows,
    description: Description,
) -> tuple[Entry, tuple[Affine, str]]:
    """Rows to int8, and the first layer for what comes in then."""
    rows = rows[:, columns]
    (W,), bias = first.weights, first.bias
    low, high = rows.min(axis=0), rows.max(axis=0)
    middle, half = (low + high) / 2, (high - low) / 2
    half = np.where(half > 0, half, DEVIATIONS * description.deviations)
    factor = (HIGH / half).astype(np.float32)
    middle = middle.astype(np.float32)
    step, offset = 1 / factor.astype(np.float64), middle.astype(np.float64)
    bent = np.zeros(0, dtype=np.int64)
    centre, width, starts = (np.zeros(0, dtype=np.float32) for _ in range(3))
    for each in front:
        if isinstance(each, Shift):
            offset = offset - each.centre
            continue
        bent = each.columns
        centre, width = each.centre.astype(np.float32), each.width.astype(np.float32)
        largest = float(np.abs(each(rows)[:, bent]).max()) or 1.0
        size = largest / HIGH
        starts = _backwards(each.kind, (np.arange(-126, 128) - 0.5) * size).astype(np.float32)
        step[bent], offset[bent] = size, 0.0
    entry = Entry(columns, middle, factor, bent, centre, width, starts)
    changed = Affine((W * step[:, None])[None], bias + offset @ W)
    return entry, (changed, name)


def _backwards(kind: str, values: NDArray[Any]) -> Rows:
    """Where a curve has these values."""
    if kind == "squash":
        return np.asarray(np.sinh(values))
    return np.asarray(values / np.sqrt(1 - (values / 3.0) ** 2))


def _entered(entry: Entry, rows: Rows) -> Rows:
    return entry(rows).astype(np.float64)


def _even(pairs: list[tuple[Affine, str]], rows: Rows) -> list[tuple[Affine, str]]:
    """The same network with units of one range, where nothing bends between two layers.

    One scale serves all units of a layer. Units of a factor differ much in size; each is divided by
    its own, and the next layer multiplied.
    """
    found = list(pairs)
    for number in range(len(found) - 1):
        affine, name = found[number]
        rows_after = affine(rows)
        if name == "identity":
            largest = np.abs(rows_after).max(axis=0)
            largest = np.where(largest > 0, largest, 1.0)
            following, after = found[number + 1]
            blocks, _, n_out = affine.weights.shape
            shape = (blocks, 1, n_out)
            found[number] = (
                Affine(affine.weights / largest.reshape(shape), affine.bias / largest),
                name,
            )
            sides = largest.reshape(following.weights.shape[0], -1, 1)
            found[number + 1] = (Affine(following.weights * sides, following.bias), after)
            rows_after = rows_after / largest
        rows = ACTIVATIONS[name](rows_after)
    return found


def _last_layer(
    affine: Affine, wanted: Rows, scale: float, zero: int
) -> tuple[Layer, NDArray[np.float32]]:
    """The layer whose sums become outputs of these scales, one or one each."""
    weights, biases, given = _whole_weights(affine, scale, zero)
    out = np.where(wanted > 0, wanted, 1.0).astype(np.float32)
    multiplier, shift = _multipliers(given / out.astype(np.float64))
    return Layer(weights, biases, multiplier, shift, 0, LOW, None, is_last=True), out


def _layer(
    affine: Affine, name: str, before: Rows, scale: float, zero: int
) -> tuple[Layer, float, int]:
    """One layer in whole numbers, and scale and zero point of what it gives."""
    weights, biases, given = _whole_weights(affine, scale, zero)
    if name in ("relu", "identity"):
        after = ACTIVATIONS[name](before)
        out_scale, out_zero = _range(float(after.min()), float(after.max()))
        lowest = out_zero if name == "relu" else LOW
        scales = _multipliers(given / out_scale)
        layer = Layer(weights, biases, *scales, out_zero, lowest, None, is_last=False)
        return layer, out_scale, out_zero
    near, far = USEFUL.get(name, (-np.inf, np.inf))
    inner, centre = _range(max(float(before.min()), near), min(float(before.max()), far))
    values = ACTIVATIONS[name]((np.arange(LOW, HIGH + 1) - centre) * inner)
    out_scale, out_zero = _range(float(values.min()), float(values.max()))
    table = np.clip(np.round(values / out_scale) + out_zero, LOW, HIGH).astype(np.int8)
    scales = _multipliers(given / inner)
    layer = Layer(weights, biases, *scales, centre, LOW, table, is_last=False)
    return layer, out_scale, out_zero


def _whole_weights(
    affine: Affine, scale: float, zero: int
) -> tuple[NDArray[np.int8], NDArray[np.int32], Rows]:
    """Weights and biases as whole numbers, and what one of a sum stands for, for every unit."""
    blocks, n_in, n_out = affine.weights.shape
    if n_in > MOST_INPUTS:
        raise ExportError(
            f"Sums of int8 must fit into 32 bits. A layer has {n_in:,} inputs, more than "
            f"{MOST_INPUTS:,}. Use dtype='float32'."
        )
    bias = affine.bias.reshape(blocks, 1, n_out)
    steps = np.abs(affine.weights).max(axis=1, keepdims=True) / HIGH
    # a bias that is large beside all weights must still fit into 30 bits
    steps = np.maximum(steps, np.abs(bias) / scale / 2**30)
    steps = np.where(steps > 0, steps, 1.0)
    weights = np.clip(np.round(affine.weights / steps), -HIGH, HIGH)
    sums = weights.sum(axis=1, keepdims=True)
    biases = (np.round(bias / (scale * steps)) - zero * sums).reshape(-1)
    return weights.astype(np.int8), biases.astype(np.int32), (scale * steps).reshape(-1)


def _range(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point such that int8 reaches from low to high, and has a zero."""
    low, high = min(low, 0.0), max(high, 0.0)
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
