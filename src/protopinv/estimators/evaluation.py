"""How good a fitted estimator is on rows it has not seen, in the measures of its task."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.utils.validation import column_or_1d

from protopinv.errors import DataError
from protopinv.estimators.rows import checked_weight, data_errors, exact_targets, plain_labels
from protopinv.objective import Labels, Numbers
from protopinv.train.targets import few

# Groups of rows whose answers are about as sure.
BINS = 15


@dataclass(frozen=True)
class ClassScore:
    """One class or label: its share of rows found, of answers right, and its rows."""

    label: Any
    precision: float
    recall: float
    f1: float
    n_rows: float


@dataclass(frozen=True)
class Evaluation:
    """One class a row; ``confusion[i][j]`` counts rows of class i that were taken for class j.

    ``calibration_error`` is how far the probability of answers is from the share of them that are
    right, on average over groups of rows whose answers are about as sure.
    """

    n_rows: float
    accuracy: float
    log_loss: float
    per_class: list[ClassScore]
    confusion: list[list[float]]
    balanced_accuracy: float
    calibration_error: float


@dataclass(frozen=True)
class LabelEvaluation:
    """Several labels a row: all of them right, each by itself, and F1 over all or the mean.

    ``calibration_error`` is how far the probability of a label is from how often it is there.
    """

    n_rows: float
    micro_f1: float
    macro_f1: float
    accuracy: float
    label_accuracy: float
    log_loss: float
    per_label: list[ClassScore]
    calibration_error: float


@dataclass(frozen=True)
class TargetScore:
    """One target: the share of its variance that is explained, and how far predictions are off."""

    r2: float
    mae: float
    rmse: float


@dataclass(frozen=True)
class NumberEvaluation:
    """Numbers; with several targets each figure is the mean over them."""

    n_rows: float
    r2: float
    mae: float
    rmse: float
    per_target: list[TargetScore] = field(default_factory=list)


def evaluate(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
) -> Any:
    """Score a fitted estimator on rows ``X`` with true targets ``y``, each by its weight.

    Gives an Evaluation for classes, a LabelEvaluation for several labels a row, and a
    NumberEvaluation for numbers. What is judged are the answers of ``predict``. A row of weight
    two is the same row twice, in counts of rows too.
    """
    answered = estimator._outputs(X)
    outputs = answered.numpy()
    if len(outputs) != len(y):
        raise DataError(
            f"Targets must have one row per sample. X has {len(outputs)} rows, y has {len(y)}. "
            "Check how the two were split."
        )
    weight = np.ones(len(outputs))
    if sample_weight is not None:
        with data_errors():
            weight = checked_weight(sample_weight, outputs)
    predicted = estimator.objective_.decode(outputs)
    if isinstance(estimator.objective_, Numbers):
        return _of_numbers(predicted.reshape(outputs.shape), y, weight)
    probabilities = estimator.model_.probabilities(answered)
    if isinstance(estimator.objective_, Labels):
        return _of_labels(predicted, probabilities, y, weight)
    return _of_classes(estimator.classes_, predicted, probabilities, y, weight)


def _of_classes(
    classes: NDArray[Any],
    predicted: NDArray[Any],
    probabilities: NDArray[np.float64],
    y: Any,
    weight: NDArray[np.float64],
) -> Evaluation:
    y = plain_labels(column_or_1d(exact_targets(y)))
    unknown = [label for label in np.unique(y).tolist() if label not in classes.tolist()]
    if unknown:
        raise DataError(
            f"Targets must be classes the model knows: {few(classes.tolist())}. "
            f"Got {few(unknown)}. Check the target column and its type."
        )
    confusion = metrics.confusion_matrix(y, predicted, labels=classes, sample_weight=weight)
    there = confusion.sum(axis=1) > 0
    recalls = confusion.diagonal()[there] / confusion.sum(axis=1)[there]
    return Evaluation(
        n_rows=_counts(weight.sum()),
        accuracy=float(metrics.accuracy_score(y, predicted, sample_weight=weight)),
        log_loss=float(metrics.log_loss(y, probabilities, labels=classes, sample_weight=weight)),
        per_class=_scores(y, predicted, classes.tolist(), weight, labels=classes),
        confusion=_counts(confusion),
        balanced_accuracy=float(recalls.mean()),
        calibration_error=calibration_error(probabilities.max(axis=1), predicted == y, weight),
    )


def _of_labels(
    predicted: NDArray[Any],
    probabilities: NDArray[np.float64],
    y: Any,
    weight: NDArray[np.float64],
) -> LabelEvaluation:
    with data_errors():
        y = np.asarray(y)
    if y.shape != probabilities.shape or not np.isin(y, (0, 1)).all():
        raise DataError(
            f"Targets must be a matrix of 0 and 1 with {probabilities.shape[1]} columns, one a "
            f"label. Got shape {y.shape}. Check the target."
        )
    y = y.astype(int)
    right = (y == predicted).mean(axis=1)
    tiny = np.finfo(np.float64).tiny
    likelihood = np.where(y == 1, probabilities, 1 - probabilities).clip(tiny)
    f1 = {
        kind: float(
            metrics.f1_score(y, predicted, average=kind, zero_division=0, sample_weight=weight)
        )
        for kind in ("micro", "macro")
    }
    return LabelEvaluation(
        n_rows=_counts(weight.sum()),
        micro_f1=f1["micro"],
        macro_f1=f1["macro"],
        accuracy=float(np.average(right == 1, weights=weight)),
        label_accuracy=float(np.average(right, weights=weight)),
        log_loss=float(np.average(-np.log(likelihood).mean(axis=1), weights=weight)),
        per_label=_scores(y, predicted, list(range(y.shape[1])), weight),
        calibration_error=calibration_error(
            probabilities.ravel(), y.ravel() == 1, np.repeat(weight, y.shape[1])
        ),
    )


@dataclass(frozen=True)
class Reliability:
    """Answers in groups that are about as sure: what they say, how many are right, their mass."""

    sure: NDArray[np.float64]
    right: NDArray[np.float64]
    mass: NDArray[np.float64]

    @classmethod
    def of(
        cls, sure: NDArray[np.float64], right: NDArray[np.bool_], weight: Any = None
    ) -> "Reliability":
        """In bins of equal width, without those that are empty."""
        mass = np.ones(len(sure)) if weight is None else weight
        group = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
        parts = (mass, mass * sure, mass * right)
        sums: Any = np.stack([np.bincount(group, part, BINS) for part in parts])
        total, said, correct = sums[:, sums[0] > 0]
        return cls(said / total, correct / total, total)

    @property
    def error(self) -> float:
        """The expected calibration error (Naeini and others 2015)."""
        return float((self.mass * np.abs(self.sure - self.right)).sum() / self.mass.sum())


def reliability(estimator: Any, X: Any, y: Any) -> Reliability:
    """Of the probabilities of classes or labels: those of answers, or of every label."""
    probabilities = estimator.predict_proba(X)
    if isinstance(estimator.objective_, Labels):
        return Reliability.of(probabilities.ravel(), np.asarray(y).ravel() == 1)
    right = estimator.classes_[probabilities.argmax(axis=1)] == plain_labels(
        column_or_1d(exact_targets(y))
    )
    return Reliability.of(probabilities.max(axis=1), right)


def calibration_error(
    sure: NDArray[np.float64], right: NDArray[np.bool_], weight: NDArray[np.float64] | None = None
) -> float:
    """How far answers are from being as often right as they are sure."""
    return Reliability.of(sure, right, weight).error


def _of_numbers(
    answers: NDArray[np.float64], y: Any, weight: NDArray[np.float64]
) -> NumberEvaluation:
    with data_errors():
        y = np.asarray(y, dtype=np.float64)
    columns = y.reshape(len(y), -1)
    if columns.shape != answers.shape or not np.isfinite(columns).all():
        raise DataError(
            f"Targets must be finite numbers, {answers.shape[1]} a row. Got shape {y.shape}"
            f"{'' if np.isfinite(columns).all() else ' with NaN or infinity'}. Check the target."
        )
    scores = [
        TargetScore(
            float(metrics.r2_score(true, predicted, sample_weight=weight)),
            float(metrics.mean_absolute_error(true, predicted, sample_weight=weight)),
            float(metrics.root_mean_squared_error(true, predicted, sample_weight=weight)),
        )
        for true, predicted in zip(columns.T, answers.T, strict=True)
    ]
    means = {
        name: float(np.mean([getattr(s, name) for s in scores])) for name in ("r2", "mae", "rmse")
    }
    return NumberEvaluation(n_rows=_counts(weight.sum()), **means, per_target=scores)


def _scores(
    y: Any, predicted: Any, names: list[Any], weight: NDArray[np.float64], **options: Any
) -> list[ClassScore]:
    """Precision, recall and F1 of every class or label, and its rows."""
    found = metrics.precision_recall_fscore_support(
        y, predicted, zero_division=0, sample_weight=weight, **options
    )
    return [
        ClassScore(label, float(precision), float(recall), float(f1), _counts(rows))
        for label, precision, recall, f1, rows in zip(names, *found, strict=True)
    ]


def _counts(weights: Any) -> Any:
    """Sums of weights as plain numbers: whole ones where all of them are."""
    sums = np.asarray(weights)
    whole = np.rint(sums)
    return whole.astype(np.int64).tolist() if np.array_equal(sums, whole) else sums.tolist()
