"""A table in a file, all of its rows: features as they are, targets and weights checked."""

from collections.abc import Sequence
from pathlib import Path

from protopinv.data.dataset import Dataset
from protopinv.rows import ArrowRows
from protopinv.rows.files import STDIN
from protopinv.rows.text import Written


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
    task: str = "auto",
) -> Dataset:
    """All rows of a table: ``features`` (by default all columns not named here) and the target.

    Several targets are a list, or a name that is no column, with commas; so are names in ``drop``.
    ``weight`` is the column that says what each row counts. Columns ``as_text`` keep what is
    written. Features that were ``left_out`` of a model may be missing. A target of numbers in which
    a few rows hold something else is refused, unless the ``task`` is classification.
    """
    asked = [target] if isinstance(target, str) else list(target or ())
    rows = ArrowRows(
        [path],
        asked,
        features=features,
        left_out=left_out,
        drop=drop,
        weight=weight,
        as_text=as_text,
        written=written,
        root=None if path == STDIN else path.parent,
    )
    if task != "classification":
        rows.require_plain_targets()
    X, y, weights = rows.with_columns(rows.names or (), framed=True).load()
    targets = rows.target_names or ()
    return Dataset(
        str(path), X, y if targets else None, weight=weights, targets=targets, said=rows.said
    )
