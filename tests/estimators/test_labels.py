"""Several labels a row: predicted as a matrix of 0 and 1, each with a probability of its own."""

from copy import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import f1_score

from protopinv import ProtoPINVClassifier, evaluate
from protopinv.errors import ConfigError, DataError
from protopinv.objective import Labels


def quick(**options: object) -> ProtoPINVClassifier:
    chosen = {
        "effort": "quick",
        "n_prototypes": 20,
        "hidden_sizes": 16,
        "max_epochs": 80,
        "random_state": 0,
    }
    return ProtoPINVClassifier(**{**chosen, **options})


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Labels that do not exclude each other, one of them rare, some rows with none."""
    random = np.random.RandomState(0)
    X = random.standard_normal((90, 4))
    Y = np.stack([X[:, 0] > 0, X[:, 1] + X[:, 2] > 0, X[:, 3] > 1], axis=1).astype(int)
    assert (Y.sum(1) == 0).any()
    assert (Y.sum(1) == 3).any()
    return X, Y


def test_labels_are_predicted_as_a_matrix_with_a_probability_each(rows) -> None:
    X, Y = rows
    model = quick().fit(X, Y)
    predicted, chance = model.predict(X), model.predict_proba(X)
    assert predicted.shape == chance.shape == Y.shape
    assert set(np.unique(predicted)) <= {0, 1}
    assert (predicted == (chance > 0.5)).all()
    assert not np.allclose(chance.sum(1), 1)
    assert (predicted == Y).mean() > 0.95
    decision = torch.from_numpy(model.decision_function(X))
    np.testing.assert_allclose(chance, torch.sigmoid(decision))
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(chance), rtol=1e-9, atol=1e-12)
    assert model.classes_.tolist() == [0, 1, 2]
    assert isinstance(model.objective_, Labels)


@pytest.mark.parametrize(
    "options",
    [
        {"hidden_sizes": (16, 8)},
        {"projection": "pls"},
        {"batch_size": 16},
        {"label_smoothing": 0.05},
        {"mixup": 0.1},
        {"early_stopping": True},
        {"early_stopping": "cross"},
        {"early_stopping": False, "n_members": 3},
        {"output_init": "normal"},
        {"dtype": "float32"},
    ],
    ids=str,
)
def test_every_option_learns(rows, options: dict[str, object]) -> None:
    X, Y = rows
    model = quick(**{"max_epochs": 150, "ridge": 1.0, **options}).fit(X, Y)
    assert (model.predict(X) == Y).mean() > 0.93


def test_a_column_of_probabilities_does_not_depend_on_the_order_of_labels(rows) -> None:
    X, Y = rows
    plain, turned = (
        quick(early_stopping=False).fit(X, labels).predict_proba(X) for labels in (Y, Y[:, ::-1])
    )
    np.testing.assert_allclose(plain, turned[:, ::-1], atol=1e-6)


def test_frames_lists_and_booleans_are_labels_too(rows) -> None:
    X, Y = rows
    expected = quick(max_epochs=10).fit(X, Y).predict_proba(X)
    frame = pd.DataFrame(Y, columns=["a", "b", "c"])
    for labels in (frame, Y.tolist(), Y.astype(bool), Y.astype(float), np.asfortranarray(Y)):
        found = quick(max_epochs=10).fit(X, labels).predict_proba(X)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}], ids=str)
def test_weights_are_rows_that_appear_more_often(rows, options: dict) -> None:
    X, Y = rows[0][:30], rows[1][:30]
    times = np.random.RandomState(3).randint(0, 4, 30)
    chosen = {"early_stopping": False, "dtype": "float64", **options}
    weighted = quick(**chosen).fit(X, Y, sample_weight=times)
    repeated = quick(**chosen).fit(X.repeat(times, axis=0), Y.repeat(times, axis=0))
    expected = repeated.predict_proba(X)
    np.testing.assert_allclose(weighted.predict_proba(X), expected, rtol=1e-7, atol=1e-9)


@pytest.fixture(scope="module")
def short(rows) -> ProtoPINVClassifier:
    return quick(max_epochs=6).fit(*rows)


def test_an_evaluation_has_scikit_learns_numbers(rows, short) -> None:
    (X, Y), model = rows, short
    predicted, chance = model.predict(X), model.predict_proba(X)
    found = evaluate(model, X, Y)
    assert found.micro_f1 == pytest.approx(f1_score(Y, predicted, average="micro"))
    assert found.macro_f1 == pytest.approx(f1_score(Y, predicted, average="macro"))
    assert found.accuracy == pytest.approx(model.score(X, Y))
    assert found.label_accuracy == pytest.approx((predicted == Y).mean())
    likelihood = np.where(Y == 1, chance, 1 - chance)
    assert found.log_loss == pytest.approx(-np.log(likelihood).mean())
    assert [score.n_rows for score in found.per_label] == Y.sum(0).tolist()
    with pytest.raises(DataError, match=r"matrix of 0 and 1 with 3 columns"):
        evaluate(model, X, Y[:, :2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda Y: np.c_[Y, np.ones(90)], r"Column 3 of y is 1 in all 90 rows\. Leave it out"),
        (lambda Y: np.c_[np.zeros(90), Y], r"Column 0 of y is 0 in all 90 rows\. Leave it out"),
        (lambda Y: Y + np.arange(3), r"matrix of 0 and 1, .*For several numbers a row use"),
        (lambda Y: Y + 0.5, r"matrix of 0 and 1"),
        (lambda Y: np.where(Y == 1, np.nan, 0.0), r"(?i)nan"),
        (lambda Y: Y[:50], "inconsistent numbers of samples"),
        (lambda Y: Y.astype(str), r"matrix of 0 and 1"),
    ],
    ids=["always", "never", "numbers", "halves", "gaps", "too few", "text"],
)
def test_labels_that_cannot_be_are_refused_and_the_model_stays(
    rows, short, change, message: str
) -> None:
    X, Y = rows
    model = copy(short)
    before, attributes = model.predict_proba(X), dict(vars(model))
    with pytest.raises((DataError, ValueError), match=message):
        model.fit(X, change(Y))
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert vars(model) == attributes


def test_a_label_without_rows_that_count_is_refused(rows) -> None:
    X, Y = rows
    weight = (Y[:, 2] == 0).astype(float)
    with pytest.raises(DataError, match=r"Column 2 of y is 0 in all"):
        quick(max_epochs=5).fit(X, Y, sample_weight=weight)


def test_weights_of_classes_go_with_one_class_a_row(rows) -> None:
    with pytest.raises(ConfigError, match=r"one class a row\. .* Use sample_weight"):
        quick(class_weight="balanced").fit(*rows)
