"""The scorer: how good a model is on rows with known targets, in the measures of its task.

``evaluate`` in Python, ``protopinv evaluate`` and the page of a report take their figures from
here, and ``score`` of the estimators is one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.utils.validation import column_or_1d

from protopinv.errors import DataError
from protopinv.estimators.rows import data_errors
from protopinv.estimators.targets import (
    checked_weight,
    exact_targets,
    plain_labels,
    written_numbers,
)
from protopinv.model import Model
from protopinv.objective import Labels, Numbers, Objective
from protopinv.train.targets import few

# Bins of equal width for the calibration curve.
BINS = 15

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassScore:
    """Precision, recall and F1 of one class or label, and its rows."""

    label: Any
    precision: float
    recall: float
    f1: float
    n_rows: float


@dataclass(frozen=True)
class CalibrationBin:
    """A point of the calibration curve: predictions of about the same probability.

    The mean of their probabilities, the share of them that is right, and how many there are.
    """

    probability: float
    accuracy: float
    n_rows: float


@dataclass(frozen=True)
class Evaluation:
    """One class a row; ``confusion[i][j]`` counts rows of class i that are predicted as class j.

    ``calibration_error`` is how far the probability of predictions is from the share of them that
    is right, on average over the bins of the ``calibration`` curve.
    """

    n_rows: float
    accuracy: float
    log_loss: float
    per_class: list[ClassScore]
    confusion: list[list[float]]
    balanced_accuracy: float
    calibration_error: float
    calibration: list[CalibrationBin]


@dataclass(frozen=True)
class LabelEvaluation:
    """Several labels a row: all of them right, each by itself, and F1 over all or the mean.

    ``calibration_error`` is how far the probability of a label is from how often it is there, on
    average over the bins of the ``calibration`` curve.
    """

    n_rows: float
    micro_f1: float
    macro_f1: float
    accuracy: float
    label_accuracy: float
    log_loss: float
    per_label: list[ClassScore]
    calibration_error: float
    calibration: list[CalibrationBin]


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
    per_target: list[TargetScore]


@dataclass(frozen=True)
class Predictions:
    """Predictions of a model for rows whose targets are known, and the loss of each row.

    Targets are checked. Numbers have a column for each target, and no probabilities. The loss is
    the cross-entropy, or the squared error over the variance.
    """

    model: Model
    truth: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: Floats
    losses: Floats
    weight: Floats


def evaluate(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
    """Score a fitted estimator on rows ``X`` with true targets ``y``, each by its weight.

    Gives an Evaluation for classes, a LabelEvaluation for several labels a row, and a
    NumberEvaluation for numbers. What is judged are the predictions of ``predict``. A row of weight
    two is the same row twice, in counts of rows too.
    """
    return score(predictions(estimator, X, y, sample_weight))


def predictions(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> Predictions:
    """Predict rows with known targets; DataError for targets and weights that do not fit."""
    outputs = estimator._outputs(X)
    model: Model = estimator.model_
    if len(outputs) != len(y):
        raise DataError(
            f"Targets must have one row per sample. X has {len(outputs)} rows, y has {len(y)}. "
            "Check how the two were split."
        )
    weight = np.ones(len(outputs))
    if sample_weight is not None:
        with data_errors():
            weight = checked_weight(sample_weight, outputs.numpy())
    objective = model.objective
    predicted, probabilities = objective.decode(outputs.numpy()), np.empty((0, 0))
    if isinstance(objective, Numbers):
        predicted = predicted.reshape(outputs.shape)
        truth = _true_numbers(y, predicted.shape)
        spread = truth.std(axis=0)
        losses = np.square((predicted - truth) / np.where(spread > 0, spread, 1)).mean(axis=1)
        return Predictions(model, truth, predicted, probabilities, losses, weight)
    probabilities = model.probabilities(outputs)
    if isinstance(objective, Labels):
        truth = _true_labels(y, probabilities.shape)
        likelihood = np.where(truth == 1, probabilities, 1 - probabilities)
        losses = -np.log(likelihood.clip(np.finfo(np.float64).tiny)).mean(axis=1)
    else:
        truth = _true_classes(y, model.classes)
        likelihood = probabilities[np.arange(len(truth)), objective.encode(truth)]
        losses = -np.log(likelihood.clip(np.finfo(np.float64).eps))  # as scikit-learn clips it
    return Predictions(model, truth, predicted, probabilities, losses, weight)


def score(rows: Predictions) -> Any:
    """Every figure of the task: what ``evaluate`` returns."""
    if isinstance(rows.model.objective, Numbers):
        return _score_numbers(rows)
    if isinstance(rows.model.objective, Labels):
        return _score_labels(rows)
    return _score_classes(rows)


def plain_score(
    objective: Objective, truth: NDArray[Any], predicted: NDArray[Any], weight: Any = None
) -> float:
    """What ``score`` of the estimators gives: accuracy (of all labels at once), or the mean R2."""
    if isinstance(objective, Numbers):
        return float(metrics.r2_score(truth, predicted, sample_weight=weight))
    right = (truth == predicted).reshape(len(truth), -1).all(axis=1)
    return float(np.average(right, weights=weight))


def _score_classes(rows: Predictions) -> Evaluation:
    classes = rows.model.classes
    confusion = metrics.confusion_matrix(
        rows.truth, rows.predicted, labels=classes, sample_weight=rows.weight
    )
    per_class = _class_scores(rows, classes.tolist(), labels=classes)
    right = rows.predicted == rows.truth
    curve = calibration_curve(rows.probabilities.max(axis=1), right, rows.weight)
    return Evaluation(
        n_rows=_counts(rows.weight.sum()),
        accuracy=plain_score(rows.model.objective, rows.truth, rows.predicted, rows.weight),
        log_loss=float(np.average(rows.losses, weights=rows.weight)),
        per_class=per_class,
        confusion=_counts(confusion),
        balanced_accuracy=float(np.mean([each.recall for each in per_class if each.n_rows > 0])),
        calibration_error=calibration_error(curve),
        calibration=curve,
    )


def _score_labels(rows: Predictions) -> LabelEvaluation:
    right = rows.truth == rows.predicted
    scores = _class_scores(rows, list(range(rows.truth.shape[1])))
    micro = metrics.f1_score(
        rows.truth, rows.predicted, average="micro", zero_division=0, sample_weight=rows.weight
    )
    weights = np.repeat(rows.weight, len(scores))
    curve = calibration_curve(rows.probabilities.ravel(), rows.truth.ravel() == 1, weights)
    return LabelEvaluation(
        n_rows=_counts(rows.weight.sum()),
        micro_f1=float(micro),
        macro_f1=float(np.mean([label.f1 for label in scores])),
        accuracy=plain_score(rows.model.objective, rows.truth, rows.predicted, rows.weight),
        label_accuracy=float(np.average(right.mean(axis=1), weights=rows.weight)),
        log_loss=float(np.average(rows.losses, weights=rows.weight)),
        per_label=scores,
        calibration_error=calibration_error(curve),
        calibration=curve,
    )


def _score_numbers(rows: Predictions) -> NumberEvaluation:
    measures = (metrics.r2_score, metrics.mean_absolute_error, metrics.root_mean_squared_error)
    figures = [
        measure(rows.truth, rows.predicted, sample_weight=rows.weight, multioutput="raw_values")
        for measure in measures
    ]
    # R2 of a single row is one NaN for all targets
    columns = np.stack(np.broadcast_arrays(*figures))
    targets = [TargetScore(*each) for each in columns.T.tolist()]
    r2, mae, rmse = columns.mean(axis=1).tolist()
    return NumberEvaluation(_counts(rows.weight.sum()), r2, mae, rmse, targets)


def _class_scores(rows: Predictions, names: list[Any], **options: Any) -> list[ClassScore]:
    columns = metrics.precision_recall_fscore_support(
        rows.truth, rows.predicted, zero_division=0, sample_weight=rows.weight, **options
    )
    return [
        ClassScore(label, float(precision), float(recall), float(f1), _counts(n_rows))
        for label, precision, recall, f1, n_rows in zip(names, *columns, strict=True)
    ]


def calibration_curve(
    probability: Floats, right: NDArray[np.bool_], weight: Floats
) -> list[CalibrationBin]:
    """Predictions in bins of equal width by their probability, without empty ones."""
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    parts = (weight, weight * probability, weight * right)
    sums = np.stack([np.bincount(place, part, BINS) for part in parts])
    mass, total, correct = sums[:, sums[0] > 0]
    points = zip((total / mass).tolist(), (correct / mass).tolist(), _counts(mass), strict=True)
    return [CalibrationBin(*point) for point in points]


def calibration_error(curve: Sequence[CalibrationBin]) -> float:
    """Expected calibration error (Naeini and others 2015)."""
    gaps = [abs(each.probability - each.accuracy) for each in curve]
    return float(np.average(gaps, weights=[each.n_rows for each in curve]))


def _true_classes(y: Any, classes: NDArray[Any]) -> NDArray[Any]:
    truth = plain_labels(column_or_1d(exact_targets(y)))
    unknown = [label for label in np.unique(truth).tolist() if label not in classes.tolist()]
    if unknown:
        raise DataError(
            f"Targets must be classes the model knows: {few(classes.tolist())}. "
            f"Got {few(unknown)}. Check the target column and its type."
        )
    return truth


def _true_labels(y: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    with data_errors():
        truth = np.asarray(y)
    if truth.shape != shape or not np.isin(truth, (0, 1)).all():
        raise DataError(
            f"Targets must be a matrix of 0 and 1 with {shape[1]} columns, one a "
            f"label. Got shape {truth.shape}. Check the target."
        )
    return truth.astype(int)


def _true_numbers(y: Any, shape: tuple[int, ...]) -> Floats:
    with data_errors():
        truth = np.asarray(written_numbers(np.asarray(y)), dtype=np.float64)
    columns = truth.reshape(len(truth), -1)
    if columns.shape != shape or not np.isfinite(columns).all():
        raise DataError(
            f"Targets must be finite numbers, {shape[1]} a row. Got shape {truth.shape}"
            f"{'' if np.isfinite(columns).all() else ' with NaN or infinity'}. Check the target."
        )
    return columns


def _counts(weights: Any) -> Any:
    """Sums of weights as plain numbers: integers where all of them are."""
    sums = np.asarray(weights)
    rounded = np.rint(sums)
    return rounded.astype(np.int64).tolist() if np.array_equal(sums, rounded) else sums.tolist()
