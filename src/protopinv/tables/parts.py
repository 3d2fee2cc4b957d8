"""What a column gives, piece by piece: the arithmetic from its code to numbers, written once.

Exports write the same parts in other languages.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopinv.tables.values import Numbers

DAYS_A_YEAR, DAYS_A_WEEK = 365.2425, 7
# Day 0, 1 January 1970, was a Thursday; weeks begin on Monday.
FIRST_WEEKDAY = 3


@dataclass(frozen=True, eq=False)
class Filled:
    """(x - centre) / unit, with ``middle`` in place of a gap."""

    middle: float
    centre: float = 0.0
    unit: float = 1.0

    def __call__(self, code: Numbers) -> Numbers:
        """A column."""
        return ((filled(code, self.middle) - self.centre) / self.unit)[:, None]


@dataclass(frozen=True, eq=False)
class Flag:
    """1 for a gap."""

    def __call__(self, code: Numbers) -> Numbers:
        """A column."""
        return np.isnan(code).astype(np.float64)[:, None]


@dataclass(frozen=True, eq=False)
class Curve:
    """Straight lines between the ``levels``; the last of the ``averages`` is for gaps."""

    middle: float
    levels: Numbers
    averages: Numbers

    def __call__(self, code: Numbers) -> Numbers:
        """A column for each target."""
        x = filled(code, self.middle)
        lines = [np.interp(x, self.levels, average) for average in self.averages[:-1].T]
        return np.where(np.isnan(code)[:, None], self.averages[-1], np.column_stack(lines))


@dataclass(frozen=True, eq=False)
class Look:
    """The vector of a place; the last but one is for any other, the last for gaps."""

    vectors: Numbers

    def __call__(self, code: Numbers) -> Numbers:
        """A column for each number of a vector."""
        return self.vectors[self.places(code)]

    def places(self, code: Numbers) -> NDArray[np.int64]:
        """Which vector belongs to each code."""
        n = len(self.vectors) - 2
        has_vector = (code >= 0) & (code < n)
        return np.where(np.isnan(code), n + 1, np.where(has_vector, code, n)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Wave:
    """Sine and cosine of where a day lies in a ``period``; ``phase`` is where the origin does."""

    middle: float
    period: float
    phase: float

    def __call__(self, code: Numbers) -> Numbers:
        """Two columns."""
        turns = self.phase + filled(code, self.middle) / self.period
        angle = 2 * np.pi * (turns - np.floor(turns))
        return np.column_stack([np.sin(angle), np.cos(angle)])


@dataclass(frozen=True, eq=False)
class Week:
    """A 1 for the day of the week; ``first`` is that of the origin."""

    middle: float
    first: int

    def __call__(self, code: Numbers) -> Numbers:
        """Seven columns."""
        day = np.floor(filled(code, self.middle)) + self.first
        return np.asarray(np.eye(DAYS_A_WEEK)[np.mod(day, DAYS_A_WEEK).astype(np.int64)])


Part = Filled | Flag | Curve | Look | Wave | Week


def filled(code: Numbers, middle: float) -> Numbers:
    """With something in place of gaps."""
    return np.where(np.isnan(code), middle, code)
