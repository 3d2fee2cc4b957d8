"""ProtoPINVClassifier: a closed-form prototype network as a scikit-learn classifier."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from protopinv.continual import forget
from protopinv.errors import DataError
from protopinv.estimators.base import ProtoPINV, fitted
from protopinv.estimators.parameters import as_estimator, documented
from protopinv.estimators.rows import data_errors, plain_labels
from protopinv.model import Model
from protopinv.objective import Classes, Labels
from protopinv.rows import MemoryRows, RowSource
from protopinv.train.config import TrainConfig
from protopinv.train.history import Observer
from protopinv.train.targets import (
    LabelColumns,
    LabelCounts,
    Targets,
    check_class_weight,
)


@documented
@as_estimator
class ProtoPINVClassifier(ClassifierMixin, ProtoPINV):
    """A small network whose weights are solved from trained banks of prototypes.

    Adam trains prototype inputs, hidden targets and outputs; every weight matrix is the ridge
    regression from one to the next, solved anew at each step. Takes one class a row, or several
    labels a row as a matrix of 0 and 1.

    Parameters
    ----------
    {parameters}
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which sample weights are multiplied; "balanced": every class
        counts the same.

    Attributes
    ----------
    {attributes}
    """

    label_smoothing: float | str = TrainConfig.label_smoothing
    class_weight: Any = None

    classes_ = fitted(
        lambda m: m.classes, "ndarray", "The labels, sorted; numbers for several labels a row."
    )

    def __sklearn_tags__(self) -> Tags:
        """Say that several labels a row are fine."""
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``, or of each label."""
        return self._model().probabilities(self._outputs(X))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of ``predict_proba``, without underflow."""
        outputs = self._outputs(X)
        if isinstance(self._model().objective, Labels):
            return torch.nn.functional.logsigmoid(outputs).numpy()
        return torch.log_softmax(outputs, dim=1).numpy()

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Raw outputs, a column a class; for two classes the second minus the first."""
        outputs, objective = self._outputs(X).numpy(), self._model().objective
        single = isinstance(objective, Classes) and objective.n_outputs == 2
        return outputs[:, 1] - outputs[:, 0] if single else outputs

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        decay: float = 0.0,
        observer: Observer | None = None,
    ) -> Self:
        """Learn from more rows, of known classes or new ones, without those of earlier calls.

        The first call is a fit. With ``classes`` there, later ones may bring these and no others;
        without, a class that was never seen is learned as it comes, and ``classes_`` grows.
        ``decay`` is the share of the replay memory of earlier rows to forget, for distribution
        drift. After Ctrl-C, or any error, the model is as it was before the call.
        """
        return self._learn(X, y, sample_weight, decay=decay, observer=observer, classes=classes)

    def forget(self, label: Any) -> Self:
        """Unlearn a class: its replay memory and its output go, and the others are as they were.

        Rows of this class have still shaped the hidden units; of the memory nothing of it is left.
        Training rows that are kept as examples go too, all of them: their classes are not stored.
        """
        return self._become(forget, label)

    def config(self) -> TrainConfig:
        """The hyperparameters, validated: ConfigError for one outside its range.

        What is "auto" is resolved in ``fit``; ``config_`` has the values that were used.
        """
        if self.class_weight is not None:
            check_class_weight(self.class_weight)
        return super().config()

    def _targets_of(self, rows: RowSource, model: Model | None) -> Targets:
        """One class a row, or several labels; those in memory are checked as scikit-learn does."""
        if isinstance(rows, MemoryRows):
            rows.y = _checked_labels(rows.y, is_new=model is None)
        return LabelCounts() if rows.is_column else LabelColumns()

    def _declared(self, targets: Targets, rows: RowSource, classes: Any) -> Targets:
        """Targets with the classes that a user lists."""
        if classes is None:
            return targets
        if not rows.is_column:
            raise DataError(
                "classes lists the classes of one class a row. y has several labels. Leave it out."
            )
        return LabelCounts(np.unique(self._listed_classes(classes)))

    def _listed_classes(self, classes: Any) -> Any:
        return None if classes is None else plain_labels(np.asarray(classes).ravel())


def _checked_labels(y: NDArray[Any], *, is_new: bool) -> NDArray[Any]:
    """Labels as booleans, numbers or strings; raises DataError for what cannot be labels."""
    labels = plain_labels(y.ravel()).reshape(y.shape)
    with data_errors():
        if y.ndim == 1:
            check_classification_targets(labels)
            return labels
        kind = type_of_target(labels)
    if is_new and kind != "multilabel-indicator":
        raise DataError(
            "Several labels a row must be a matrix of 0 and 1, a column a label. y is a matrix of "
            f"another kind ({kind}). For several numbers a row use ProtoPINVRegressor."
        )
    return y
