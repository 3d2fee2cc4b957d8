"""The columns of a frame to numbers, as parts that every format can write.

A row comes as one number for each column, its *code*: a number as it is, the place of a category in
the list of its values (-1 for one that is not there), the days of a date since an ``origin``, which
float32 has digits for. NaN is a gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from protopinv.tables import Category, Column, Date, Number, Table
from protopinv.tables.columns import DAYS_A_WEEK, DAYS_A_YEAR, FIRST_WEEKDAY

Rows = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class Filled:
    """(x - centre) / unit, and 0 or ``middle`` in its place for a gap."""

    column: int
    middle: float
    centre: float = 0.0
    unit: float = 1.0
    n_outputs = 1

    def __call__(self, code: Rows) -> Rows:
        """A column."""
        return ((filled(code, self.middle) - self.centre) / self.unit)[:, None]


@dataclass(frozen=True, eq=False)
class Flag:
    """1 for a gap."""

    column: int
    n_outputs = 1

    def __call__(self, code: Rows) -> Rows:
        """A column."""
        return np.isnan(code).astype(np.float64)[:, None]


@dataclass(frozen=True, eq=False)
class Curve:
    """Straight lines between the ``levels``; the last of the ``averages`` is for gaps."""

    column: int
    middle: float
    levels: Rows
    averages: Rows

    @property
    def n_outputs(self) -> int:
        """One for each target."""
        return int(self.averages.shape[1])

    def __call__(self, code: Rows) -> Rows:
        """A column for each target."""
        x = filled(code, self.middle)
        lines = [np.interp(x, self.levels, average) for average in self.averages[:-1].T]
        return np.where(np.isnan(code)[:, None], self.averages[-1], np.column_stack(lines))


@dataclass(frozen=True, eq=False)
class Look:
    """The vector of a place; the last but one is for any other, the last for gaps."""

    column: int
    vectors: Rows

    @property
    def n_outputs(self) -> int:
        """As long as a vector."""
        return int(self.vectors.shape[1])

    def __call__(self, code: Rows) -> Rows:
        """A column for each number of a vector."""
        n = len(self.vectors) - 2
        known = (code >= 0) & (code < n)
        place = np.where(np.isnan(code), n + 1, np.where(known, code, n)).astype(np.int64)
        return self.vectors[place]


@dataclass(frozen=True, eq=False)
class Wave:
    """Sine and cosine of where a day lies in a ``period``; ``phase`` is where the origin does."""

    column: int
    middle: float
    period: float
    phase: float
    n_outputs = 2

    def __call__(self, code: Rows) -> Rows:
        """Two columns."""
        turns = self.phase + filled(code, self.middle) / self.period
        angle = 2 * np.pi * (turns - np.floor(turns))
        return np.column_stack([np.sin(angle), np.cos(angle)])


@dataclass(frozen=True, eq=False)
class Week:
    """A 1 for the day of the week; ``first`` is that of the origin."""

    column: int
    middle: float
    first: int
    n_outputs = DAYS_A_WEEK

    def __call__(self, code: Rows) -> Rows:
        """Seven columns."""
        day = np.floor(filled(code, self.middle)) + self.first
        return np.asarray(np.eye(DAYS_A_WEEK)[np.mod(day, DAYS_A_WEEK).astype(np.int64)])


Part = Filled | Flag | Curve | Look | Wave | Week


def filled(code: Rows, middle: float) -> Rows:
    """With something in place of gaps."""
    return np.where(np.isnan(code), middle, code)


@dataclass(frozen=True, eq=False)
class Encode:
    """From the codes of all columns to what the network sees of them."""

    table: Table

    @property
    def n_inputs(self) -> int:
        """One for each column."""
        return len(self.table.columns)

    @property
    def n_outputs(self) -> int:
        """Of all parts."""
        return self.table.n_features

    @property
    def operations(self) -> int:
        """About two for each number."""
        return 2 * self.n_outputs

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """In the order of the features."""
        return tuple(
            part
            for number, column in enumerate(self.table.columns)
            for part in _parts(number, column)
        )

    @cached_property
    def origins(self) -> Rows:
        """The day that dates are counted from, and 0 for what is no date."""
        return np.array([origin_of(column) for column in self.table.columns], dtype=np.float64)

    def __call__(self, X: Rows) -> Rows:
        """Rows of codes."""
        return np.concatenate([part(X[:, part.column]) for part in self.parts], axis=1)


def origin_of(column: Column) -> float:
    """The day that a date is counted from."""
    return float(np.floor(column.middle)) if isinstance(column, Date) else 0.0


def _parts(number: int, column: Column) -> Iterator[Part]:
    if isinstance(column, Category):
        yield Look(number, column.vectors)
        return
    if isinstance(column, Number):
        yield Filled(number, column.middle)
        if column.flag:
            yield Flag(number)
        if column.levels is not None and column.averages is not None:
            yield Curve(number, column.middle, column.levels, column.averages)
        return
    origin = origin_of(column)
    middle = column.middle - origin
    for part in column.parts:
        if part == "age":
            yield Filled(number, middle, middle, DAYS_A_YEAR)
        elif part == "season":
            yield Wave(number, middle, DAYS_A_YEAR, float(origin / DAYS_A_YEAR % 1))
        elif part == "weekday":
            yield Week(number, middle, int(origin + FIRST_WEEKDAY) % DAYS_A_WEEK)
        else:
            yield Wave(number, middle, 1.0, 0.0)
    if column.flag:
        yield Flag(number)
