"""ProtoPINVClassifier: a closed-form prototype network as a scikit-learn classifier."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from protopinv.continual import forget
from protopinv.errors import DataError
from protopinv.estimators.base import ProtoPINV
from protopinv.estimators.parameters import as_estimator, fitted, hyperparameter, parameter
from protopinv.estimators.rows import data_errors
from protopinv.estimators.targets import plain_labels
from protopinv.fitting import training_errors
from protopinv.objective import Classes, Labels
from protopinv.plain import Rule
from protopinv.rows import MemoryRows, RowSource
from protopinv.train.history import Observer
from protopinv.train.targets import LabelColumns, LabelCounts, Targets


@as_estimator
class ProtoPINVClassifier(ClassifierMixin, ProtoPINV):
    """A small network whose weights are solved from trained banks of prototypes.

    Adam trains prototype inputs, hidden targets and outputs; every weight matrix is the ridge
    regression from one to the next, solved anew at each step. Takes one class a row, or several
    labels a row as a matrix of 0 and 1.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}
    """

    label_smoothing: float | str = hyperparameter("label_smoothing")
    class_weight: Any = parameter(
        None,
        "dict, 'balanced' or None",
        "Weights of the classes, by which sample weights are multiplied; balanced: every class "
        "counts the same.",
        Rule(
            lambda v: v is None or isinstance(v, dict) or (isinstance(v, str) and v == "balanced"),
            "None, 'balanced' or a dict of numbers by class",
        ),
    )

    classes_ = fitted("classes", "The labels, sorted; numbers for several labels a row.", "ndarray")

    def __sklearn_tags__(self) -> Tags:
        """Say that several labels a row are fine."""
        tags: Tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

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
        listed = None if classes is None else plain_labels(np.asarray(classes).ravel())
        return self._learn(X, y, sample_weight, decay, observer, listed)

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

    @training_errors()
    def forget(self, label: Any) -> Self:
        """Unlearn a class: its replay memory and its output go, and the others are as they were.

        Rows of this class have still shaped the hidden units; of the memory nothing of it is left.
        Training rows that are kept as examples go too, all of them: their classes are not stored.
        """
        self.model_ = forget(self._model(), label)
        return self

    def _targets(self, rows: RowSource, listed: Any = None) -> Targets:
        """Statistics of labels: one class a row, of those ``listed`` if any are, or several labels.

        Classes in memory are checked as scikit-learn does.
        """
        if isinstance(rows, MemoryRows) and rows.is_column:
            rows.y = plain_labels(rows.y)
            with data_errors():
                check_classification_targets(rows.y)
        if listed is None:
            return LabelCounts() if rows.is_column else LabelColumns()
        if not rows.is_column:
            raise DataError(
                "classes lists the classes of one class a row. y has several labels. Leave it out."
            )
        return LabelCounts(np.unique(listed))
