"""What a prototype has in the columns of a table, in words and in their own units."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protopinv.tables import Category, Date, Number, Table
from protopinv.tables.columns import short
from protopinv.tables.parts import DAYS_A_YEAR

Array = NDArray[np.float64]
# Days that a calendar has names for.
FIRST_DAY, LAST_DAY = -700_000, 2_900_000


@dataclass(frozen=True)
class Value:
    """What a prototype has in one column: a text, and where that lies between low and high."""

    column: str
    text: str
    share: float


def values_of(table: Table | None, names: Sequence[str], row: Array, ranges: Array) -> list[Value]:
    """Every column of one prototype. ``ranges`` has low and high for each, where it is a number."""
    if table is None:
        return [
            _number(name, float(value), low, high)
            for name, value, (low, high) in zip(names, row, ranges, strict=True)
        ]
    found, start = [], 0
    for column, (low, high) in zip(table.columns, ranges, strict=True):
        part = row[start : start + len(column.names)]
        start += len(column.names)
        if isinstance(column, Category):
            found.append(_category(column, part))
        elif isinstance(column, Date):
            found.append(_date(column, float(part[0]), low, high))
        else:
            found.append(_number(column.name, float(part[0]), low, high, column))
    return found


def _number(
    name: str, value: float, low: float, high: float, column: Number | None = None
) -> Value:
    if column is not None and column.boolean:
        return Value(name, "yes" if value > 0.5 else "no", _within(value, 0, 1))
    return Value(name, short(value), _within(value, low, high))


def _category(column: Category, part: Array) -> Value:
    """The value whose column is largest; where there are averages only, these."""
    if not column.is_one_hot:
        return Value(column.name, f"average {short(float(part[0]))}", _within(part[0], 0, 1))
    best = int(part.argmax())
    text = column.names[best].removeprefix(f"{column.name} = ")
    return Value(column.name, text, _within(part[best], 0, 1))


def _date(column: Date, years: float, low: float, high: float) -> Value:
    day = column.middle + years * DAYS_A_YEAR
    text = str(np.datetime64(int(np.clip(day, FIRST_DAY, LAST_DAY)), "D"))
    return Value(column.name, text, _within(day, low, high))


def _within(value: float, low: float, high: float) -> float:
    """Where it lies between two others, from 0 to 1; prototypes may lie beyond."""
    return float(np.clip((value - low) / (high - low), 0, 1)) if high > low else 0.5
