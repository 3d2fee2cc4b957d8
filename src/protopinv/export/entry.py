"""Rows to int8, input by input, and what the first layer must be for inputs in whole numbers.

A column becomes (x - middle) * factor, and so does a step of it, which begins and ends where the
numbers of int8 do. Where columns are bent, a table says where each whole number begins: there is no
function of math.h on the way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.export.description import Rows
from protopinv.export.steps import Affine, Bend, Pick, Rise, Shift, Step

LOW, HIGH = -128, 127
# A feature that does not vary in the calibration rows is given so many standard deviations.
DEVIATIONS = 3.0
# Where the whole numbers of a bent column begin, and those of a step on one: as many as divide 255.
COLUMN_STARTS, STEP_STARTS = 255, 15
# A table in C holds finite numbers.
MOST = float(np.finfo(np.float32).max)

Places = NDArray[np.int64]
Numbers32 = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Scaled:
    """(x - middle) * factor of one column for each input, from -127 to 127."""

    columns: Places
    middle: Numbers32
    factor: Numbers32

    def __call__(self, X: Numbers32) -> Places:
        """Rows as whole numbers, by the arithmetic of the C code."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = (X[:, self.columns] - self.middle) * self.factor
        z = np.where(z > np.float32(-127), z, np.float32(-127))
        z = np.where(z < np.float32(127), z, np.float32(127))
        return (z + np.float32(128.5)).astype(np.int64) - 128

    def some(self, used: NDArray[np.bool_]) -> "Scaled":
        """Without the other inputs."""
        return Scaled(self.columns[used], self.middle[used], self.factor[used])


@dataclass(frozen=True, eq=False)
class Looked:
    """How many ``starts`` z = (x - centre) / width has reached, spread over -128 to 127.

    All inputs share one row of starts, or each has its own.
    """

    columns: Places
    centre: Numbers32
    width: Numbers32
    starts: Numbers32

    def __call__(self, X: Numbers32) -> Places:
        """Rows as whole numbers, by the arithmetic of the C code; NaN has reached nothing."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = (X[:, self.columns] - self.centre) / self.width
        reached = np.empty(z.shape, dtype=np.int64)
        for number, column in enumerate(z.T):
            own = self.starts[number if len(self.starts) > 1 else 0]
            reached[:, number] = np.searchsorted(own, column, side="right")
        n_starts = self.starts.shape[1]
        reached[np.isnan(z)] = 0
        return np.asarray(reached * ((HIGH - LOW) // n_starts) + LOW)

    def some(self, used: NDArray[np.bool_]) -> "Looked":
        """Without the other inputs."""
        starts = self.starts[used] if len(self.starts) > 1 else self.starts
        return Looked(self.columns[used], self.centre[used], self.width[used], starts)


@dataclass(frozen=True, eq=False)
class Entry:
    """The inputs of a network in whole numbers, those of one piece after those of another."""

    pieces: tuple[Scaled | Looked, ...]

    @property
    def n_inputs(self) -> int:
        """Whole numbers of a row."""
        return sum(len(piece.columns) for piece in self.pieces)

    def __call__(self, X: NDArray[np.generic]) -> Places:
        """Rows as whole numbers."""
        rows = np.asarray(X, dtype=np.float32)
        return np.concatenate([piece(rows) for piece in self.pieces], axis=1)

    def some(self, used: NDArray[np.bool_]) -> "Entry":
        """Without the other inputs."""
        ends = np.cumsum([len(piece.columns) for piece in self.pieces])[:-1]
        pairs = zip(self.pieces, np.split(used, ends), strict=True)
        return Entry(tuple(piece.some(own) for piece, own in pairs if own.any()))


@dataclass(frozen=True, eq=False)
class _Inputs:
    """A piece of an entry, what its whole numbers stand for, and where the first layer has them."""

    piece: Scaled | Looked
    places: Places
    scale: Rows
    offset: Rows


class Front:
    """What all branches have in common: columns are picked, bent and shifted.

    Ranges are those of the calibration rows.
    """

    def __init__(self, steps: Sequence[Step], rows: Rows, deviations: Rows) -> None:
        n = len(deviations)
        self.columns, self.shift, none = np.arange(n), np.zeros(n), torch.zeros(n).double()
        self.bend = Bend("clip", none.bool(), none, none + 1)
        for step in steps:
            match step:
                case Pick():
                    self.columns = step.columns.numpy()
                case Shift():
                    self.shift = step.centre.numpy()
                case Bend():
                    self.bend = step
        self.rows, self.deviations = rows[:, self.columns], deviations

    def entry(self, rise: Rise | None, first: Affine) -> tuple[Entry, Affine]:
        """The inputs of a branch, and its first layer for what comes in then."""
        parts = [part for part in self._inputs(rise) if len(part.places)]
        scale, offset = (
            torch.from_numpy(np.concatenate([getattr(part, name) for part in parts]))
            for name in ("scale", "offset")
        )
        (W,) = first.weight[:, np.concatenate([part.places for part in parts])]
        folded = Affine((W * scale[:, None])[None], first.bias + offset @ W)
        return Entry(tuple(part.piece for part in parts)), folded

    def _inputs(self, rise: Rise | None) -> Iterator[_Inputs]:
        raw = np.arange(len(self.columns)) if rise is None else rise.raw.numpy()
        is_bent = self.bend.chosen.numpy()
        yield self._straight(raw, np.flatnonzero(~is_bent[raw]))
        if is_bent[raw].any():
            yield self._bent(raw, np.flatnonzero(is_bent[raw]))
        if rise is not None:
            bent = is_bent[rise.column.numpy()]
            yield self._straight_steps(rise, np.flatnonzero(~bent), len(raw))
            if bent.any():
                yield self._bent_steps(rise, np.flatnonzero(bent), len(raw))

    def _straight(self, raw: Places, places: Places) -> _Inputs:
        """Columns over the range of the rows."""
        own = raw[places]
        rows = self.rows[:, own]
        low, high = rows.min(axis=0), rows.max(axis=0)
        half = np.where(high > low, (high - low) / 2, DEVIATIONS * self.deviations[own])
        middle, factor = _rounded((low + high) / 2), _rounded(HIGH / half)
        offset = middle.astype(np.float64) - self.shift[own]
        scale = 1 / factor.astype(np.float64)
        return _Inputs(Scaled(self.columns[own], middle, factor), places, scale, offset)

    def _bent(self, raw: Places, places: Places) -> _Inputs:
        """Bent columns, all of them up to the largest number of any."""
        own = raw[places]
        bent = self.bend(torch.from_numpy(self.rows))[:, own]
        unit = (float(bent.abs().max()) or 1.0) / HIGH
        codes = np.arange(LOW, LOW + COLUMN_STARTS, dtype=np.float64) + 0.5
        starts = self._starts(codes[None] * unit)
        offset, scale = -self.shift[own], np.full(len(own), unit)
        return _Inputs(self._looked(own, starts), places, scale, offset)

    def _straight_steps(self, rise: Rise, places: Places, n_raw: int) -> _Inputs:
        """Steps from -127 to 127."""
        own, low, high = self._ends(rise, places)
        middle, factor = _rounded((low + high) / 2), _rounded(2 * HIGH / (high - low))
        piece = Scaled(self.columns[own], middle, factor)
        n = len(own)
        return _Inputs(piece, n_raw + places, np.full(n, 0.5 / HIGH), np.full(n, 0.5))

    def _bent_steps(self, rise: Rise, places: Places, n_raw: int) -> _Inputs:
        """Steps on bent columns, from -128 to 127."""
        own, low, high = self._ends(rise, places)
        levels = (np.arange(STEP_STARTS) + 0.5) / STEP_STARTS
        starts = self._starts(low[:, None] + (high - low)[:, None] * levels)
        n, unit = len(own), 1 / (HIGH - LOW)
        scale, offset = np.full(n, unit), np.full(n, -LOW * unit)
        return _Inputs(self._looked(own, starts), n_raw + places, scale, offset)

    def _ends(self, rise: Rise, places: Places) -> tuple[Places, Rows, Rows]:
        """The column of each step, and where it begins and ends in this."""
        own = rise.column.numpy()[places]
        low, high = (each.numpy()[places] + self.shift[own] for each in (rise.low, rise.high))
        return own, low, high

    def _looked(self, own: Places, starts: Numbers32) -> Looked:
        centre, width = (
            _rounded(part.numpy()[own]) for part in (self.bend.centre, self.bend.width)
        )
        return Looked(self.columns[own], centre, width, starts)

    def _starts(self, values: Rows) -> Numbers32:
        """Where z passes values of the curve; rounding lets none fall behind the one before it."""
        return np.maximum.accumulate(
            _rounded(self.bend.front.uncurved(torch.from_numpy(values)).numpy()), axis=1
        )


def _rounded(numbers: Rows) -> Numbers32:
    """Finite numbers of float32."""
    return np.clip(numbers, -MOST, MOST).astype(np.float32)
