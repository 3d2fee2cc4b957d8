"""Rows, targets and weights as a user gives them, checked and made one source of rows."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_array, check_consistent_length, check_X_y
from sklearn.utils.validation import _check_sample_weight, _check_y, _get_feature_names

from protopinv.errors import ColumnsWarning, ConfigError, DataError, ProtoPINVError
from protopinv.features import map_side
from protopinv.model import Model, torch_ready
from protopinv.model.fitting import require_some
from protopinv.rows import ArrayRows, MemoryRows, RowSource, SparseRows, exact_numbers
from protopinv.rows.source import IN_MEMORY_BYTES
from protopinv.tables import frame_columns, hint, is_frame
from protopinv.tables.rows import columns_of
from protopinv.train.config import TrainConfig
from protopinv.train.machine import expected
from protopinv.train.targets import few


def row_source(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    model: Model | None = None,
    columns: Mapping[str, str] | None = None,
    is_image: bool = False,
) -> RowSource:
    """One source of the rows, whatever X is; with a ``model`` its columns are matched by name.

    ``columns`` says what some columns of a frame are. Images are rows of numbers.
    """
    source = _given_source(X, y, sample_weight, columns)
    if source is None:
        if columns and not is_frame(X):
            raise ConfigError(
                "columns says what columns of a frame are. X is an array, without names. Got "
                f"columns={dict(columns)!r:.60}. Give a frame, or leave it out."
            )
        return _in_memory(estimator, X, y, sample_weight, model, is_image=is_image)
    if model is not None and source.names is not None and model.feature_names is not None:
        names = _names_of(source.names, model)
        source = source.with_columns(names, framed=model.table is not None)
    if expected() > 1 or not source.fits_in_memory():
        return source
    rows, targets, weight = source.load()
    in_memory = _in_memory(estimator, rows, targets, weight, None, is_image=is_image)
    in_memory.names, in_memory.is_named = source.names, True
    in_memory.target_names = source.target_names
    if model is not None:
        _require_width(estimator, in_memory.n_features, model)
    return in_memory


def _given_source(
    X: Any, y: Any, sample_weight: Any, columns: Mapping[str, str] | None
) -> RowSource | None:
    """A source, where X is one or should be read as one; None for arrays and frames."""
    if isinstance(X, RowSource):
        if y is not None or sample_weight is not None:
            raise DataError(
                "A source of rows brings its targets and weights along. y or sample_weight were "
                "passed too. Leave them out, or name their columns in open_rows."
            )
        return X.with_columns(X.names, framed=True) if columns and X.names else X
    if y is None:
        return None
    if isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > IN_MEMORY_BYTES:
        return ArrayRows(X, y, sample_weight)
    if issparse(X) and X.ndim == 2 and X.shape[0]:
        return SparseRows(X, y, sample_weight)
    return None


def _names_of(there: Sequence[str], model: Model) -> tuple[str, ...]:
    """The columns of a model that are there, in its order; it may lack those it leaves out.

    Raises DataError for a column that is missing, and warns of further ones, but of targets.
    """
    names, left_out = model.feature_names or (), set()
    if model.table is not None:
        left_out = {column.name for column in model.table.left_out}
    missing = [name for name in names if name not in there and name not in left_out]
    if missing:
        raise DataError(
            f"Every feature of the model must be a column. There is no {missing[0]!r}; there are "
            f"{few(list(there))}. {hint(missing[0], list(there))}"
        )
    expected_names = {*names, *(model.target_names or ())}
    further = [name for name in there if name not in expected_names]
    if further:
        warnings.warn(
            ColumnsWarning(
                f"Rows should have the columns of the fit, and no others. They have "
                f"{few(further)} too. Went on without."
            ),
            stacklevel=5,
        )
    return tuple(name for name in names if name in there)


def _in_memory(
    estimator: Any, X: Any, y: Any, sample_weight: Any, model: Model | None, *, is_image: bool
) -> MemoryRows:
    """Rows in memory, checked; those of weight zero are left out, so that nothing sees them."""
    target_names, y = _target_names(y), exact_targets(y)
    with data_errors():
        if y is None:
            raise DataError(
                f"This {type(estimator).__name__} estimator requires y to be passed, but the "
                "target y is None."
            )
        X, names = matched_columns(estimator, X, model)
        framed = (is_frame(X) and not is_image) or (model is not None and model.table is not None)
        several = target_columns(y) > 1
        if framed:
            X = X if is_frame(X) else np.asarray(X)
            _require_rows(X.shape)
            y = _check_y(y, multi_output=several, y_numeric=False, estimator=estimator)
            check_consistent_length(X, y)
        else:
            X, y = check_X_y(
                X, y, dtype="numeric", multi_output=several, y_numeric=False, estimator=estimator
            )
            X = torch_ready(X)
        if model is not None and not is_frame(X):
            _require_width(estimator, X.shape[1], model)
        weight = None if sample_weight is None else checked_weight(sample_weight, X)
    if weight is not None and not weight.all():
        counts = np.flatnonzero(weight)
        X, y, weight = _safe_indexing(X, counts), y[counts], weight[counts]
    rows = MemoryRows(X, y, weight, names=names, target_names=target_names, is_framed=framed)
    if is_frame(X):
        rows.is_named = names is not None
        rows.names = names or tuple(frame_columns(X))
    return rows


def matched_columns(
    estimator: Any, X: Any, model: Model | None
) -> tuple[Any, tuple[str, ...] | None]:
    """X with the columns of a model in their order, and the names of the columns.

    By name where both have names; columns that the model does not know are ignored with a warning.
    """
    names = _get_feature_names(X)
    names = None if names is None else tuple(map(str, names))
    if model is None:
        return X, names
    if names is not None and model.feature_names is not None:
        if names != model.feature_names:
            frame_columns(X)  # raises for a name that is there twice
            X = nw.from_native(X).select(*_names_of(names, model)).to_native()
        return X, model.feature_names
    if (names is None) != (model.feature_names is None):
        has, was = ("has", "without") if names is not None else ("does not have valid", "with")
        warnings.warn(
            f"X {has} feature names, but {type(estimator).__name__} was fitted {was} feature names",
            UserWarning,
            stacklevel=4,
        )
    return X, model.feature_names


def _require_width(estimator: Any, n: int, model: Model) -> None:
    if n != model.n_columns:
        raise DataError(
            f"X has {n} features, but {type(estimator).__name__} is expecting {model.n_columns} "
            "features as input."
        )


def rows_to_predict(estimator: Any, X: Any, model: Model) -> Any:
    """Rows as ``Model.outputs`` takes them: numbers, or the codes of a frame's columns."""
    X = flat_images(X)
    if _is_clearly_valid(X, model):
        return X
    with data_errors():
        X, _ = matched_columns(estimator, X, model)
        if model.table is None:
            X = check_array(X, dtype="numeric", accept_sparse="csr", estimator=estimator)
            _require_width(estimator, X.shape[1], model)
            return X
        X = X if is_frame(X) else np.asarray(X)
        _require_rows(X.shape)
        if not is_frame(X):
            _require_width(estimator, X.shape[1], model)
        return model.table.codes(columns_of(X, model.table.names), warn=True)


def _is_clearly_valid(X: Any, model: Model) -> bool:
    """Whether scikit-learn's checks, which cost more than a prediction, can be left out.

    A plain array of finite numbers, as wide as those in ``fit``, which had no names.
    """
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float32, np.float64, np.uint8)
        and X.ndim == 2
        and X.shape[1] == model.n_columns
        and len(X) > 0
        and model.feature_names is None
        and model.table is None
        and (X.dtype == np.uint8 or bool(np.isfinite(X).all()))
    )


def _require_rows(shape: tuple[int, ...]) -> None:
    if shape[0] == 0:
        raise DataError(
            "There must be at least one row. Found array with 0 sample(s) "
            f"(shape={shape}) while a minimum of 1 is required. Check how rows were chosen."
        )


def _target_names(y: Any) -> tuple[str, ...] | None:
    """Names of the targets, by the type of y."""
    names = getattr(y, "columns", None)
    names = [getattr(y, "name", None)] if names is None else list(names)
    # polars calls a series without a name ""
    return tuple(names) if all(isinstance(name, str) and name for name in names) else None


def target_columns(y: Any) -> int:
    """Columns of a matrix; 1 for anything else."""
    shape = np.asarray(y).shape
    return shape[1] if len(shape) == 2 else 1


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


@contextmanager
def data_errors() -> Iterator[None]:
    """Scikit-learn's complaints about rows and targets as errors of ours, in the same words."""
    try:
        yield
    except ProtoPINVError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


def flat_images(X: Any) -> Any:
    """Images of three or four dimensions as rows; anything else as it came."""
    return X.reshape(len(X), -1) if getattr(X, "ndim", 2) in (3, 4) else X


def with_image_shape(config: TrainConfig, X: Any) -> tuple[TrainConfig, Any]:
    """The configuration with the shape of images, set or taken from X, and X as flat rows."""
    shape = config.image_shape
    if getattr(X, "ndim", 2) in (3, 4):
        shape = tuple(X.shape[1:])
    if shape is None and not config.takes_images:
        return config, X
    if shape is None:
        raise ConfigError(
            "A stem and copies of images need their shape. X has flat rows and image_shape is "
            "None. Give X as (n, height, width) or (n, height, width, channels), or set "
            "image_shape=(28, 28)."
        )
    config, X = replace(config, image_shape=shape), flat_images(X)
    n_features = X.n_features if isinstance(X, RowSource) else (np.shape(X) or (0,))[-1]
    if isinstance(X, RowSource) or np.ndim(X) == 2:
        _check_images(config, n_features)
    return config, X


def _check_images(config: TrainConfig, n_features: int) -> None:
    height, width, *_ = shape = tuple(config.image_shape or ())
    if n_features != math.prod(shape):
        raise DataError(
            f"Rows must be images of the shape that is set. image_shape={shape} has "
            f"{math.prod(shape)} numbers, X has rows of {n_features}. Correct image_shape."
        )
    if config.stem in ("none", "auto"):
        return
    left = map_side(min(height, width), config.stem_patch, len(config.filters))
    if left < config.stem_pool:
        raise ConfigError(
            f"The maps of a stem must have at least as many pixels on a side as its pool. Images "
            f"of {height} x {width} leave {max(left, 0)} for pool={config.stem_pool}. Lower patch "
            "or pool of the stem, or use fewer stages."
        )
