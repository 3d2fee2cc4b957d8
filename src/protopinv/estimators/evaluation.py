"""How good a fitted classifier is on rows it has not seen."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, log_loss, precision_recall_fscore_support
from sklearn.utils.validation import check_is_fitted, column_or_1d

from protopinv.errors import DataError
from protopinv.estimators.checks import plain_labels
from protopinv.estimators.classifier import ProtoPINVClassifier


@dataclass(frozen=True)
class ClassScore:
    """One class: its share of rows found, of answers right, and its rows."""

    label: Any
    precision: float
    recall: float
    f1: float
    n_rows: int


@dataclass(frozen=True)
class Evaluation:
    """``confusion[i][j]`` counts rows of class i that were taken for class j."""

    n_rows: int
    accuracy: float
    log_loss: float
    per_class: list[ClassScore]
    confusion: list[list[int]]


def evaluate(estimator: ProtoPINVClassifier, X: Any, y: Any) -> Evaluation:
    """Score a fitted classifier on rows ``X`` with true labels ``y``."""
    check_is_fitted(estimator, "network_")
    y = plain_labels(column_or_1d(y))
    classes = estimator.classes_
    unknown = [label for label in np.unique(y).tolist() if label not in classes.tolist()]
    if unknown:
        raise DataError(
            f"Targets must be classes the model knows: {_few(classes.tolist())}. "
            f"Got {_few(unknown)}. Check the target column and its type."
        )
    probabilities = estimator.predict_proba(X)
    if len(y) != len(probabilities):
        raise DataError(
            f"Targets must have one row per sample. X has {len(probabilities)} rows, y has "
            f"{len(y)}. Check how the two were split."
        )
    predicted = classes[probabilities.argmax(axis=1)]
    scores = precision_recall_fscore_support(y, predicted, labels=classes, zero_division=0)
    return Evaluation(
        n_rows=len(y),
        accuracy=float((predicted == y).mean()),
        log_loss=float(log_loss(y, probabilities, labels=classes)),
        per_class=[
            ClassScore(label, float(precision), float(recall), float(f1), int(rows))
            for label, precision, recall, f1, rows in zip(classes.tolist(), *scores, strict=True)
        ],
        confusion=confusion_matrix(y, predicted, labels=classes).tolist(),
    )


def _few(values: list[Any]) -> str:
    text = ", ".join(map(repr, values[:6]))
    return text + (", ..." if len(values) > 6 else "")
