from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, evaluate
from protopinv.errors import DataError
from protopinv.evaluation import calibration_curve
from protopinv.evaluation import calibration_error as error_of_curve


@pytest.fixture(scope="module")
def model(blobs) -> ProtoPINVClassifier:
    X, y = blobs
    short = ProtoPINVClassifier(n_prototypes=9, hidden_sizes=(8,), max_epochs=6, random_state=0)
    return short.fit(X, np.array(["a", "b", "c"])[y])


def test_the_numbers_are_scikit_learns(model: ProtoPINVClassifier, blobs) -> None:
    X, y = blobs
    labels = np.array(["a", "b", "c"])[y]
    result = evaluate(model, X, labels)
    assert evaluate(model, X, labels[:, None]) == result
    assert result.accuracy == accuracy_score(labels, model.predict(X))
    assert result.log_loss == pytest.approx(log_loss(labels, model.predict_proba(X)))
    assert np.sum(result.confusion) == result.n_rows == 90
    assert [score.label for score in result.per_class] == ["a", "b", "c"]
    assert np.trace(result.confusion) / 90 == pytest.approx(result.accuracy)
    for index, score in enumerate(result.per_class):
        assert score.recall == pytest.approx(result.confusion[index][index] / score.n_rows)


def test_unknown_classes_are_refused(model: ProtoPINVClassifier, blobs) -> None:
    X, _ = blobs
    with pytest.raises(DataError, match=r"classes the model knows: 'a', 'b', 'c'\. Got 'z'\."):
        evaluate(model, X, np.full(90, "z"))


def test_labels_with_gaps_are_refused(model: ProtoPINVClassifier, blobs) -> None:
    X, _ = blobs
    with pytest.raises(DataError, match="Labels must all be booleans, numbers or strings"):
        evaluate(model, X, np.array(["a", None, "b"] * 30, dtype=object))


def test_lengths_must_agree(model: ProtoPINVClassifier, blobs) -> None:
    X, _ = blobs
    with pytest.raises(DataError, match=r"X has 90 rows, y has 1\. Check how"):
        evaluate(model, X, ["a"])


def calibration_error(sure: Any, right: Any, weight: Any = None) -> float:
    weight = np.ones(len(sure)) if weight is None else weight
    return error_of_curve(calibration_curve(sure, right, weight))


def test_calibration_error_is_how_far_sure_is_from_right() -> None:
    random = np.random.default_rng(0)
    sure = random.uniform(0.5, 1, 20_000)
    right = random.uniform(size=20_000) < sure
    assert calibration_error(sure, right) < 0.02
    assert calibration_error(np.clip(sure + 0.1, 0, 1), right) > 0.08
    assert calibration_error(np.ones(4), np.array([True, True, True, False])) == 0.25
    weight = 1.0 + np.arange(20_000) % 3
    times = weight.astype(int)
    again = calibration_error(np.repeat(sure, times), np.repeat(right, times))
    assert calibration_error(sure, right, weight) == pytest.approx(again)


def test_probabilities_of_an_averaged_model_are_those_of_the_data() -> None:
    """Classes drawn with known probabilities: five banks together are neither shy nor too sure."""
    random = np.random.default_rng(0)
    X = random.standard_normal((4_000, 3))
    chance = 1 / (1 + np.exp(-2 * X[:, 0] * X[:, 1]))
    y = (random.uniform(size=4_000) < chance).astype(int)
    model = ProtoPINVClassifier(effort="quick", random_state=0).fit(X[:2_000], y[:2_000])
    assert model.bank_.n_members == 5
    assert evaluate(model, X[2_000:], y[2_000:]).calibration_error < 0.04


KINDS = ["classes", "labels", "number", "numbers"]


@pytest.fixture(scope="module")
def scored(blobs) -> dict[str, tuple[Any, Any, Any]]:
    """A model of every task with rows, of which some are far from all that it has seen."""
    X, y = blobs
    far = np.where(np.arange(len(X)) % 9 == 0, 40.0, 1.0)[:, None] * X
    targets = {
        "classes": np.array(["a", "b", "c"])[y],
        "labels": np.column_stack([y == 0, y < 2]).astype(int),
        "number": np.clip(X[:, 0], -1, 1),
        "numbers": np.clip(X[:, :2], -1, 1) * [1.0, 1e3],
    }
    small: dict[str, Any] = {"effort": "quick", "max_epochs": 6, "random_state": 0}
    models: dict[str, Any] = {
        name: (ProtoPINVRegressor if "number" in name else ProtoPINVClassifier)(**small)
        for name in KINDS
    }
    return {name: (models[name].fit(X, targets[name]), far, targets[name]) for name in KINDS}


def flat(value: Any, name: str = "") -> dict[str, float]:
    """All numbers of an evaluation, by where they are."""
    if isinstance(value, dict):
        return {k: v for key, each in value.items() for k, v in flat(each, f"{name}/{key}").items()}
    if isinstance(value, list):
        return {k: v for i, each in enumerate(value) for k, v in flat(each, f"{name}/{i}").items()}
    return {} if isinstance(value, str) else {name: value}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_an_evaluation_says_what_score_says(scored, kind: str, weighted: bool) -> None:
    model, X, y = scored[kind]
    weight = np.random.default_rng(0).uniform(0, 3, len(X)) if weighted else None
    result = evaluate(model, X, y, weight)
    score = result.r2 if "number" in kind else result.accuracy
    assert score == pytest.approx(model.score(X, y, weight), abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_of_weight_two_is_the_row_twice_in_every_measure(scored, kind: str) -> None:
    model, X, y = scored[kind]
    times = np.arange(len(X)) % 3
    weighted = flat(asdict(evaluate(model, X, y, times)))
    again = flat(asdict(evaluate(model, np.repeat(X, times, 0), np.repeat(y, times, 0))))
    assert weighted == pytest.approx(again, rel=1e-9)
    counts = {name: value for name, value in weighted.items() if "rows" in name}
    assert all(isinstance(value, int) for value in counts.values())
    assert counts["/n_rows"] == times.sum()
