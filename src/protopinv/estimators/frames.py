"""Frames at the doors of the estimators: what their columns are, and rows for the network."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.validation import validate_data

from protopinv.errors import ConfigError, DataError
from protopinv.estimators.checks import exact_targets
from protopinv.estimators.door import (
    Checked,
    checked_weight,
    data_errors,
    target_columns,
)
from protopinv.objective import Classes, Objective
from protopinv.rows.source import keys_of
from protopinv.tables import (
    FOLDS,
    Gathered,
    Table,
    array_columns,
    frame_columns,
    grown,
    is_frame,
    understood,
    with_averages,
)
from protopinv.tables.values import shown


def checked_frame(
    estimator: BaseEstimator,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    known: Table | None,
    wanted: Mapping[str, str] | None = None,
    grows: bool = False,
) -> Checked:
    """A frame with its targets, each column coded; ``known`` is a table that is to be kept.

    If it ``grows``, values it has never seen are added to it, and X may be an array.
    """
    scratch, y = copy.copy(estimator), exact_targets(y)
    with data_errors():
        # a table that is kept needs the columns it was made of
        validate_data(scratch, X, reset=known is None, skip_check_array=True)
        _require_rows(X.shape)
        weight = None if sample_weight is None else checked_weight(sample_weight, X)
        if weight is not None and not weight.all():
            check_consistent_length(X, y)
            present = np.flatnonzero(weight)
            X, y, weight = _safe_indexing(X, present), np.asarray(y)[present], weight[present]
        columns = frame_columns(X) if known is None else _columns(X, known)
        table = understood([columns], list(columns), wanted) if known is None else known
        table = grown(table, columns) if grows else table
        codes, y = validate_data(
            copy.copy(estimator),
            table.codes(columns, warn=grows),
            y,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            multi_output=target_columns(y) > 1,
            y_numeric=False,
        )
    learned = {
        name: value
        for name, value in vars(scratch).items()
        if name in ("n_features_in_", "feature_names_in_")
    }
    return Checked(codes, y, weight, learned, table)


def refuse_columns(wanted: Mapping[str, str] | None) -> None:
    """Raise ConfigError: an array has no names."""
    if wanted:
        raise ConfigError(
            f"columns says what columns of a frame are. X is an array, without names. Got "
            f"columns={dict(wanted)!r:.60}. Give a frame, or leave it out."
        )


def encoded(checked: Checked, objective: Objective, *, is_known: bool) -> Checked:
    """Rows for the network, and the table with what is known of the targets."""
    table = checked.table
    if table is None:
        return checked
    if is_known:
        return replace(checked, X=table.features(checked.X))
    names, fold = averaged_names(objective), _folds(len(checked.X))
    gathered = Gathered.empty(table, len(checked.X), len(names))
    if gathered.found:
        gathered.add(checked.X, averaged(objective, checked.y), checked.weight, fold)
    table = gathered.finished(names)
    return replace(checked, X=gathered.rows(table, checked.X, fold), table=table)


def encoded_more(checked: Checked, objective: Objective, known: Table) -> Checked:
    """The same for a table that may have grown from a ``known`` one: averages of new values."""
    if checked.table is None or checked.table is known:
        return encoded(checked, objective, is_known=True)
    targets, fold = _by_name(objective, checked.y), _folds(len(checked.X))
    table, rows = with_averages(known, checked.table, checked.X, targets, checked.weight, fold)
    return replace(checked, X=rows, table=table)


def _by_name(objective: Objective, y: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Numbers to average, of all classes, by what they may be called in a table."""
    found = np.asarray(objective.encode(y))
    if not isinstance(objective, Classes):
        columns = found.reshape(len(found), -1).T.astype(np.float64)
        return dict(zip(averaged_names(objective), columns, strict=True))
    labels = objective.labels.tolist()
    columns = np.eye(len(labels))[found].T
    # labels that are whole may have been integers when the table was made
    whole = map(shown, labels) if objective.labels.dtype.kind == "f" else map(str, labels)
    return dict(zip([*map(str, labels), *whole], [*columns, *columns], strict=True))


def _folds(n: int) -> NDArray[np.int64]:
    """Of the rows of an array."""
    return (keys_of(0, "table", np.arange(n)) % np.uint64(FOLDS)).astype(np.int64)


def averaged(objective: Objective, y: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers to average: a class is there or not, and of two classes one is enough."""
    found = np.asarray(objective.encode(y))
    if isinstance(objective, Classes):
        one_hot: NDArray[np.float64] = np.eye(objective.n_outputs)[found]
        return one_hot[:, 1:] if objective.n_outputs == 2 else one_hot
    return found.reshape(len(found), -1).astype(np.float64)


def averaged_names(objective: Objective) -> list[str]:
    """What these are called."""
    if isinstance(objective, Classes):
        labels = list(map(str, objective.labels.tolist()))
        return labels[1:] if len(labels) == 2 else labels
    return [f"target {number}" for number in range(1, objective.n_outputs + 1)]


def rows_of(estimator: Any, table: Table, X: Any) -> NDArray[np.float64]:
    """Codes of rows to predict: a frame, or an array whose columns are in the order of training."""
    with data_errors():
        validate_data(estimator, X, reset=False, skip_check_array=True)
        X = X if is_frame(X) else np.asarray(X)
        _require_rows(X.shape)
        return table.codes(_columns(X, table), warn=True)


def _columns(X: Any, table: Table) -> dict[str, Any]:
    """By their names, which an array has from the table."""
    return frame_columns(X) if is_frame(X) else array_columns(X, table.names)


def _require_rows(shape: tuple[int, ...]) -> None:
    if shape[0] == 0:
        raise DataError(
            "There must be at least one row. Found array with 0 sample(s) "
            f"(shape={shape}) while a minimum of 1 is required. Check how rows were chosen."
        )
