"""Weights of rows and classes as users give them."""

from copy import copy

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from protopinv import ProtoPINVClassifier, evaluate
from protopinv.errors import ConfigError, DataError


def quick(**options: object) -> ProtoPINVClassifier:
    chosen = {
        "effort": "quick",
        "n_prototypes": 15,
        "hidden_sizes": 12,
        "max_epochs": 40,
        "random_state": 0,
    }
    return ProtoPINVClassifier(**{**chosen, **options})


@pytest.fixture(scope="module")
def uneven() -> tuple[np.ndarray, np.ndarray]:
    """Two clouds that overlap, one of them rare."""
    random = np.random.RandomState(0)
    y = np.array(["common"] * 80 + ["rare"] * 16)
    return random.standard_normal((96, 3)) + (y == "rare")[:, None], y


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_sizes": (12, 8)},
        {"projection": "pls"},
        {"projection": "none", "scaling": "global"},
        {"input_init": "normal"},
        {"learn_scale": True, "learn_ridge": True},
        {"optimizer": "muon"},
        {"n_members": 2},
        {"label_smoothing": 0.1, "condition_penalty": 0.01},
    ],
    ids=str,
)
def test_weights_are_rows_that_appear_more_often(blobs, options: dict[str, object]) -> None:
    X, y = blobs[0][:40], blobs[1][:40]
    times = np.random.RandomState(3).randint(0, 4, 40)
    chosen = {"early_stopping": False, "dtype": "float64", **options}
    weighted = quick(**chosen).fit(X, y, sample_weight=times)
    repeated = quick(**chosen).fit(X.repeat(times, axis=0), y.repeat(times))
    expected = repeated.predict_proba(X)
    np.testing.assert_allclose(weighted.predict_proba(X), expected, rtol=1e-7, atol=1e-9)


def test_rows_of_weight_zero_are_not_there(blobs) -> None:
    """Whatever they hold: neither their values nor their class is seen."""
    X, y = blobs
    weight = np.ones(90)
    weight[::3] = 0
    spoiled, labels = X.copy(), y.copy()
    spoiled[::3], labels[::3] = 1e6, 9
    model = quick().fit(spoiled, labels, sample_weight=weight)
    alone = quick().fit(X[weight > 0], y[weight > 0])
    expected = alone.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, rtol=1e-9, atol=1e-12)
    assert model.classes_.tolist() == sorted(set(y[weight > 0]))


def test_weights_of_one_are_none(blobs) -> None:
    X, y = blobs
    one, other = (quick().fit(X, y, sample_weight=w).predict_proba(X) for w in (None, np.ones(90)))
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_a_class_that_weighs_more_is_predicted_more_often(uneven) -> None:
    X, y = uneven
    shares = [
        quick(class_weight={"rare": weight}, ridge=1.0).fit(X, y).predict(X) == "rare"
        for weight in (0.2, 1.0, 20.0)
    ]
    first, second, third = (share.mean() for share in shares)
    assert first < second < third


@pytest.mark.parametrize("weight", [None, np.linspace(0.5, 2, 96)], ids=["none", "rows"])
def test_weights_of_classes_are_weights_of_their_rows(uneven, weight) -> None:
    X, y = uneven
    by_class = {"common": 0.5, "rare": 3.0}
    by_hand = np.where(y == "rare", 3.0, 0.5) * (1 if weight is None else weight)
    one = quick(class_weight=by_class).fit(X, y, sample_weight=weight)
    other = quick().fit(X, y, sample_weight=by_hand)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6, atol=1e-8)


def test_balanced_classes_count_alike(uneven) -> None:
    X, y = uneven
    balanced = quick(class_weight="balanced").fit(X, y)
    by_hand = quick().fit(X, y, sample_weight=compute_sample_weight("balanced", y))
    expected = by_hand.predict_proba(X)
    np.testing.assert_allclose(balanced.predict_proba(X), expected, rtol=1e-6, atol=1e-8)
    weight = np.random.RandomState(0).uniform(0.5, 2, 96)
    totals = {label: weight[y == label].sum() for label in ("common", "rare")}
    even = weight / np.array([totals[label] for label in y])
    with_both = quick(class_weight="balanced").fit(X, y, sample_weight=weight)
    expected = quick().fit(X, y, sample_weight=even).predict_proba(X)
    np.testing.assert_allclose(with_both.predict_proba(X), expected, rtol=1e-6, atol=1e-8)


def test_a_class_of_weight_zero_is_not_there(uneven) -> None:
    X, y = uneven
    three = np.where(np.arange(96) % 5 == 0, "other", y)
    model = quick(class_weight={"other": 0.0}).fit(X, three)
    assert model.classes_.tolist() == ["common", "rare"]


@pytest.fixture(scope="module")
def short(blobs) -> ProtoPINVClassifier:
    return quick(max_epochs=5).fit(*blobs)


def test_an_evaluation_counts_rows_by_their_weight(blobs, short) -> None:
    X, y = blobs
    model = short
    times = np.random.RandomState(0).randint(0, 3, 90)
    weighted = evaluate(model, X, y, sample_weight=times)
    repeated = evaluate(model, X.repeat(times, axis=0), y.repeat(times))
    for name in ("accuracy", "log_loss", "balanced_accuracy"):
        assert getattr(weighted, name) == pytest.approx(getattr(repeated, name))
    for one, other in zip(weighted.per_class, repeated.per_class, strict=True):
        assert (one.precision, one.recall) == pytest.approx((other.precision, other.recall))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.where(np.arange(90) == 7, -1.0, 1.0), r"must be 0 or more\. Row 7 has -1\. Correct it"),
        (np.where(np.arange(90) == 7, np.nan, 1.0), r"(?i)nan"),
        (np.where(np.arange(90) == 7, np.inf, 1.0), r"(?i)infinity"),
        (np.zeros(90), r"(?i)all weights are zero|at least one non-zero"),
        (np.ones(89), r"(?i)sample_weight.*shape"),
        (np.ones((90, 2)), r"(?i)1D|dim"),
        (np.array(["a"] * 90), r"(?i)could not convert|string"),
    ],
    ids=["negative", "nan", "infinite", "zero", "too few", "matrix", "text"],
)
def test_weights_that_cannot_be_are_refused_and_the_model_stays(
    blobs, short, weight, message
) -> None:
    X, y = blobs
    model = copy(short)
    before, attributes = model.predict_proba(X), dict(vars(model))
    with pytest.raises(DataError, match=message):
        model.fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert vars(model) == attributes
    with pytest.raises(DataError, match=message):
        evaluate(model, X, y, sample_weight=weight)


@pytest.mark.parametrize(
    ("class_weight", "error", "message"),
    [
        ({9: 2.0}, DataError, r"name classes of y only: 0, 1, 2\. Got 9\."),
        ({"0": 2.0}, DataError, r"name classes of y only: 0, 1, 2\. Got '0'\."),
        ({0: -1.0}, ConfigError, r"numbers, 0 or more\. Class 0 has -1\.0"),
        ({0: np.nan}, ConfigError, r"numbers, 0 or more\. Class 0 has nan"),
        ({0: np.inf}, ConfigError, r"numbers, 0 or more\. Class 0 has inf"),
        ({0: "much"}, ConfigError, r"numbers, 0 or more\. Class 0 has 'much'"),
        ({0: 0.0, 1: 0.0}, DataError, r"at least two classes"),
        ({0: 0.0, 1: 0.0, 2: 0}, DataError, r"Some rows must count\. All weights are zero"),
        ("even", ConfigError, r"class_weight must be None, 'balanced' or a dict"),
        ([1.0, 2.0, 3.0], ConfigError, r"class_weight must be None, 'balanced' or a dict"),
    ],
    ids=str,
)
def test_weights_of_classes_that_cannot_be_are_refused(
    blobs, short, class_weight, error: type, message: str
) -> None:
    X, y = blobs
    model = copy(short)
    before = model.predict_proba(X)
    with pytest.raises(error, match=message):
        model.set_params(class_weight=class_weight).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.classes_.tolist() == [0, 1, 2]
