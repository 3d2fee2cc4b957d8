"""What a user passes as rows, targets and weights: checked, and made one source of rows.

Columns of a fitted model are matched by name: rows may have them in any order, further ones are
ignored with a warning, and a missing one is an error.
"""

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, check_array, check_consistent_length
from sklearn.utils.validation import _check_y, _get_feature_names

from protopinv.errors import (
    ColumnsWarning,
    ConfigError,
    DataError,
    GapsWarning,
    ProtoPINVError,
)
from protopinv.estimators.targets import checked_weight, exact_targets, require_targets
from protopinv.features import map_side
from protopinv.model import Model
from protopinv.rows import (
    ArrayRows,
    Block,
    DerivedRows,
    MemoryRows,
    Piece,
    RowSource,
    frame_columns,
    is_frame,
)
from protopinv.rows.source import IN_MEMORY_BYTES
from protopinv.tables.rows import columns_of
from protopinv.train.config import TrainConfig
from protopinv.train.machine import expected
from protopinv.train.rows import torch_ready
from protopinv.train.targets import few
from protopinv.words import hint


@contextmanager
def data_errors() -> Iterator[None]:
    """Scikit-learn's complaints about rows and targets as errors of ours, in the same words."""
    try:
        yield
    except ProtoPINVError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from error


@data_errors()
def row_source(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    model: Model | None = None,
    is_image: bool = False,
) -> RowSource:
    """One source of the rows, whatever X is, with the columns of a ``model`` in their order.

    Rows that fit in memory are checked here, others while they are read. Images are rows of
    numbers, also in a frame.
    """
    source, allow_gaps = _source_of(estimator, X, y, sample_weight), not is_image
    names, target_names = _names_of(X), _target_names(y)
    if source is not None:
        names, target_names = source.names, source.target_names
    columns = estimator.columns if model is None else None
    if columns and names is None and not is_frame(X):
        raise ConfigError(
            "columns says what columns of a frame are. X is an array, without names. Got "
            f"columns={columns!r:.60}. Give a frame, or leave it out."
        )
    used = names if model is None else _matched(estimator, names, model)
    if source is None:
        X = _selected(X, used, model)
    else:
        if used is not None and (columns or model is not None):
            source = source.with_columns(used, framed=model is None or model.table is not None)
        if model is not None and used is None:
            _require_width(estimator, source.n_features, model)
        if expected() > 1 or not source.fits_in_memory():
            return _gaps_seen_to(source, model) if allow_gaps else source
        X, y, sample_weight = source.load()
    is_framed = is_frame(X) and not is_image if model is None else model.table is not None
    X = _checked_rows(estimator, X, is_framed=is_framed, allow_gaps=allow_gaps)
    if not is_framed and has_gaps(X):
        # an array with gaps is understood as a frame is
        is_framed, X = model is None, X if model is None else with_middles(X, model)
    rows = _in_memory(estimator, X, y, sample_weight, is_framed=is_framed)
    if model is not None and used is None:
        _require_width(estimator, rows.n_features, model)
    names = names if model is None else model.feature_names
    rows.names = _columns_named(X) if names is None and is_framed else names
    rows.is_named, rows.target_names = names is not None, target_names
    return rows


def _source_of(estimator: Any, X: Any, y: Any, sample_weight: Any) -> RowSource | None:
    """A source, where X is one or is read as one; None for arrays and frames."""
    if isinstance(X, RowSource):
        if y is not None or sample_weight is not None:
            raise DataError(
                "A source of rows brings its targets and weights along. y or sample_weight were "
                "passed too. Leave them out, or name their columns in open_rows."
            )
        return X
    if y is None:
        raise DataError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y "
            "is None."
        )
    is_large = isinstance(X, np.memmap) and X.ndim == 2 and X.nbytes > IN_MEMORY_BYTES
    is_sparse = issparse(X) and X.ndim == 2 and X.shape[0]
    return ArrayRows(X, y, sample_weight) if is_large or is_sparse else None


def _in_memory(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, is_framed: bool
) -> MemoryRows:
    """Rows that were checked, in memory; nothing sees those of weight zero, which are left out."""
    y = exact_targets(y)
    require_targets(y)
    shape = np.asarray(y).shape
    several = len(shape) == 2 and shape[1] > 1
    y = _check_y(y, multi_output=several, y_numeric=False, estimator=estimator)
    check_consistent_length(X, y)
    weight = None if sample_weight is None else checked_weight(sample_weight, X)
    if weight is not None and not weight.all():
        counts = np.flatnonzero(weight)
        X, y, weight = _safe_indexing(X, counts), y[counts], weight[counts]
    return MemoryRows(X, y, weight, is_framed=is_framed)


def rows_to_predict(estimator: Any, X: Any, model: Model) -> Any:
    """Rows as ``Model.outputs`` takes them: numbers, or the codes of a frame's columns."""
    X = flat_images(X)
    if _is_clearly_valid(X, model):
        return X
    with data_errors():
        used = _matched(estimator, _names_of(X), model)
        X, table = _selected(X, used, model), model.table
        X = _checked_rows(
            estimator,
            X,
            is_framed=table is not None,
            allow_gaps=model.config.image_shape is None,
            accept_sparse="csr",
        )
        if used is None:
            _require_width(estimator, X.shape[1], model)
        if table is not None:
            return table.codes(columns_of(X, table.names), warn=True)
        return with_middles(X, model) if has_gaps(X) else X


def has_gaps(X: Any) -> bool:
    """Whether an array, or a sparse matrix, of numbers has NaN in it."""
    numbers = X.data if issparse(X) else X
    return bool(numbers.dtype.kind == "f" and np.isnan(numbers).any())


def with_middles(X: Any, model: Model) -> Any:
    """Rows for a model that was fitted without gaps, with the middle of the column in each."""
    X, middle = X.copy(), model.middle
    numbers = X.data if issparse(X) else X
    gaps = np.isnan(numbers)
    columns = X.indices[gaps] if issparse(X) else np.nonzero(gaps)[1]
    numbers[gaps] = middle[columns]
    warnings.warn(
        GapsWarning(
            f"Rows should have gaps only where those of the fit had some. Column "
            f"{int(columns.min()) + 1} and others: {int(gaps.sum())} values are NaN, and the "
            "middle of their column stands in for them. To learn what gaps mean, fit with some."
        ),
        stacklevel=6,
    )
    return X


def _gaps_seen_to(source: RowSource, model: Model | None) -> RowSource:
    """A source that is read in pieces, with gaps in its arrays as rows in memory have them."""
    if not isinstance(source, ArrayRows) or not source.has_gaps():
        return source
    if model is None or model.table is not None:
        framed = copy.copy(source)
        framed.is_framed, framed.is_named = True, source.names is not None
        framed.names = source.names or _columns_named(source.X)
        return framed

    def without(_: Block, piece: Piece, *, features: bool) -> Piece:
        return piece._replace(X=with_middles(piece.X, model)) if features else piece

    return DerivedRows(source, without)


def _columns_named(X: Any) -> tuple[str, ...]:
    """The names of a frame's columns, and numbers for those of an array."""
    if is_frame(X):
        return tuple(frame_columns(X))
    return tuple(f"column {number}" for number in range(1, X.shape[1] + 1))


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


def _checked_rows(
    estimator: Any, X: Any, *, is_framed: bool, allow_gaps: bool, accept_sparse: Any = False
) -> Any:
    """An array of numbers, none infinite; or a frame, or an array, that a table encodes."""
    finite = "allow-nan" if allow_gaps else True
    if not is_framed:
        checked = check_array(
            X,
            dtype="numeric",
            accept_sparse=accept_sparse,
            ensure_all_finite=finite,
            estimator=estimator,
        )
        return torch_ready(checked)
    if not is_frame(X):
        X = X.toarray() if issparse(X) else X
        return check_array(X, dtype=None, ensure_all_finite=finite, estimator=estimator)
    if X.shape[0] == 0:
        raise DataError(
            "There must be at least one row. Found array with 0 sample(s) "
            f"(shape={X.shape}) while a minimum of 1 is required. Check how rows were chosen."
        )
    return X


def _names_of(X: Any) -> tuple[str, ...] | None:
    """Names of the columns; None for arrays, and for frames whose columns have numbers."""
    names = _get_feature_names(X)
    return None if names is None else tuple(map(str, names))


def _matched(estimator: Any, names: tuple[str, ...] | None, model: Model) -> tuple[str, ...] | None:
    """The columns of a model that are there, in its order; None unless both have names.

    Columns that a model leaves out may be missing. Raises DataError for another one that is, and
    warns of further ones, but of targets.
    """
    own = model.feature_names
    if names is None or own is None:
        if names is not None or own is not None:
            has, was = ("does not have valid", "with") if names is None else ("has", "without")
            kind = type(estimator).__name__
            warnings.warn(
                f"X {has} feature names, but {kind} was fitted {was} feature names",
                UserWarning,
                stacklevel=5,
            )
        if names is not None:
            _require_width(estimator, len(names), model)
        return None
    left_out = {column.name for column in model.table.left_out} if model.table else set()
    missing = [name for name in own if name not in names and name not in left_out]
    if missing:
        raise DataError(
            f"Every feature of the model must be a column. There is no {missing[0]!r}; there are "
            f"{few(names)}. {hint(missing[0], names)}"
        )
    further = [name for name in names if name not in {*own, *(model.target_names or ())}]
    if further:
        warnings.warn(
            ColumnsWarning(
                "Rows should have the columns of the fit, and no others. They have "
                f"{few(further)} too. Went on without."
            ),
            stacklevel=5,
        )
    return tuple(name for name in own if name in names)


def _selected(X: Any, names: tuple[str, ...] | None, model: Model | None) -> Any:
    """A frame with these columns, in this order, for a model without a table: that sees to them."""
    if names is None or model is None or model.table is not None or names == _names_of(X):
        return X
    return nw.from_native(X).select(*names).to_native()


def _require_width(estimator: Any, n: int, model: Model) -> None:
    """Raise DataError for rows without names of another width than in the fit."""
    if n != model.n_columns:
        raise DataError(
            f"X has {n} features, but {type(estimator).__name__} is expecting {model.n_columns} "
            "features as input."
        )


def _target_names(y: Any) -> tuple[str, ...] | None:
    """Names of the targets, by the type of y."""
    names = getattr(y, "columns", None)
    names = [getattr(y, "name", None)] if names is None else list(names)
    # polars calls a series without a name ""
    return tuple(names) if all(isinstance(name, str) and name for name in names) else None


def flat_images(X: Any) -> Any:
    """Images of three or four dimensions as rows; anything else as it came."""
    return X.reshape(len(X), -1) if getattr(X, "ndim", 2) in (3, 4) else X


def with_image_shape(config: TrainConfig, X: Any) -> tuple[TrainConfig, Any]:
    """The configuration with the shape of images, set or taken from X, and X as flat rows."""
    shape = tuple(X.shape[1:]) if getattr(X, "ndim", 2) in (3, 4) else config.image_shape
    if shape is None and not config.takes_images:
        return config, X
    if shape is None:
        raise ConfigError(
            "A stem and copies of images need their shape. X has flat rows and image_shape is "
            "None. Give X as (n, height, width) or (n, height, width, channels), or set "
            "image_shape=(28, 28)."
        )
    config, X = replace(config, image_shape=shape), flat_images(X)
    is_source = isinstance(X, RowSource)
    if is_source or np.ndim(X) == 2:
        _check_images(config, X.n_features if is_source else np.shape(X)[1])
    return config, X


def _check_images(config: TrainConfig, n_features: int) -> None:
    """Raise an error unless rows are images of the shape that is set, and large enough."""
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
