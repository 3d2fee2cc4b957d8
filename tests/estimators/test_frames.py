"""Frames at the doors: what was understood stays with the model, wherever it goes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import cross_val_score

import protopinv
from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.errors import ColumnsWarning, ConfigError, DataError, ExportError
from protopinv.tuning import tune

N = 300
QUICK: dict[str, Any] = {"effort": "quick", "max_epochs": 30, "random_state": 0}


def frame(n: int = N) -> pd.DataFrame:
    random = np.random.default_rng(0)
    found = pd.DataFrame(
        {
            "age": random.integers(18, 80, n).astype(float),
            "city": random.choice(["Rome", "Oslo", "Lima"], n).astype(object),
            "member": random.random(n) < 0.5,
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, n), "D"),
            "id": [f"customer {k}" for k in range(n)],
        }
    )
    found.loc[::7, "age"] = np.nan
    found.loc[::11, "city"] = None
    return found


def target(X: pd.DataFrame) -> np.ndarray:
    return np.where((X["city"] == "Rome") | (X["age"] > 60), "yes", "no")


@pytest.fixture(scope="module")
def model() -> ProtoPINVClassifier:
    X = frame()
    return ProtoPINVClassifier(**QUICK).fit(X, target(X))


def test_a_frame_is_learned_as_it_is(model: ProtoPINVClassifier) -> None:
    X = frame()
    assert model.score(X, target(X)) > 0.95
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == list(X.columns)
    assert [column.name for column in model.table_.left_out] == ["id"]


def test_the_same_rows_from_anywhere_get_the_same_answers(model: ProtoPINVClassifier) -> None:
    X = frame()
    wanted = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(pl.from_pandas(X)), wanted)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict_proba(X.to_numpy()), wanted)
    np.testing.assert_allclose(model.predict_proba(X.head(1)), wanted[:1])


def test_a_saved_model_keeps_its_table(model: ProtoPINVClassifier, tmp_path: Path) -> None:
    X = frame()
    model.save(tmp_path / "m.safetensors")
    loaded = protopinv.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert str(loaded.table_) == str(model.table_)
    assert loaded.n_features_in_ == 5
    loaded.set_params(warm_start=True, max_epochs=2).fit(X, target(X))
    assert str(loaded.table_) == str(model.table_)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_smaller_files_keep_it_too(model: ProtoPINVClassifier, tmp_path: Path, dtype: str) -> None:
    X = frame()
    exported = model.export(tmp_path / "m.safetensors", dtype=dtype, X=X, y=target(X))
    assert exported.change["accuracy_after"] >= exported.change["accuracy_before"] - 0.02
    loaded = protopinv.load(tmp_path / "m.safetensors")
    assert (loaded.predict(X) == model.predict(X)).mean() > 0.98


def test_what_takes_numbers_only_says_so(model: ProtoPINVClassifier, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"int8 takes rows of numbers.*Use dtype='float32'"):
        model.export(tmp_path / "m.c", dtype="int8")
    with pytest.raises(ExportError, match="torch module takes numbers"):
        model.to_torch()
    with pytest.raises(ExportError, match="networks take numbers"):
        model.to_sklearn()
    assert not list(tmp_path.iterdir())


def test_a_frame_of_plain_numbers_is_like_an_array(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((120, 3))
    y = X[:, 0] > X[:, 1]
    plain = ProtoPINVClassifier(**QUICK).fit(X, y)
    framed = ProtoPINVClassifier(**QUICK).fit(pd.DataFrame(X, columns=list("abc")), y)
    np.testing.assert_allclose(
        framed.predict_proba(pd.DataFrame(X, columns=list("abc"))), plain.predict_proba(X)
    )
    framed.export(tmp_path / "m.mjs")
    framed.to_torch()


def test_what_a_user_says_of_columns_counts() -> None:
    X = frame()
    said = {"age": "drop", "member": "category", "id": "drop"}
    table = ProtoPINVClassifier(columns=said, **QUICK).fit(X, target(X)).table_
    assert [column.kind for column in table.columns] == ["category", "category", "date"]
    with pytest.raises(ConfigError, match=r"columns of a frame are\. X is an array"):
        ProtoPINVClassifier(columns={"a": "drop"}, **QUICK).fit(np.eye(20), np.arange(20) % 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.drop(columns="age"), r"There is no 'age'; there are 'city', 'member'"),
        (lambda X: X.rename(columns={"age": "Age"}), r"There is no 'age'.* Did you mean 'Age'\?"),
        (lambda X: X.head(0), "at least one row"),
    ],
    ids=["missing", "renamed", "empty"],
)
def test_frames_that_do_not_fit_are_refused(
    model: ProtoPINVClassifier, change: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        model.predict(change(frame()))


def test_a_refused_frame_leaves_the_model_as_it_was(model: ProtoPINVClassifier) -> None:
    X = frame()
    before, attributes = model.predict_proba(X), dict(vars(model))
    with pytest.raises(DataError, match="infinity in row 3"):
        model.fit(X.assign(age=[1.0, 2.0, np.inf] * (N // 3)), target(X))
    assert vars(model) == attributes
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_values_never_seen_and_gaps_are_predicted(model: ProtoPINVClassifier) -> None:
    X = frame().head(3).assign(city=["Paris", None, "?"], member=None, joined=pd.NaT)
    assert np.isfinite(model.predict_proba(X)).all()


def test_numbers_are_predicted_from_frames_too() -> None:
    X = frame(1_200)
    y = np.where(X["city"] == "Rome", 3.0, -1.0) + X["age"].fillna(40) / 20
    model = ProtoPINVRegressor(**QUICK).fit(X, y)
    assert model.score(X, y) > 0.95
    both = ProtoPINVRegressor(**QUICK).fit(X, np.column_stack([y, -y]))
    assert both.predict(X).shape == (1_200, 2)


def test_scikit_learns_tools_take_frames(model: ProtoPINVClassifier) -> None:
    X = frame()
    y = target(X)
    importance = permutation_importance(model, X, y, n_repeats=2, random_state=0).importances_mean
    assert set(np.argsort(importance)[-2:]) == {0, 1}
    assert importance[4] == 0
    curve = partial_dependence(model, X.assign(age=X["age"].fillna(40)), ["age"], grid_resolution=9)
    assert np.ptp(curve["average"]) > 0.1
    assert cross_val_score(ProtoPINVClassifier(**QUICK), X, y, cv=3).min() > 0.8


def test_a_search_takes_frames() -> None:
    X = frame()

    def space(trial: Any, _: int) -> dict[str, Any]:
        return {"max_epochs": trial.suggest_int("max_epochs", 5, 10)}

    estimator = ProtoPINVClassifier(effort="quick", early_stopping=False)
    found = tune(X, target(X), n_trials=2, estimator=estimator, space=space)
    assert found.model.table_ is not None


def test_weights_of_rows_reach_the_table() -> None:
    """Rows of weight zero are not there."""
    X = frame(1_200)
    y, weight = target(X), np.r_[np.ones(1_000), np.zeros(200)]
    half = ProtoPINVClassifier(**QUICK).fit(X, y, weight)
    alone = ProtoPINVClassifier(**QUICK).fit(X.head(1_000), y[:1_000])
    np.testing.assert_allclose(half.predict_proba(X), alone.predict_proba(X), atol=1e-6)


def test_arrays_have_the_columns_of_training_whatever_their_names() -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame({1: random.standard_normal(80), 2: 5, 3: random.standard_normal(80)})
    y = X[3] > 0
    model = ProtoPINVClassifier(**QUICK).fit(X, y)
    np.testing.assert_array_equal(model.predict(X.to_numpy()), model.predict(X))
    assert [column.name for column in model.table_.left_out] == ["2"]


def test_scikit_learns_network_takes_columns_that_were_left_out() -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame({"a": random.standard_normal(80), "b": 5.0, "c": random.standard_normal(80)})
    model = ProtoPINVClassifier(activation="relu", scaling="feature", **QUICK).fit(X, X["c"] > 0)
    network = model.to_sklearn()
    np.testing.assert_allclose(network.predict_proba(X), model.predict_proba(X), atol=1e-9)


def test_columns_are_matched_by_name_and_further_ones_are_ignored_with_a_note(
    model: ProtoPINVClassifier,
) -> None:
    X = frame()
    before = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(X[X.columns[::-1]]), before)
    np.testing.assert_array_equal(model.predict_proba(X.drop(columns="id")), before)  # left out
    with pytest.warns(ColumnsWarning, match=r"have 'more' too\. Went on without"):
        np.testing.assert_array_equal(model.predict_proba(X.assign(more=1.0)), before)


def test_a_warm_start_keeps_the_columns_of_the_last_fit() -> None:
    X = frame()
    one, other = (ProtoPINVClassifier(warm_start=True, **QUICK) for _ in range(2))
    one.fit(X, target(X)).fit(X, target(X))
    other.fit(X, target(X))
    with pytest.warns(ColumnsWarning, match=r"'more'"):
        other.fit(X.assign(more=1.0)[["more", *X.columns[::-1]]], target(X))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_many_values_of_long_text_can_be_saved(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    texts = [f"{k}: {'x' * 200}" for k in range(9_000)]
    X = pd.DataFrame({"a": random.choice(texts, 20_000), "b": random.standard_normal(20_000)})
    options = {**QUICK, "max_epochs": 1, "early_stopping": False, "columns": {"a": "category"}}
    model = ProtoPINVRegressor(**options).fit(X, X["b"])
    model.save(tmp_path / "m.safetensors")
    loaded = protopinv.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict(X[:100]), model.predict(X[:100]))
