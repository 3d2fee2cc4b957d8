"""How answers are scored, by task; the first measure of a task is the one that ranks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from benchmarks.tables.suite import Task

MEASURES: dict[Task, tuple[str, ...]] = {
    "classification": ("accuracy", "balanced_accuracy", "log_loss", "roc_auc"),
    "regression": ("r2", "rmse"),
    "multi-label": ("micro_f1", "macro_f1"),
}
LOWER_IS_BETTER = ("log_loss", "rmse")
# A probability of zero for what happened would cost without bound.
LEAST_PROBABILITY = 1e-15

Numbers = NDArray[Any]


def scores(
    task: Task, truth: Numbers, answers: Numbers, probabilities: Numbers | None
) -> dict[str, float]:
    """Every measure of the task; log loss and ROC AUC, of two classes, need probabilities."""
    if task == "regression":
        return {
            "r2": float(r2_score(truth, answers)),
            "rmse": float(root_mean_squared_error(truth, answers)),
        }
    if task == "multi-label":
        return {
            f"{kind}_f1": float(f1_score(truth, answers, average=kind, zero_division=0))
            for kind in ("micro", "macro")
        }
    shares = {
        "accuracy": float(accuracy_score(truth, answers)),
        "balanced_accuracy": mean_recall(truth, answers),
    }
    if probabilities is None:
        return shares
    if probabilities.shape[1] == len(np.unique(truth)) == 2:
        second = probabilities[:, 1] / probabilities.sum(axis=1)
        shares["roc_auc"] = float(roc_auc_score(truth, second))
    return {**shares, "log_loss": log_loss(truth, probabilities)}


def mean_recall(truth: Numbers, answers: Numbers) -> float:
    """The share of right answers in a class, averaged over the classes there are."""
    return float(np.mean([(answers[truth == c] == c).mean() for c in np.unique(truth)]))


def log_loss(truth: Numbers, probabilities: Numbers) -> float:
    """The mean of -log p for what is true; classes are 0, 1, ..., a column each."""
    p = np.asarray(probabilities, dtype=np.float64)
    share = p[np.arange(len(truth)), truth] / p.sum(axis=1)
    return float(-np.log(np.maximum(share, LEAST_PROBABILITY)).mean())
