"""Every kind of bad data gives a finite, working model or one clear error; never torch's own."""

import warnings
from copy import copy

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.errors import (
    ConfigError,
    DataError,
    GuardWarning,
    NotLearnedWarning,
    TrainingError,
)


def quick(**options: object) -> ProtoPINVClassifier:
    chosen = {"n_prototypes": 15, "hidden_sizes": (12,), "max_epochs": 40, "random_state": 0}
    return ProtoPINVClassifier(**{**chosen, **options})


@pytest.fixture(scope="module")
def short(blobs) -> ProtoPINVClassifier:
    return quick(max_epochs=5, scaling="none", projection="none").fit(*blobs)


def assert_finite(model: ProtoPINVClassifier, X: np.ndarray) -> None:
    probabilities = model.predict_proba(X)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(blobs, bad: float) -> None:
    X, y = blobs
    poisoned = X.copy()
    poisoned[3, 2] = bad
    with pytest.raises(ValueError, match="contains infinity"):
        quick().fit(poisoned, y)
    model = quick().fit(X, y)
    with pytest.raises(ValueError, match="contains infinity"):
        model.predict(poisoned)


def test_targets_that_are_not_finite_are_refused(blobs) -> None:
    X, y = blobs
    y = y.astype(float)
    y[0] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        quick().fit(X, y)


@pytest.mark.parametrize(
    ("X", "rule"),
    [
        (np.empty((0, 3)), r"0 sample\(s\)"),
        (np.empty((5, 0)), r"0 feature\(s\)"),
        (np.arange(5.0), "Expected 2D array"),
    ],
)
def test_no_rows_no_columns_and_flat_rows_are_refused(X: np.ndarray, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        quick().fit(X, np.arange(len(X)) % 2)


def test_one_class_is_refused(blobs) -> None:
    X, _ = blobs
    with pytest.raises(DataError, match=r"at least two classes\. y holds only one class.*Check"):
        quick().fit(X, np.ones(len(X)))


def test_lengths_that_differ_are_refused(blobs) -> None:
    X, y = blobs
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick().fit(X, y[:-1])


def test_a_continuous_target_is_refused(blobs) -> None:
    X, _ = blobs
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        quick().fit(X, X[:, 0])


def test_another_number_of_columns_is_refused(blobs) -> None:
    X, y = blobs
    with pytest.raises(ValueError, match="expecting 5 features"):
        quick().fit(X, y).predict(X[:, :4])


@pytest.mark.parametrize("input_init", ["stratified", "normal"])
@pytest.mark.parametrize("n_rows", [2, 3, 7])
def test_fewer_rows_than_prototypes_train(blobs, n_rows: int, input_init: str) -> None:
    X, y = blobs
    model = quick(input_init=input_init).fit(X[:n_rows], y[:n_rows])
    assert model.score(X[:n_rows], y[:n_rows]) == 1
    assert_finite(model, X)


@pytest.mark.parametrize("scaling", ["none", "global", "feature"])
@pytest.mark.parametrize("projection", ["none", "pca", "pls"])
def test_constant_and_duplicate_columns_train(blobs, scaling: str, projection: str) -> None:
    X, y = blobs
    wide = np.hstack([X, X, np.full((len(X), 2), 1e6), np.zeros((len(X), 1))])
    model = quick(scaling=scaling, projection=projection)
    with warnings.catch_warnings():
        # Unscaled columns of a million may cost steps, and the guard says so.
        warnings.simplefilter("ignore" if scaling == "none" else "error", GuardWarning)
        model.fit(wide, y)
    assert_finite(model, wide)
    if scaling != "none" or projection != "none":
        assert model.score(wide, y) > 0.95


@pytest.mark.parametrize("projection", ["none", "pca", "pls"])
def test_rows_that_are_all_the_same_train(projection: str) -> None:
    X = np.full((20, 3), 7.5)
    model = quick(projection=projection).fit(X, np.arange(20) % 2)
    assert_finite(model, X)


@pytest.mark.parametrize("projection", ["none", "pca", "pls"])
@pytest.mark.parametrize("scaling", ["global", "feature"])
@pytest.mark.parametrize("size", [1e30, 1e-30, 1e100])
def test_huge_and_tiny_values_train(blobs, size: float, scaling: str, projection: str) -> None:
    X, y = blobs
    model = quick(scaling=scaling, projection=projection).fit(X * size, y)
    assert model.score(X * size, y) == 1


@pytest.mark.parametrize("scaling", ["global", "feature"])
def test_one_huge_value_among_ordinary_ones_trains(blobs, scaling: str) -> None:
    X, y = blobs
    spiked = X.copy()
    spiked[0, 0] = 1e30
    assert_finite(quick(scaling=scaling).fit(spiked, y), spiked)


def test_huge_values_without_scaling_give_a_model_or_one_clear_error(blobs) -> None:
    X, y = blobs
    with pytest.raises(TrainingError, match=r"Scale the features|scaling='feature'"):
        quick(scaling="none", projection="none", number_encoding="raw").fit(X * 1e30, y)


def test_values_too_large_to_square_are_refused(blobs) -> None:
    X, y = blobs
    with pytest.raises(DataError, match=r"at most about 1e150\. Column \d holds larger ones"):
        quick().fit(X * 1e200, y)


def test_a_hold_out_too_small_is_refused(blobs) -> None:
    X, y = blobs
    with pytest.raises(DataError, match=r"at least one row on each side\. 4 rows"):
        quick(early_stopping=True).fit(X[:4], y[:4])


def test_a_class_of_one_row_can_be_held_out(blobs) -> None:
    X, y = blobs
    y = y.copy()
    y[0] = 9
    model = quick(early_stopping=True).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert_finite(model, X)


def test_a_failed_fit_leaves_no_half_fitted_model(blobs) -> None:
    X, y = blobs
    model = quick(scaling="none", projection="none", number_encoding="raw")
    with pytest.raises(TrainingError):
        model.fit(X * 1e30, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_bank_thrown_out_of_range_is_refused(blobs) -> None:
    X, y = blobs
    with pytest.raises(TrainingError, match=r"must be finite|must be solvable"):
        quick(lr=1e30, lr_ratios=(1e8, 1e8, 1e8), max_epochs=1, dtype="float32").fit(X, y)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", None, "b"], dtype=object),
        np.array(["a", 1, "b"], dtype=object),
        np.array([b"a", b"b", b"c"]),
        np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[D]"),
    ],
    ids=["gap", "mixed", "bytes", "dates"],
)
def test_labels_that_cannot_be_kept_are_refused(blobs, labels: np.ndarray) -> None:
    X, y = blobs
    with pytest.raises(
        (DataError, ValueError), match=r"Labels must all|Unknown label|row needs a target"
    ):
        quick().fit(X, labels[y])


@pytest.mark.parametrize("options", [{"n_prototypes": 10**12}, {"hidden_sizes": 10**11}], ids=str)
def test_a_network_that_does_not_fit_in_memory_is_refused(blobs, options) -> None:
    with pytest.raises(TrainingError, match=r"must fit in memory\..*Lower n_prototypes"):
        quick(**options).fit(*blobs)


def test_zero_rows_among_normalised_prototypes_train() -> None:
    model = quick(normalize_inputs=True, scaling="none", projection="none")
    X = np.array([[0.0], [1.0], [2.0]])
    assert_finite(model.fit(X, [0, 1, 0]), X)


def test_more_features_than_memory_for_their_covariance_train() -> None:
    random = np.random.RandomState(0)
    X = random.standard_normal((20, 60_000)).astype(np.float32)
    X[::2, :50] += 3
    for projection in ("pca", "pls"):
        model = quick(projection=projection, hidden_sizes=4).fit(X, np.arange(20) % 2)
        assert model.score(X, np.arange(20) % 2) > 0.8


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"verbose": "x"}, ConfigError, r"verbose must be a whole number or a bool\. Got 'x'"),
        ({"verbose": None}, ConfigError, r"verbose must be a whole number or a bool\. Got None"),
        ({"lr": -1}, ConfigError, r"lr must be a positive number\. Got -1"),
        ({"n_members": 0}, ConfigError, r"n_members must be a whole number, 1 or more"),
        ({"stem": "pca"}, ConfigError, r"stem must be 'auto', None or ConvStem"),
        ({"copies": 2}, ConfigError, r"copies must be None or ImageCopies"),
        ({"device": "tpu"}, ConfigError, r"device must be one of"),
        ({"class_weight": {9: 1.0}}, DataError, r"class_weight may name classes of y only"),
        ({"random_state": "x"}, ValueError, r"cannot be used to seed"),
    ],
    ids=str,
)
def test_a_refusal_leaves_a_fitted_model_as_it_is(
    blobs, short, options, error, message: str
) -> None:
    X, y = blobs
    model = copy(short)
    before, fitted = model.predict_proba(X), fitted_attributes(model)
    device = model.device
    with pytest.raises(error, match=message):
        model.set_params(**options).fit(X, y)
    assert fitted_attributes(model) == fitted
    np.testing.assert_array_equal(model.set_params(device=device).predict_proba(X), before)


def fitted_attributes(model: ProtoPINVClassifier) -> dict[str, int]:
    """Which there are, and which objects they are."""
    return {name: id(value) for name, value in vars(model).items() if name.endswith("_")}


@pytest.mark.parametrize("bad", ["rows", "columns", "class", "lengths", "training"])
def test_rows_that_are_refused_leave_a_fitted_model_as_it_is(blobs, short, bad: str) -> None:
    X, y = blobs
    model = copy(short)
    before, fitted = model.predict_proba(X), fitted_attributes(model)
    given = {
        "rows": (np.where(np.arange(90)[:, None] == 3, np.inf, X), y),
        "columns": (X[:, :0], y),
        "class": (X, np.zeros(90)),
        "lengths": (X, y[:-1]),
        "training": (X * 1e300, y),
    }
    with pytest.raises((DataError, TrainingError)):
        model.fit(*given[bad])
    assert fitted_attributes(model) == fitted
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("kind", [ProtoPINVClassifier, ProtoPINVRegressor])
def test_a_row_far_beyond_all_others_is_named(blobs, kind: type) -> None:
    X, y = blobs
    X = 1e-3 * X  # so that weights are large enough to overflow
    model = kind(n_prototypes=15, hidden_sizes=12, max_epochs=5, random_state=0).fit(X, y)
    far = X.copy()
    far[4] = 1e308
    with pytest.raises(DataError, match=r"Row 4 is so far from those it was trained on"):
        model.predict(far)
    far[4] = 1e30
    assert model._outputs(far).isfinite().all()


@pytest.mark.parametrize("kind", [ProtoPINVClassifier, ProtoPINVRegressor])
@pytest.mark.parametrize("early_stopping", [False, "auto"])
def test_a_rate_that_learns_nothing_is_told(blobs, kind: type, early_stopping) -> None:
    X, y = blobs
    options = {"n_prototypes": 15, "hidden_sizes": 12, "max_epochs": 20, "random_state": 0}
    model = kind(lr=1e6, early_stopping=early_stopping, **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model.fit(X, y)
        except TrainingError as error:
            said.append(error)
    told = [text for each in said if "ower lr" in (text := str(getattr(each, "message", each)))]
    assert told
    kinds = {getattr(each, "category", type(each)) for each in said}
    assert kinds & {NotLearnedWarning, TrainingError}


def test_a_rate_that_learns_is_not_complained_about(blobs) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick().fit(*blobs)


def test_thousands_of_classes_are_refused_before_any_work() -> None:
    X = np.random.RandomState(0).standard_normal((10_000, 2))
    with pytest.raises(ConfigError, match=r"10,000\. If the target is a number, use ProtoPINVReg"):
        ProtoPINVClassifier().fit(X, np.arange(10_000))


@pytest.mark.parametrize("kind", [ProtoPINVClassifier, ProtoPINVRegressor])
def test_a_hold_out_that_is_asked_for_stops_early(blobs, kind: type) -> None:
    X, y = blobs
    options = {"n_prototypes": 15, "hidden_sizes": 12, "max_epochs": 20, "random_state": 0}
    model = kind(validation_fraction=0.2, **options).fit(X, y)
    assert model.config_.early_stopping is True
    assert model.config_.held_out == 0.2
    assert model.bank_.n_members == 1
    assert len(model.history_.validation_score) == model.n_iter_


@pytest.mark.parametrize(
    "labels",
    [
        [["a", "b"], ["c", None]],
        [[1, 2], [3, 4]],
        [[0.5, 0.1], [0.2, 0.3]],
        [["a", "b"], ["b", "a"]],
    ],
    ids=["gaps", "numbers", "shares", "text"],
)
def test_a_matrix_that_is_not_of_labels_is_refused(blobs, labels: list) -> None:
    X, _ = blobs
    with pytest.raises((DataError, ValueError), match=r"matrix of 0 and 1|Labels must|row needs a"):
        quick().fit(X, np.array(labels * 45, dtype=object))
