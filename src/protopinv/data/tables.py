"""CSV and Parquet tables, read by polars; one clear error for whatever is not a number."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protopinv.data.dataset import Dataset
from protopinv.errors import DataError
from protopinv.optional import require

READERS = {".csv": "read_csv", ".parquet": "read_parquet", ".pq": "read_parquet"}


def load_table(
    path: Path,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    weight: str | None = None,
) -> Dataset:
    """All rows of a table: ``features`` (by default all columns not named here) and the target.

    A target and a name in ``drop`` that is no column may be several, with commas. ``weight`` is the
    column that says what each row counts.
    """
    polars = require("polars", extra="table", why="Reading a table")
    table = _read(path, polars)
    targets = [] if target is None else _listed([target], table.columns)
    _require_columns(table, targets, "The target must be a column of the table", path)
    named = [] if weight is None else [weight]
    _require_columns(table, named, "The weight must be a column of the table", path)
    drop = _listed(drop, table.columns)
    _require_columns(table, drop, "A column to drop must be in the table", path)
    taken = {*targets, *named, *drop}
    names = [name for name in table.columns if name not in taken]
    if features is not None:
        names = list(features)
        _require_columns(table, names, "Every feature of the model must be a column", path)
    if not names or len(table) == 0:
        raise DataError(
            f"A table must have at least one row and one feature. {path} has {len(table)} rows "
            f"and {len(names)} feature columns. Check the file and its first line."
        )
    for name in [*targets, *named]:
        if table[name].null_count():
            row = table[name].is_null().arg_max()
            raise DataError(
                f"Every row needs a {'weight' if name in named else 'target'}. Column {name!r} of "
                f"{path} is empty in row {row + 1}. Fill it or drop the row."
            )
    y = table[targets[0]].to_numpy() if len(targets) == 1 else None
    if len(targets) > 1:
        _require_numbers(table, targets, "Several targets must be numbers", path, polars)
        y = table.select(targets).cast({polars.Boolean: polars.UInt8}).to_numpy()
    _require_numbers(table, named, "Weights must be numbers", path, polars)
    weights = table[weight].cast(polars.Float64).to_numpy() if named else None
    X = _numbers(table.select(names), path, polars)
    return Dataset(str(path), X, y, weight=weights, targets=tuple(targets))


def _require_numbers(table: Any, names: Sequence[str], rule: str, path: Path, polars: Any) -> None:
    for name in names:
        kind = table[name].dtype
        if not (kind.is_numeric() or kind == polars.Boolean):
            raise DataError(
                f"{rule}. Column {name!r} of {path} holds {kind} values such as "
                f"{_first_text(table[name], polars)!r}. Encode it as numbers."
            )


def _read(path: Path, polars: Any) -> Any:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(
            f"A table must be a .csv or .parquet file. Got {path.name}. Convert or rename it."
        )
    options = {"infer_schema_length": None} if reader == "read_csv" else {}
    try:
        return getattr(polars, reader)(path, **options)
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise DataError(
            f"A table must be a readable {path.suffix[1:]} file. {path} is not ({reason}). "
            "Check that it is whole."
        ) from error


def _listed(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Names as they are where a column is called so, and otherwise what lies between commas."""
    listed: list[str] = []
    for name in names:
        parts = [part.strip() for part in name.split(",")]
        listed += [name] if name in columns else [part for part in parts if part] or [name]
    return listed


def _require_columns(table: Any, names: Sequence[str], rule: str, path: Path) -> None:
    missing = [name for name in names if name not in table.columns]
    if not missing:
        return
    close = difflib.get_close_matches(missing[0], table.columns, n=1)
    hint = f"Did you mean {close[0]!r}?" if close else "Check the spelling and the first line."
    few = ", ".join(map(repr, table.columns[:8])) + (", ..." if len(table.columns) > 8 else "")
    raise DataError(f"{rule}. {path} has no {missing[0]!r}; it has {few}. {hint}")


def _first_text(column: Any, polars: Any) -> Any:
    """The first value of a column that is not a number."""
    if column.dtype == polars.String:
        numbers = column.cast(polars.Float64, strict=False)
        column = column.filter(numbers.is_null() & column.is_not_null())
    return next(iter(column.drop_nulls().head(1)), None)


def _numbers(table: Any, path: Path, polars: Any) -> Any:
    """The table with every column a finite number; Booleans become 0 and 1."""
    for column in table.iter_columns():
        if not (column.dtype.is_numeric() or column.dtype == polars.Boolean):
            raise DataError(
                f"Features must be numbers. Column {column.name!r} of {path} holds "
                f"{column.dtype} values such as {_first_text(column, polars)!r}. Encode it as "
                "numbers, or leave it out (--drop)."
            )
        bad = column.is_null()
        if column.dtype.is_float():
            bad = bad | ~column.is_finite().fill_null(False)
        if bad.any():
            row = bad.arg_max()
            raise DataError(
                f"Features must be finite numbers. Column {column.name!r} of {path} holds "
                f"{column[row]} in row {row + 1}. Fill the gap or drop the row."
            )
    return table.cast({polars.Boolean: polars.UInt8})
