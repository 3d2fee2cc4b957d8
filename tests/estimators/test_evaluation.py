import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from protopinv import ProtoPINVClassifier, evaluate
from protopinv.errors import DataError
from protopinv.estimators.evaluation import calibration_error


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
