"""A table as plain values and arrays, for a model file, and back from a stranger's."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.tables.columns import Category, Column, Date, Number
from protopinv.tables.table import Table
from protopinv.tables.understand import LeftOut
from protopinv.tables.values import DATE_FORMATS

Arrays = dict[str, NDArray[Any]]
# What is an array in each kind of column; the rest is plain.
ARRAYS = {"number": ("levels", "averages"), "category": ("vectors",), "date": ()}
# Texts of categories may be long and many, so they are bytes of JSON beside the arrays.
VALUES = "values"
MOST_VALUES = 2**21
# Days of about ten thousand years.
MOST_DAYS = 4e6


def described(table: Table) -> dict[str, Any]:
    """All of a table but its arrays, as plain JSON values."""
    return {
        "columns": [
            {"kind": column.kind, **{name: getattr(column, name) for name in _plain(column)}}
            for column in table.columns
        ],
        "names": list(table.names),
        "left_out": [{"name": column.name, "why": column.why} for column in table.left_out],
        "notes": list(table.notes),
    }


def arrays(table: Table) -> Arrays:
    """Its arrays, by the number of the column and what they are, and all values of categories."""
    texts = [list(column.values) for column in table.columns if isinstance(column, Category)]
    found: Arrays = {VALUES: np.frombuffer(json.dumps(texts).encode(), dtype=np.uint8).copy()}
    return found | {
        f"{number}.{name}": np.asarray(getattr(column, name), dtype=np.float64)
        for number, column in enumerate(table.columns)
        for name in ARRAYS[column.kind]
        if getattr(column, name) is not None
    }


def _plain(column: Column) -> list[str]:
    beside = (*ARRAYS[column.kind], VALUES)
    return [name for name in column.__dataclass_fields__ if name not in beside]


def _values(raw: NDArray[Any]) -> Iterator[tuple[str, ...]]:
    """The values of each category, in turn."""
    text = raw.tobytes()
    if raw.dtype != np.uint8 or raw.ndim != 1 or text.count(b",") > MOST_VALUES:
        raise ValueError("values of categories that are no texts, or too many")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError("values of categories that are no JSON") from error
    if not isinstance(found, list):
        raise TypeError("values of categories that are no list")
    return map(_texts, found)


def restored(given: Mapping[str, Any], found: Mapping[str, NDArray[Any]]) -> Table:
    """What both came from; raises ValueError, KeyError or TypeError for what cannot be."""
    each = given["columns"]
    if not isinstance(each, list) or not each:
        raise ValueError("a table without columns")
    taken, values = {VALUES}, _values(found[VALUES])
    columns: list[Column] = []
    for number, column in enumerate(each):
        own = {
            name: found[f"{number}.{name}"]
            for name in ARRAYS[_text(column["kind"])]
            if f"{number}.{name}" in found
        }
        taken |= {f"{number}.{name}" for name in own}
        texts = next(values, ()) if column["kind"] == "category" else ()
        columns.append(_column(column, own, texts))
    if next(values, None) is not None:
        raise ValueError("values of a category that is not there")
    if taken != set(found):
        raise ValueError("arrays of a table that has no such columns")
    left_out = tuple(LeftOut(_text(c["name"]), _text(c["why"])) for c in given["left_out"])
    names = [column.name for column in (*columns, *left_out)]
    if len(set(names)) != len(names):
        raise ValueError("a column that is there twice")
    all_names = _texts(given["names"])
    if sorted(all_names) != sorted(names):
        raise ValueError("names of other columns")
    return Table(tuple(columns), left_out, _texts(given["notes"]), all_names)


def _column(
    given: Mapping[str, Any], own: Mapping[str, NDArray[Any]], values: tuple[str, ...]
) -> Column:
    if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in own.values()):
        raise ValueError("numbers of a table that are not finite")
    if given["kind"] == "number":
        return _number(given, own)
    if given["kind"] == "category":
        return _category(given, own["vectors"], values)
    return _date(given)


def _number(given: Mapping[str, Any], own: Mapping[str, NDArray[Any]]) -> Number:
    levels, averages = own.get("levels"), own.get("averages")
    names = _texts(given["average_names"])
    if (levels is None) != (averages is None) or (levels is None) != (not names):
        raise ValueError("levels and averages that do not belong together")
    if levels is not None and averages is not None:
        if levels.ndim != 1 or not len(levels) or not (np.diff(levels) > 0).all():
            raise ValueError("levels that do not rise")
        if averages.shape != (len(levels) + 1, len(names)):
            raise ValueError("averages of other levels")
    middle, low, high = (_number_of(given[name]) for name in ("middle", "low", "high"))
    flag, boolean = _bool(given["flag"]), _bool(given["boolean"])
    return Number(_text(given["name"]), middle, low, high, flag, boolean, levels, averages, names)


def _category(given: Mapping[str, Any], vectors: NDArray[Any], values: tuple[str, ...]) -> Category:
    names = _texts(given["names"])
    if len(set(values)) != len(values) or not values or not names:
        raise ValueError("values of a category that are not told apart")
    if vectors.shape != (len(values) + 2, len(names)):
        raise ValueError("vectors of other values")
    common = given["common"]
    if not isinstance(common, int) or not 0 <= common < len(values):
        raise ValueError("the commonest value is none of them")
    return Category(_text(given["name"]), values, vectors, names, common, _bool(given["gaps"]))


def _date(given: Mapping[str, Any]) -> Date:
    form, parts = _text(given["form"]), _texts(given["parts"])
    if form not in DATE_FORMATS or not parts or set(parts) - set(Date.PARTS):
        raise ValueError("a date that is written in an unknown way")
    if len(set(parts)) != len(parts):
        raise ValueError("a part of a date that is there twice")
    middle, low, high = (_number_of(given[name]) for name in ("middle", "low", "high"))
    if max(abs(middle), abs(low), abs(high)) > MOST_DAYS:
        raise ValueError("a date thousands of years away")
    return Date(_text(given["name"]), form, middle, low, high, parts, _bool(given["flag"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} where text should be")
    value.encode()  # raises ValueError for halves of characters
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r:.40} where texts should be")
    return tuple(map(_text, values))


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.40} where true or false should be")
    return value


def _number_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise TypeError(f"{value!r:.40} where a number should be")
    return float(value)
