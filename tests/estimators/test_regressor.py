"""Numbers: units, several targets, outliers, and what scikit-learn's users expect."""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_regressor
from sklearn.datasets import load_diabetes
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_val_score

import protopinv
from protopinv import ProtoPINVRegressor, evaluate
from protopinv.errors import ConfigError, DataError, NotLearnedWarning


def quick(**options: object) -> ProtoPINVRegressor:
    chosen = {
        "effort": "quick",
        "n_prototypes": 20,
        "hidden_sizes": 16,
        "max_epochs": 80,
        "random_state": 0,
    }
    return ProtoPINVRegressor(**{**chosen, **options})


def waves(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(seed)
    X = random.uniform(-2, 2, (n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss": "huber"},
        {"hidden_sizes": (16, 8)},
        {"activation": "tanh"},
        {"projection": "pls"},
        {"batch_size": 32},
        {"early_stopping": False},
        {"early_stopping": True},
        {"n_members": 3, "early_stopping": False},
        {"learn_scale": True, "learn_ridge": True},
        {"mixup": 0.1},
        {"optimizer": "muon"},
        {"dtype": "float32"},
        {"input_init": "normal", "output_init": "normal"},
    ],
    ids=str,
)
def test_every_option_learns_a_smooth_function(options: dict[str, object]) -> None:
    X, y = waves(200)
    model = quick(max_epochs=150, ridge=1.0, **options).fit(X[:150], y[:150])
    assert model.score(X[150:], y[150:]) > 0.75


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=["list", "column", "matrix"])
def test_predictions_have_the_shape_of_the_targets(shape: tuple[int, ...]) -> None:
    X, y = waves()
    targets = y.reshape(len(y), *shape) if shape in ((), (1,)) else np.stack([y, 1 - y, 2 * y], 1)
    model = quick().fit(X, targets)
    flat = shape in ((), (1,))  # scikit-learn takes a column for a list
    assert model.predict(X).shape == ((len(y),) if flat else targets.shape)
    assert model.objective_.n_outputs == (1 if flat else 3)
    assert model.score(X, targets) > 0.8


def test_targets_that_are_copies_of_one_another_are_predicted_alike() -> None:
    X, y = waves()
    model = quick().fit(X, np.stack([y, 10 * y - 5], axis=1))
    one, other = model.predict(X).T
    np.testing.assert_allclose(10 * one - 5, other, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_the_units_of_targets_do_not_matter(loss: str) -> None:
    X, y = waves(90)
    plain = quick(loss=loss).fit(X, y).predict(X)
    for factor, offset in ((1e9, 0.0), (1e-9, 0.0), (1.0, 1e6)):
        moved = quick(loss=loss).fit(X, factor * y + offset).predict(X)
        np.testing.assert_allclose((moved - offset) / factor, plain, rtol=1e-4, atol=1e-4)


def test_huber_loss_beats_squares_where_there_are_outliers() -> None:
    X, y = waves(300)
    random = np.random.RandomState(1)
    dirty = y.copy()
    spoiled = random.choice(300, 30, replace=False)
    dirty[spoiled] += 50 * random.standard_normal(30)
    X_new, y_new = waves(500, seed=2)
    errors = {
        loss: mean_absolute_error(y_new, quick(loss=loss).fit(X, dirty).predict(X_new))
        for loss in ("squared", "huber")
    }
    assert errors["huber"] < 0.5 * errors["squared"]


def test_rows_that_weigh_more_are_fitted_better() -> None:
    """The same rows with two targets: the prediction is their mean by weight."""
    X, _ = waves(60)
    both, y = np.vstack([X, X]), np.repeat([0.0, 1.0], 60)
    weight = np.repeat([1.0, 3.0], 60)
    model = quick(early_stopping=False).fit(both, y, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X), 0.75, atol=5e-3)


@pytest.mark.parametrize("options", [{}, {"loss": "huber"}, {"learn_scale": True}], ids=str)
@pytest.mark.parametrize("several", [False, True])
def test_weights_are_rows_that_appear_more_often(options: dict, several: bool) -> None:
    X, y = waves(30)
    Y = np.stack([y, y**2], axis=1) if several else y
    times = np.random.RandomState(3).randint(0, 4, 30)
    chosen = {"early_stopping": False, "dtype": "float64", **options}
    weighted = quick(**chosen).fit(X, Y, sample_weight=times)
    repeated = quick(**chosen).fit(X.repeat(times, axis=0), Y.repeat(times, axis=0))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7, atol=1e-7)


def test_all_weights_times_ten_change_nothing() -> None:
    X, y = waves(60)
    weight = np.random.RandomState(0).uniform(0.5, 2, 60)
    one, other = (quick().fit(X, y, sample_weight=w).predict(X) for w in (weight, 10 * weight))
    np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)


def test_a_target_that_never_varies_is_predicted() -> None:
    X, y = waves(60)
    np.testing.assert_allclose(quick().fit(X, np.full(60, 7.5)).predict(X), 7.5, atol=1e-2)
    both = quick().fit(X, np.stack([y, np.full(60, 1e6)], axis=1)).predict(X)
    np.testing.assert_allclose(both[:, 1], 1e6, atol=1)
    assert r2_score(y, both[:, 0]) > 0.5


def test_the_validation_score_is_r2() -> None:
    X, y = waves(200)
    model = quick(validation_fraction=0.25, early_stopping=False).fit(X, y)
    assert len(model.history_.validation_score) == 80
    assert 0.5 < model.history_.kept_score < 1
    assert abs(model.history_.kept_score - model.score(X, y)) < 0.3


def test_clone_pickle_searches_and_frames() -> None:
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    assert is_regressor(quick())
    model = quick().fit(X, y)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(quick(), X, y, cv=2).mean() > 0.35
    search = GridSearchCV(quick(), {"loss": ["squared", "huber"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.3
    series = quick().fit(X, pd.Series(y)).predict(X)
    np.testing.assert_array_equal(series, model.predict(X))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_targets_that_may_not_be_written_to_are_taken_without_a_word(loss: str) -> None:
    X, y = waves(60)
    y.flags.writeable = False
    quick(max_epochs=20, loss=loss, early_stopping=False).fit(X, y)


def test_the_network_answers_in_the_units_of_the_targets() -> None:
    X, y = waves(90)
    model = quick(scaling="feature", number_encoding="raw").fit(X, 1e3 * y - 4)
    assert model.front_ is None
    outputs = model.network_(torch.from_numpy(X))
    np.testing.assert_allclose(outputs[:, 0], model.predict(X), rtol=1e-12)


def test_an_evaluation_has_scikit_learns_numbers() -> None:
    X, y = waves(90)
    weight = np.random.RandomState(0).uniform(0.5, 2, 90)
    Y = np.stack([y, 100 * y**2], axis=1)
    model = quick().fit(X, Y)
    predicted = model.predict(X)
    for w in (None, weight):
        found = evaluate(model, X, Y, sample_weight=w)
        assert found.n_rows == pytest.approx(90 if w is None else w.sum())
        for name, metric in (
            ("r2", r2_score),
            ("mae", mean_absolute_error),
            ("rmse", root_mean_squared_error),
        ):
            each = metric(Y, predicted, sample_weight=w, multioutput="raw_values")
            assert getattr(found, name) == pytest.approx(each.mean())
            assert [getattr(t, name) for t in found.per_target] == pytest.approx(each.tolist())
    with pytest.raises(DataError, match=r"finite numbers, 2 a row\. Got shape \(90,\)"):
        evaluate(model, X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array(["a", "b"] * 30), r"Targets must be numbers\. y holds .*ProtoPINVClassifier"),
        (np.array([1.0, np.inf] * 30), r"(?i)infinity"),
        (np.array([1.0, np.nan] * 30), r"(?i)nan"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]] * 30), r"(?i)nan"),
        (np.array([1e200, -1e200] * 30), r"small enough to be squared, at most about 1e150"),
        (np.arange(59.0), "inconsistent numbers of samples"),
        (np.zeros((60, 2, 2)), r"dim|dimension"),
    ],
    ids=["text", "infinite", "nan", "nan in a matrix", "huge", "too few", "three dimensions"],
)
@pytest.mark.filterwarnings("error")
def test_targets_that_cannot_be_are_refused_and_the_model_stays(
    y: np.ndarray, message: str
) -> None:
    X, good = waves(60)
    model = quick(max_epochs=5).fit(X, good)
    before, attributes = model.predict(X), dict(vars(model))
    with pytest.raises((DataError, ValueError), match=message):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)
    assert vars(model) == attributes


def far_from_all(X: np.ndarray) -> np.ndarray:
    return np.vstack([X, 1e4 * X[:1], -1e4 * X[:1]])


def test_a_row_far_from_all_others_is_not_given_any_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    Y = np.column_stack([X @ [1, 2, 3], 100 * X[:, 0] + 1000])
    short = {"max_epochs": 30, "early_stopping": False, "random_state": 0, "device": "cpu"}
    model = ProtoPINVRegressor(**short).fit(X, Y)
    free = ProtoPINVRegressor(bounded=False, **short).fit(X, Y)
    wide = 0.1 * np.ptp(Y, axis=0)
    low, high = Y.min(axis=0) - wide, Y.max(axis=0) + wide
    assert (np.abs(free.predict(far_from_all(X))) > 1e4).any()
    expected = np.clip(free.predict(far_from_all(X)), low, high)
    np.testing.assert_allclose(model.predict(far_from_all(X)), expected)
    model.save(tmp_path / "m.safetensors")
    again = protopinv.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(far_from_all(X)), model.predict(far_from_all(X)))


def test_bounds_are_asked_for_or_not() -> None:
    with pytest.raises(ConfigError, match=r"bounded must be True or False\. Got 'perhaps'"):
        ProtoPINVRegressor(bounded="perhaps").fit(np.eye(3), np.arange(3.0))


def test_a_warm_start_remembers_the_range_of_earlier_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2))
    short = {"max_epochs": 5, "early_stopping": False, "random_state": 0, "device": "cpu"}
    model = ProtoPINVRegressor(warm_start=True, **short).fit(X, X[:, 0])
    low, high = model.objective_.low, model.objective_.high
    with pytest.warns(NotLearnedWarning):  # so far away, after so few epochs
        model.fit(X, X[:, 0] + 100)
    assert model.objective_.low == low
    assert model.objective_.high > high
    assert model.set_params(bounded=False).fit(X, X[:, 0]).objective_.low is None
