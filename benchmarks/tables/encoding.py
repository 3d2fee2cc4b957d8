"""Columns of any kind as numbers, without a look at the target."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Text with more values than this names rows rather than kinds of rows; it is left out.
MOST_VALUES = 60
# Columns with fewer known values than this share are left out.
KNOWN = 0.5


def encode(columns: Sequence[Sequence[Any]]) -> NDArray[np.float64]:
    """Numbers as they are; text as one column of 0 and 1 a value, or one in all for two values."""
    parts = []
    for column in columns:
        try:
            parts.append(np.array(column, dtype=np.float64)[:, None])
        except ValueError:
            parts.append(_one_hot(column))
    return np.hstack(parts)


def labels(target: Iterable[Any]) -> NDArray[np.int64]:
    """Classes as 0, 1, ..."""
    return np.unique([str(value) for value in target], return_inverse=True)[1].astype(np.int64)


def encode_frame(frame: Any) -> NDArray[np.float64]:
    """The same for a pandas table with gaps: numbers get the median, text a value of its own.

    Columns that are mostly unknown, or text that names its rows, are left out.
    """
    columns: list[Sequence[Any]] = []
    for name in frame.columns:
        column = frame[name]
        if column.notna().mean() < KNOWN:
            continue
        kind = column.dtype.kind if hasattr(column.dtype, "kind") else "O"
        if kind in "iufb":
            numbers = column.astype(float)
            columns.append(numbers.fillna(numbers.median()).to_numpy())
        elif kind != "M":
            text = [f"is {value}" for value in column.astype(object).where(column.notna(), "?")]
            if len(set(text)) <= MOST_VALUES:
                columns.append(text)
    return encode(columns)


def _one_hot(column: Sequence[Any]) -> NDArray[np.float64]:
    text = np.array([str(value) for value in column])
    values = np.unique(text)
    columns = values[1:] if len(values) == 2 else values
    return np.asarray(text[:, None] == columns, dtype=np.float64)
