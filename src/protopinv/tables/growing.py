"""A table that meets values it has never seen: its categories grow.

Codes of known values stay what they were, and so does all that a row of them becomes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.tables.columns import Category
from protopinv.tables.statistics import Statistics
from protopinv.tables.table import Table
from protopinv.tables.understand import FEW_VALUES, LEAST_SEEN, MOST_VALUES, Seen
from protopinv.tables.values import Numbers, values_of


def grown(table: Table, columns: Mapping[str, Any]) -> Table:
    """With the values that are there as often as a fit asks of them; without any, the same table.

    Of values that get an average of the targets it is still missing: ``with_averages`` adds it.
    """
    each = tuple(
        _grown(column, columns[column.name]) if isinstance(column, Category) else column
        for column in table.columns
    )
    same = all(new is old for new, old in zip(each, table.columns, strict=True))
    return table if same else replace(table, columns=each)


def _grown(column: Category, rows: Any) -> Category:
    seen = Seen(column.name, "category")
    seen.add(values_of(rows, column.name))
    told_apart, most = _told_apart(column), FEW_VALUES if column.is_one_hot else MOST_VALUES
    often = (value for value, n in seen.counts.items() if n >= LEAST_SEEN)
    # the commonest first, as in a fit
    new = sorted(
        (value for value in often if value not in told_apart),
        key=lambda value: (-seen.counts[value], value),
    )[: max(0, most - len(told_apart))]
    if not new:
        return column
    longer = _with_values(column, [value for value in new if value not in column.lookup])
    return _with_columns(longer, new) if column.is_one_hot else longer


def _told_apart(column: Category) -> set[str]:
    """Values with numbers of their own, which rare ones that share a column have not."""
    if not column.is_one_hot:
        return set(column.values)
    own = (column.vectors[:-2] != column.vectors[-2]).any(axis=1)
    return {value for value, is_own in zip(column.values, own, strict=True) if is_own}


def _with_values(column: Category, new: Sequence[str]) -> Category:
    """With more values, to which the vector of any other belongs."""
    *_, other, gap = column.vectors
    vectors = np.stack([*column.vectors[:-2], *[other] * len(new), other, gap])
    return replace(column, values=(*column.values, *new), vectors=vectors)


def _with_columns(column: Category, own: Sequence[str]) -> Category:
    """With a column of its own for each of these values, after those there are."""
    vectors = np.pad(column.vectors, ((0, 0), (0, len(own))))
    places = [int(column.lookup[value]) for value in own]
    vectors[places] = 0
    vectors[places, len(column.names) + np.arange(len(own))] = 1
    names = (*column.names, *(f"{column.name} = {value}" for value in own))
    return replace(column, vectors=vectors, names=names)


def with_averages(
    known: Table,
    table: Table,
    codes: Numbers,
    targets: Mapping[str, Numbers],
    weight: Numbers | None,
    fold: NDArray[np.int64],
) -> tuple[Table, Numbers]:
    """A table that has grown from a ``known`` one, with averages of ``targets`` for new values.

    And the rows of the codes, none of which has seen its own target.
    """
    mass = np.ones(len(codes)) if weight is None else weight
    columns, parts = [], []
    for old, new, code in zip(known.columns, table.columns, codes.T, strict=True):
        column, part = new, new.features(code)
        gained = new is not old and new.names == old.names
        if gained and isinstance(old, Category) and isinstance(new, Category):
            column, part = _averaged(new, old.n_values, code, targets, mass, fold)
        columns.append(column)
        parts.append(part)
    rows = np.concatenate(parts, axis=1, dtype=np.float64)
    return replace(table, columns=tuple(columns)), rows


def _averaged(
    column: Category,
    n_known: int,
    code: Numbers,
    targets: Mapping[str, Numbers],
    mass: Numbers,
    fold: NDArray[np.int64],
) -> tuple[Category, Numbers]:
    """Averages of values after the first ``n_known``, and what rows see of them in training.

    Averages of few rows lean towards the vector of any other value. A target that is gone is zero.
    """
    of = code >= n_known
    places = code[of].astype(np.int64)
    each = [targets.get(name, np.zeros(len(code))) for name in column.targets]
    statistics = Statistics.empty(column.n_values, len(each), prior=column.vectors[-2])
    statistics.add(places, np.stack(each, axis=1)[of], mass[of], fold[of])
    vectors, rows = column.vectors.copy(), column.features(code)
    vectors[n_known:-2] = statistics.averages()[n_known:]
    rows[of] = statistics.apart(places, fold[of])
    return replace(column, vectors=vectors), rows
