"""Targets and weights that a user passes: checked, exact, and numbers where text holds these."""

import math
import warnings
from collections import Counter
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight

from protopinv.errors import DataError, TextTargetsWarning
from protopinv.fitting import require_some
from protopinv.rows import exact_numbers
from protopinv.tables.values import is_nothing
from protopinv.train.targets import few
from protopinv.words import NEARLY_ALL, PLAIN, best_form, form_counts, number_of, said_of


def checked_weight(sample_weight: Any, X: Any) -> NDArray[np.float64]:
    """What each row counts; raises DataError for what cannot be."""
    weight: NDArray[np.float64] = _check_sample_weight(sample_weight, X, dtype=np.float64)
    if (weight < 0).any():
        row = int(np.flatnonzero(weight < 0)[0])
        raise DataError(
            f"Weights of rows must be 0 or more. Row {row} has {weight[row]:g}. Correct it."
        )
    require_some(weight)
    with np.errstate(over="ignore"):
        total = weight.sum()
    if not np.isfinite(total):
        raise DataError(
            "Weights of rows must add up to a finite number. They are as large as "
            f"{weight.max():g}. Divide all by the largest."
        )
    return weight


def require_targets(y: Any) -> None:
    """Raise DataError for targets that are missing, with the first rows that lack one."""
    values = np.asarray(y)
    if values.dtype.kind == "f":
        gaps = np.isnan(values)
    elif values.dtype.kind == "O":
        gaps = np.array([is_nothing(value) for value in values.ravel()]).reshape(values.shape)
    else:
        return
    rows = np.flatnonzero(gaps.reshape(len(values), -1).any(axis=1)).tolist()
    if rows:
        raise DataError(
            f"Every row needs a target. Input y contains NaN in {len(rows)} of {len(values)} rows "
            f"(counted from 0: {few(rows)}). Fill them in or leave these rows out."
        )


def exact_targets(y: Any) -> Any:
    """Targets as they came, but whole numbers that would become floats on their way to numpy."""
    if isinstance(y, list | tuple) and y and all(type(label) is int for label in y):
        return exact_numbers(y)
    if hasattr(y, "iloc") and getattr(y, "ndim", 0) == 1:
        column = nw.from_native(y, series_only=True)
        if column.dtype.is_integer() and not column.is_null().any():
            kind = np.uint64 if column.dtype.is_unsigned_integer() else np.int64
            return y.to_numpy(dtype=kind) if str(y.dtype) != np.dtype(kind).name else y
    return y


def written_numbers(y: NDArray[Any]) -> NDArray[Any]:
    """Targets of text as numbers, in the form that reads them, with a warning; others as they are.

    Raises DataError for a target that this form does not read.
    """
    if y.dtype.kind not in "OTU" or not all(isinstance(text, str) for text in y.flat):
        return y
    columns = []
    for texts in y.reshape(len(y), -1).T.tolist():
        column = _read_as_numbers(texts)
        if column is None:
            return y
        columns.append(column)
    return np.stack(columns, axis=1).reshape(y.shape)


def _read_as_numbers(texts: list[str]) -> list[float] | None:
    """Some text as numbers; None where it is none, and where plain numbers are."""
    counts = form_counts(Counter(texts))
    form = best_form(counts)
    if form == PLAIN or counts[form] < NEARLY_ALL * len(texts):
        return None
    numbers = [number_of(text, form) for text in texts]
    bad = [row for row, number in enumerate(numbers) if math.isnan(number)]
    if bad:
        raise DataError(
            f"Targets must be numbers in one form. Nearly all are written as {form}. y holds "
            f"{texts[bad[0]]!r:.40} in row {bad[0]}. Correct it or leave the row out."
        )
    said = f"The target is a number{said_of(form)}; predictions are such numbers."
    warnings.warn(TextTargetsWarning(said), stacklevel=5)
    return numbers


def plain_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Labels as booleans, numbers or strings, the kinds that can be sorted, saved and compared."""
    if y.dtype.kind in "OT":
        kinds = {type(label) for label in y.tolist()}
        if kinds == {str}:
            return y.astype(object)
        if kinds and kinds <= {bool, int, float}:
            return exact_numbers(y.tolist())
        came = ", ".join(sorted(kind.__name__ for kind in kinds))
    elif y.dtype.kind in "biufU":
        return y
    else:
        came = str(y.dtype)
    raise DataError(
        f"Labels must all be booleans, numbers or strings. Got {came}. Convert them, for example "
        "with y.astype(str)."
    )
