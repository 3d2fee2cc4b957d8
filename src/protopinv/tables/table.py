"""A frame as it is to rows of numbers: understood once, and then the same for every frame."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ConfigError, DataError, UnreadableWarning
from protopinv.tables.columns import Averaged, Category, Column, Date, Number, one_hot
from protopinv.tables.statistics import Statistics
from protopinv.tables.understand import FEW_VALUES, KINDS, LeftOut, Seen, understand
from protopinv.tables.values import Numbers, Texts, values_of
from protopinv.words import hint, is_gap

# Averages of so many targets are features, given so many rows for each of them; with fewer rows
# they are too rough to help.
MOST_TARGETS, ROWS_A_TARGET = 10, 1_000


@dataclass(frozen=True, eq=False)
class Table:
    """The columns that a network sees something of, and those it does not.

    ``notes`` are sentences about values that could not be taken as they are, ``names`` those of all
    columns in training, in their order.
    """

    columns: tuple[Column, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Of the numbers that a row becomes."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def is_plain(self) -> bool:
        """Whether every column is a number that the network sees as it is."""
        return all(isinstance(column, Number) and len(column.names) == 1 for column in self.columns)

    @property
    def n_features(self) -> int:
        """Numbers that a row becomes."""
        return len(self.feature_names)

    def codes(self, columns: Mapping[str, Any], *, warn: bool = False) -> Numbers:
        """One number for each column and row; ``columns.py`` says what it stands for.

        With ``warn`` text that cannot be read is told of, once a column.
        """
        missing = [column.name for column in self.columns if column.name not in columns]
        if missing:
            raise DataError(
                f"Rows must have the columns of training. There is no {missing[0]!r}. "
                f"{hint(missing[0], columns)}"
            )
        found = []
        for column in self.columns:
            values = values_of(columns[column.name], column.name)
            found.append(column.code(values))
            if warn and values.texts is not None and not isinstance(column, Category):
                _warn(column, values.texts, found[-1])
        return np.column_stack(found)

    def features(self, codes: Numbers) -> Numbers:
        """What the network sees of rows that were coded."""
        parts = [column.features(code) for column, code in zip(self.columns, codes.T, strict=True)]
        return np.concatenate(parts, axis=1, dtype=np.float64)

    def __str__(self) -> str:
        """A line for each column."""
        told = [(column.name, column.story) for column in self.columns]
        told += [(column.name, f"left out: {column.why}") for column in self.left_out]
        width = max(len(name) for name, _ in told)
        return "\n".join([*(f"{name:{width}}  {story}" for name, story in told), *self.notes])


def _warn(column: Column, texts: Texts, code: Numbers) -> None:
    gaps = np.flatnonzero(np.isnan(code)).tolist()
    bad = [texts[row] for row in gaps if not is_gap(texts[row])]
    if bad:
        warnings.warn(
            UnreadableWarning(
                f"Column {column.name!r} must hold {column.kind}s. {len(bad)} values such as "
                f"{bad[0]!r:.40} are none and count as gaps. Correct them, or leave them empty."
            ),
            stacklevel=6,
        )


def understood(
    pieces: Iterable[Mapping[str, Any]], names: Sequence[str], wanted: Mapping[str, str] | None
) -> Table:
    """What each column is, from pieces of a frame that together are all of it.

    What is to be known of the targets is still missing: ``with_targets`` adds it.
    """
    kinds = checked_kinds(wanted, names)
    seen = {name: Seen(name, kinds.get(name)) for name in names}
    for piece in pieces:
        for name in names:
            if kinds.get(name) != "drop":
                seen[name].add(values_of(piece[name], name))
    told = [understand(each) for each in seen.values()]
    columns = tuple(part for part, _ in told if not isinstance(part, LeftOut))
    left_out = tuple(part for part, _ in told if isinstance(part, LeftOut))
    if not columns:
        why = "; ".join(f"{column.name!r}: {column.why}" for column in left_out[:5])
        raise DataError(
            f"Rows must have a column that says something. None of {len(names)} does ({why}). "
            "Check the table."
        )
    notes = tuple(note for _, note in told if note is not None)
    return Table(columns, left_out, notes, tuple(names))


@dataclass(frozen=True, eq=False)
class Gathered:
    """What is known of the targets for each value of some columns of a table."""

    table: Table
    found: Mapping[str, Statistics]

    @classmethod
    def empty(cls, table: Table, n_rows: int, n_targets: int) -> "Gathered":
        """Before any rows; so many are to come."""
        if n_targets > MOST_TARGETS or n_rows < ROWS_A_TARGET * n_targets:
            table = replace(table, columns=tuple(map(_without_targets, table.columns)))
        found = {
            column.name: Statistics.empty(column.n_values + 2, n_targets)
            for column in table.columns
            if not isinstance(column, Date) and column.waits
        }
        return cls(table, found)

    def add(
        self, codes: Numbers, targets: Numbers, weight: Numbers | None, fold: NDArray[np.int64]
    ) -> None:
        """Some rows."""
        mass = np.ones(len(codes)) if weight is None else weight
        for number, column, statistics in self._averaged():
            statistics.add(column.places(codes[:, number]), targets, mass, fold)

    def finished(self, targets: Sequence[str]) -> Table:
        """The table, by the names of the targets."""
        columns = list(self.table.columns)
        for number, column, statistics in self._averaged():
            columns[number] = column.with_averages(statistics.averages(), targets)
        return replace(self.table, columns=tuple(columns))

    def rows(self, table: Table, codes: Numbers, fold: NDArray[np.int64]) -> Numbers:
        """Rows of the finished table to train on, none of which has seen its own target."""
        parts = [column.features(code) for column, code in zip(table.columns, codes.T, strict=True)]
        for number, column, statistics in self._averaged():
            apart = statistics.apart(column.places(codes[:, number]), fold)
            parts[number][:, -apart.shape[1] :] = apart
        return np.concatenate(parts, axis=1, dtype=np.float64)

    def _averaged(self) -> Iterator[tuple[int, Averaged, Statistics]]:
        for number, column in enumerate(self.table.columns):
            if column.name in self.found and not isinstance(column, Date):
                yield number, column, self.found[column.name]


def _without_targets(column: Column) -> Column:
    """A number as it is; a category with a column for each of its commonest values."""
    if isinstance(column, Number):
        return replace(column, levels=None)
    if isinstance(column, Category) and column.waits:
        rare = len(column.values) - FEW_VALUES
        return one_hot(column.name, column.values, rare=rare, gaps=column.gaps)
    return column


def checked_kinds(wanted: Mapping[str, str] | None, names: Sequence[str]) -> dict[str, str]:
    """What a user says of columns; raises ConfigError for what cannot be."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise ConfigError(
            f"columns says what each column is, by name. Got {wanted!r:.40}. Give a dict, such as "
            '{"zip": "category"}.'
        )
    kinds = {str(name): kind for name, kind in (wanted or {}).items()}
    for name, kind in kinds.items():
        if kind not in KINDS:
            raise ConfigError(
                f"A column can be taken as {', '.join(KINDS)}. columns says {kind!r:.40} of "
                f"{name!r}. Choose one of these."
            )
        if name not in names:
            raise ConfigError(
                f"columns must name columns that are there. There is no {name!r}. "
                f"{hint(name, names)}"
            )
    return kinds
