"""Contestants on frames as they come: each gets text, dates and gaps in the form it takes.

Boosters get categories as such. Networks of others and the linear model take no gaps, so they get
medians with a flag; the linear model gets a column for each common value. Ours take the frame.
What a column holds is learned from the rows of training.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.tables.contestants import OURS, build
from benchmarks.tables.suite import Task

# Categories of a column that HistGradientBoosting takes; rarer ones count as gaps.
MOST_OF_HIST = 255
# Values with fewer rows share a column of the linear model.
LEAST_ROWS = 10
GAP = "missing"


class NativeColumns(TransformerMixin, BaseEstimator):
    """Columns of numbers as floats, all others as pandas categories, under plain names.

    Values that were not there in training count as gaps. With ``text`` columns of words stay text,
    with ``gap`` a gap is a value of this name, and ``most`` keeps the commonest categories only.
    """

    def __init__(self, *, text: bool = False, gap: str | None = None, most: int | None = None):
        self.text = text
        self.gap = gap
        self.most = most

    def fit(self, X: Any, y: Any = None) -> "NativeColumns":  # noqa: ARG002
        """Learn the values of every category."""
        self.values_ = {name: self._values(X[name]) for name in categories_of(X)}
        return self

    def transform(self, X: Any) -> Any:
        """A frame of floats and categories."""
        columns = [
            self._category(X[name], self.values_[name])
            if name in self.values_
            else _numbers(X[name])
            for name in X.columns
        ]
        return pd.DataFrame(dict(zip(plain_names(X), columns, strict=True)), index=X.index)

    def _values(self, column: Any) -> Any:
        counts = self._texts(column).value_counts()
        return sorted(counts.index[: self.most])

    def _category(self, column: Any, values: Sequence[str]) -> Any:
        texts = self._texts(column)
        if self.text:
            return texts
        return pd.Categorical(texts.where(texts.isin(values)), categories=values)

    def _texts(self, column: Any) -> Any:
        texts = column.astype(object).map(str, na_action="ignore")
        return texts.where(column.notna(), self.gap)


def categories_of(X: Any) -> list[str]:
    """Names of the columns that hold neither numbers nor dates."""
    return [name for name in X.columns if not _is_number(X[name]) and not _is_time(X[name])]


def plain_names(X: Any) -> list[str]:
    """Names without signs that a library cannot read."""
    return [f"column_{number}" for number in range(X.shape[1])]


def _is_number(column: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _is_time(column: Any) -> bool:
    return bool(
        pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column)
    )


def _numbers(column: Any) -> Any:
    """Floats with nan for gaps; dates and durations are days."""
    if pd.api.types.is_timedelta64_dtype(column):
        return column / pd.Timedelta(days=1)
    if _is_time(column):
        naive = column.dt.tz_convert(None) if column.dt.tz is not None else column
        return (naive - pd.Timestamp(0)) / pd.Timedelta(days=1)
    return column.to_numpy(dtype=float, na_value=math.nan)


def build_native(who: str, X: Any, task: Task, seed: int) -> Any:
    """A contestant with its default settings that is fitted on the frame as it is."""
    model = build(who, task, several=False, seed=seed)
    return model if who in OURS else FORMS[who](model, X)


def _boosted(model: Any, X: Any) -> Any:  # noqa: ARG001
    return make_pipeline(NativeColumns(), model)


def _catboost(model: Any, X: Any) -> Any:
    """Its categories are named before, may be text, and have no gaps."""
    names = dict(zip(X.columns, plain_names(X), strict=True))
    model.set_params(cat_features=[names[name] for name in categories_of(X)])
    return make_pipeline(NativeColumns(text=True, gap=GAP), model)


def _xgboost(model: Any, X: Any) -> Any:
    return _boosted(model.set_params(enable_categorical=True), X)


def _hist(model: Any, X: Any) -> Any:  # noqa: ARG001
    model.set_params(categorical_features="from_dtype")
    return make_pipeline(NativeColumns(most=MOST_OF_HIST), model)


def _network(model: Any, X: Any) -> Any:  # noqa: ARG001
    """It knows categories by their type; columns of numbers must have no gaps."""
    full = make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True), _NUMBERS),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    return make_pipeline(NativeColumns(gap=GAP), full, model)


def _linear(model: Any, X: Any) -> Any:  # noqa: ARG001
    numbers = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
        StandardScaler(),
    )
    texts = OneHotEncoder(min_frequency=LEAST_ROWS, handle_unknown="infrequent_if_exist")
    columns = make_column_transformer((numbers, _NUMBERS), (texts, _TEXTS))
    return make_pipeline(NativeColumns(text=True, gap=GAP), columns, model[-1])


_NUMBERS = make_column_selector(dtype_include="number")
_TEXTS = make_column_selector(dtype_exclude="number")
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "catboost": _catboost,
    "lightgbm": _boosted,
    "xgboost": _xgboost,
    "hist-gradient": _hist,
    "realmlp": _network,
    "tabm": _network,
    "linear": _linear,
}
FRAME_CONTESTANTS = (*OURS, *FORMS)
