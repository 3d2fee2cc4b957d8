"""CSV and Parquet tables, read by polars: features as they are, targets and weights checked."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protopinv.data.dataset import Dataset
from protopinv.data.text_tables import Written, read_text_table
from protopinv.errors import DataError
from protopinv.optional import require
from protopinv.tables import hint
from protopinv.tables.values import NUMBER, is_gap

TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET = (".parquet", ".pq")
# A table that comes from another program.
STDIN = "-"


def load_table(
    path: Path,
    *,
    target: str | Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    left_out: Sequence[str] = (),
    drop: Sequence[str] = (),
    weight: str | None = None,
    as_text: Sequence[str] = (),
    written: Written | None = None,
) -> Dataset:
    """All rows of a table: ``features`` (by default all columns not named here) and the target.

    Several targets are a list, or a name that is no column, with commas; so are names in ``drop``.
    ``weight`` is the column that says what each row counts. Columns ``as_text`` keep what is
    written, and so does the target. Features that were ``left_out`` of a model may be missing.
    """
    polars = require("polars", extra="table", why="Reading a table")
    asked = [target] if isinstance(target, str) else list(target or ())
    kept = [*as_text, *asked]
    table, said = _read(path, polars, written or Written(), kept)
    targets = _listed(asked, table.columns)
    drop = _listed(drop, table.columns)
    named = [] if weight is None else [weight]
    used = {*targets, *named}
    _require_columns(table, targets, "The target must be a column of the table", path, drop)
    _require_columns(table, named, "The weight must be a column of the table", path, targets)
    _require_columns(table, drop, "A column to drop must be in the table", path, used)
    both = [name for name in drop if name in used]
    if both:
        raise DataError(
            f"A column cannot be used and left out. {both[0]!r} is a target or a weight, and "
            "--drop names it. Leave it out of one of them."
        )
    taken = {*used, *drop}
    names = [name for name in table.columns if name not in taken]
    if features is not None:
        names = list(features)
        absent = [name for name in left_out if name not in table.columns]
        table = table.with_columns(polars.lit(None).alias(name) for name in absent)
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
    y = _labels(table[targets[0]], path, polars) if len(targets) == 1 else None
    if len(targets) > 1:
        _require_numbers(table, targets, "Several targets must be numbers", path, polars)
        y = table.select(targets).cast({polars.Boolean: polars.UInt8}).to_numpy()
    _require_numbers(table, named, "Weights must be numbers", path, polars)
    weights = table[weight].cast(polars.Float64).to_numpy() if named else None
    return Dataset(
        str(path), table.select(names), y, weight=weights, targets=tuple(targets), said=tuple(said)
    )


def _labels(column: Any, path: Path, polars: Any) -> Any:
    """Targets as numpy has them: numbers, or text as it is written, so that 01 is not 1."""
    if column.dtype != polars.String:
        return column.to_numpy()
    texts = column.unique().to_list()
    if {text.strip().lower() for text in texts} == {"true", "false"}:
        return (column.str.strip_chars().str.to_lowercase() == "true").to_numpy()
    known = [text for text in texts if not is_gap(text)]
    numbers = bool(known) and all(NUMBER.fullmatch(text.strip()) for text in known)
    if numbers and len(known) < len(texts):
        row = next(row for row, text in enumerate(column.to_list()) if is_gap(text))
        raise DataError(
            f"Every row needs a target. Column {column.name!r} of {path} holds {column[row]!r} in "
            f"row {row + 1}, among numbers. Fill it or drop the row."
        )
    if numbers:
        found = column.str.strip_chars().cast(polars.Float64)
        whole = (found == found.round()).all() and (found.abs() < 2**53).all()
        return (found.cast(polars.Int64) if whole else found).to_numpy()
    return column.to_numpy()


def _require_numbers(table: Any, names: Sequence[str], rule: str, path: Path, polars: Any) -> None:
    for name in names:
        kind = table[name].dtype
        if not (kind.is_numeric() or kind == polars.Boolean):
            raise DataError(
                f"{rule}. Column {name!r} of {path} holds {kind} values such as "
                f"{_first_text(table[name], polars)!r}. Encode it as numbers."
            )


def _read(
    path: Path, polars: Any, written: Written, as_text: Sequence[str]
) -> tuple[Any, list[str]]:
    name = path.name.lower()
    if str(path) == STDIN:
        return read_text_table(sys.stdin.buffer.read(), "stdin", polars, written, as_text)
    if not name.endswith((*TEXT, *PARQUET)):
        raise DataError(
            f"A table must be a .csv or .parquet file, or one of {', '.join(TEXT[1:])}. Got "
            f"{path.name}. Convert or rename it."
        )
    try:
        if name.endswith(TEXT):
            return read_text_table(path.read_bytes(), str(path), polars, written, as_text)
        return polars.read_parquet(path), []
    except (polars.exceptions.PolarsError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
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


def _require_columns(
    table: Any, names: Sequence[str], rule: str, path: Path, taken: Sequence[str] | set[str] = ()
) -> None:
    missing = [name for name in names if name not in table.columns]
    if not missing:
        return
    free = [name for name in table.columns if name not in taken]
    few = ", ".join(map(repr, table.columns[:8])) + (", ..." if len(table.columns) > 8 else "")
    raise DataError(f"{rule}. {path} has no {missing[0]!r}; it has {few}. {hint(missing[0], free)}")


def _first_text(column: Any, polars: Any) -> Any:
    """The first value of a column that is not a number."""
    if column.dtype == polars.String:
        numbers = column.cast(polars.Float64, strict=False)
        column = column.filter(numbers.is_null() & column.is_not_null())
    return next(iter(column.drop_nulls().head(1)), None)
