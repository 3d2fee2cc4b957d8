"""What classifiers share: labels of every kind, and probabilities."""

from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from torch import Tensor

from protopinv.errors import ConfigError, DataError
from protopinv.estimators.checks import plain_labels
from protopinv.estimators.door import Checked, NetworkEstimator, data_errors
from protopinv.objective import Classes, Labels, Objective
from protopinv.train.summary import NumberStats


class NetworkClassifier(ClassifierMixin, NetworkEstimator):
    """A classifier that leaves a plain network behind."""

    classes_: NDArray[Any]

    def _classes_of(self, checked: Checked) -> Classes:
        """The classes of one label a row."""
        if checked.y.ndim > 1:
            raise DataError(
                f"This classifier takes one class a row. y has {checked.y.shape[1]} columns. Give "
                "one of them, or use ProtoPINVClassifier for several labels a row."
            )
        y = plain_labels(checked.y)
        with data_errors():
            check_classification_targets(y)
        return classes_of(np.unique(y))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Raw outputs, a column a class; for two classes the second minus the first."""
        outputs = self._outputs(X).numpy()
        single = isinstance(self.objective_, Classes) and self.objective_.n_outputs == 2
        return outputs[:, 1] - outputs[:, 0] if single else outputs


class ProbabilisticClassifier(NetworkClassifier):
    """Trained by cross-entropy, so that outputs are logarithms of odds.

    Takes one label a row or, as a matrix of 0 and 1, several at once.
    """

    def __sklearn_tags__(self) -> Tags:
        """Several labels a row are fine."""
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``, or of each label."""
        return self._probabilities(self._outputs(X))

    def _probabilities(self, outputs: Tensor) -> NDArray[np.float64]:
        """Those of rows that were answered."""
        if isinstance(self.objective_, Labels):
            return torch.sigmoid(outputs).numpy()
        return torch.softmax(outputs, dim=1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of ``predict_proba``, without underflow."""
        outputs = self._outputs(X)
        if isinstance(self.objective_, Labels):
            return torch.nn.functional.logsigmoid(outputs).numpy()
        return torch.log_softmax(outputs, dim=1).numpy()

    def _objective_of(self, checked: Checked) -> Objective:
        """One class a row, or several labels."""
        if checked.y.ndim == 1:
            return self._classes_of(checked)
        y = plain_labels(checked.y.ravel()).reshape(checked.y.shape)
        with data_errors():
            kind = type_of_target(y)
        if kind != "multilabel-indicator":
            raise DataError(
                "Several labels a row must be a matrix of 0 and 1, a column a label. y is a "
                f"matrix of another kind ({kind}). For several numbers a row use "
                "ProtoPINVRegressor."
            )
        _check_labels(checked.y)
        return Labels(checked.y.shape[1])


def classes_of(labels: NDArray[Any]) -> Classes:
    """The objective of these classes, sorted; raises DataError if there is only one."""
    if len(labels) < 2:
        raise DataError(
            "A classifier needs at least two classes. y holds only one class: "
            f"{labels[:1].tolist()[0]!r}. Check the target, or use a constant."
        )
    return Classes(narrowed(labels))


def narrowed(labels: NDArray[Any]) -> NDArray[Any]:
    """The same labels; texts of a fixed width no wider than the longest of them."""
    return np.array(labels.tolist()) if labels.dtype.kind == "U" else labels


def labels_of(found: NumberStats) -> Labels:
    """The objective of several labels a row, of which each must vary."""
    constant = np.flatnonzero(found.low == found.high)
    if len(constant):
        column = int(constant[0])
        raise DataError(
            "Every label must be there in some rows and not in others. Column "
            f"{column} of the targets is {int(found.low[column])} in all {found.n} rows. Leave it "
            "out."
        )
    return Labels(len(found.mean))


def known_classes(objective: Objective) -> NDArray[Any]:
    """What ``classes_`` holds: the labels, or the numbers of the columns."""
    if isinstance(objective, Classes):
        return objective.labels
    return np.arange(objective.n_outputs)


def _check_labels(y: NDArray[Any]) -> None:
    """Every label must be there in some rows and not in others."""
    constant = (y == y[0]).all(axis=0)
    if constant.any():
        column = int(np.flatnonzero(constant)[0])
        raise DataError(
            "Every label must be there in some rows and not in others. Column "
            f"{column} of y is {int(y[0, column])} in all {len(y)} rows. Leave it out."
        )


def class_factors(
    class_weight: Any, labels: NDArray[Any], mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What rows of each class count beside their own weights, which have this ``mass``."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        even: NDArray[np.float64] = mass.sum() / (len(mass) * mass)
        return even
    check_class_weight(class_weight)
    known = labels.tolist()
    for label, number in class_weight.items():
        if label not in known:
            raise DataError(
                f"class_weight may name classes of y only: {few(known)}. Got {label!r}. Check "
                "its name and type."
            )
        counts = isinstance(number, Real) and not isinstance(number, bool)
        if not (counts and 0 <= number < np.inf):
            raise ConfigError(
                f"class_weight must be numbers, 0 or more. Class {label!r} has {number!r}. "
                "Change it."
            )
    return np.array([float(class_weight.get(label, 1.0)) for label in known])


def check_class_weight(class_weight: Any, *, is_column: bool = True) -> None:
    """Raise ConfigError for what is neither "balanced" nor a dict, or for several labels a row."""
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    if not balanced and not isinstance(class_weight, dict):
        raise ConfigError(
            "class_weight must be None, 'balanced' or a dict of numbers by class. Got "
            f"{class_weight!r}. Change it, or leave it at None."
        )
    if not is_column:
        raise ConfigError(
            "class_weight goes with one class a row. There are several labels a row. Use "
            "sample_weight, or a column of weights."
        )


def few(values: list[Any]) -> str:
    """The first few, as text."""
    text = ", ".join(map(repr, values[:6]))
    return text + (", ..." if len(values) > 6 else "")
