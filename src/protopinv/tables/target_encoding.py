"""Target encoding: what the targets were like on average for each value of a column.

A row must not see its own target in its features, so rows are dealt into folds, and in training
each gets the averages over the other folds. Averages of few rows lean towards that of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopinv.tables.category import Category
from protopinv.tables.table import Column, Table
from protopinv.tables.values import Numbers

FOLDS = 5
AVERAGE = ": average of "
# What averages lean towards counts as so many rows of every value.
PRIOR_ROWS = 10.0
# Averages of so many targets are features, given so many rows for each of them; with fewer rows
# they are too rough to help.
MOST_TARGETS, ROWS_A_TARGET = 10, 1_000


class Averages:
    """Sums over the rows of each fold for each value of a column; they add up over pieces of rows.

    ``shape`` counts values and targets. Averages lean towards that of all rows. Where some are
    ``fixed`` already, the others are NaN there, and lean towards that of any other value, the last
    but one.
    """

    def __init__(
        self, column: Category, shape: tuple[int, ...], fixed: Numbers | None = None
    ) -> None:
        self.column, self.fixed = column, fixed
        self.mass: Numbers = np.zeros((FOLDS, shape[0]))
        self.sums: Numbers = np.zeros((FOLDS, *shape))

    def add(self, code: Numbers, targets: Numbers, mass: Numbers, fold: NDArray[np.int64]) -> None:
        """Add some rows."""
        shape, size = self.mass.shape, self.mass.size
        cell = fold * shape[1] + self.column.places(code)
        self.mass += np.bincount(cell, mass, size).reshape(shape)
        for number, target in enumerate(targets.T):
            self.sums[:, :, number] += np.bincount(cell, mass * target, size).reshape(shape)

    def of_all(self) -> Numbers:
        """Return the average for every value, over all rows."""
        return self._of(self.mass.sum(axis=0), self.sums.sum(axis=0))

    def out_of_fold(self, code: Numbers, fold: NDArray[np.int64]) -> Numbers:
        """Return for every row the average of its value over the other folds."""
        mass, sums = self.mass.sum(axis=0), self.sums.sum(axis=0)
        own = zip(self.mass, self.sums, strict=True)
        others = [self._of(mass - own_mass, sums - own_sums) for own_mass, own_sums in own]
        return np.asarray(np.stack(others)[fold, self.column.places(code)])

    def _of(self, mass: Numbers, sums: Numbers) -> Numbers:
        if self.fixed is None:
            prior = sums.sum(axis=0) / max(mass.sum(), np.finfo(np.float64).tiny)
        else:
            prior = self.fixed[-2]
        averages = (sums + PRIOR_ROWS * prior) / (mass[:, None] + PRIOR_ROWS)
        return (
            averages if self.fixed is None else np.where(np.isnan(self.fixed), averages, self.fixed)
        )


@dataclass(frozen=True, eq=False)
class TargetEncoding:
    """Averages of the ``targets`` for the values of some columns of a table, by their numbers."""

    table: Table
    targets: tuple[str, ...]
    averages: Mapping[int, Averages]

    @classmethod
    def empty(cls, table: Table, n_rows: int, targets: Sequence[str]) -> "TargetEncoding":
        """Before any rows, of which so many are to come; too few of them get no averages."""
        waiting = {
            number: column
            for number, column in enumerate(table.columns)
            if isinstance(column, Category) and column.n_waiting
        }
        n_targets = len(targets)
        if n_targets > MOST_TARGETS or n_rows < ROWS_A_TARGET * n_targets:
            plain = {number: column.without_targets() for number, column in waiting.items()}
            return cls(table.with_columns(plain), tuple(targets), {})
        averages = {
            number: Averages(column, (column.n_waiting + 2, n_targets))
            for number, column in waiting.items()
        }
        return cls(table, tuple(targets), averages)

    @classmethod
    def of_new_values(cls, old: Table, table: Table) -> "TargetEncoding":
        """Before any rows, for what a table that has grown from an old one has new values of."""
        averages: dict[int, Averages] = {}
        targets: tuple[str, ...] = ()
        for number, (before, after) in enumerate(zip(old.columns, table.columns, strict=True)):
            if not isinstance(after, Category) or not isinstance(before, Category):
                continue
            if after is not before and after.names == before.names:
                n = after.n_ngrams
                fixed, names = after.vectors[:, n:].copy(), after.names[n:]
                targets = tuple(name.removeprefix(f"{after.name}{AVERAGE}") for name in names)
                fixed[len(before.values) : -2] = np.nan
                averages[number] = Averages(after, fixed.shape, fixed)
        return cls(table, targets, averages)

    def add(
        self, codes: Numbers, targets: Numbers, weight: Numbers | None, fold: NDArray[np.int64]
    ) -> None:
        """Add some rows."""
        mass = np.ones(len(codes)) if weight is None else weight
        for number, averages in self.averages.items():
            averages.add(codes[:, number], targets, mass, fold)

    def fitted(self) -> Table:
        """Return the table with averages over all rows."""
        columns: dict[int, Column] = {}
        for number, averages in self.averages.items():
            column = averages.column
            names = tuple(f"{column.name}{AVERAGE}{target}" for target in self.targets)
            columns[number] = column.with_averages(averages.of_all(), names)
        return self.table.with_columns(columns)

    def rows(self, table: Table, codes: Numbers, fold: NDArray[np.int64]) -> Numbers:
        """Return rows of the fitted table to train on, none of which has seen its own target."""
        parts = table.parts(codes)
        for number, averages in self.averages.items():
            unseen = averages.out_of_fold(codes[:, number], fold)
            parts[number][:, -unseen.shape[1] :] = unseen
        return np.concatenate(parts, axis=1, dtype=np.float64)
