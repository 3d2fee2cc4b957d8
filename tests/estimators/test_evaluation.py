import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from protopinv import ProtoPINVClassifier, evaluate
from protopinv.errors import DataError


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
