"""ProtoPINVClassifier: a closed-form prototype network behind scikit-learn's manners."""

from typing import Any

import numpy as np

from protopinv.callbacks import Callbacks
from protopinv.errors import DataError
from protopinv.estimators.classes import (
    ProbabilisticClassifier,
    class_weights,
    classes_of,
    known_classes,
    labels_of,
)
from protopinv.estimators.door import with_weight
from protopinv.estimators.fitting import ProtoPINV, Saving
from protopinv.estimators.frames import averaged, averaged_names
from protopinv.estimators.parameters import as_estimator, documented
from protopinv.estimators.streams import as_source, is_small, with_class_weight
from protopinv.estimators.table_stream import scaled, with_table
from protopinv.objective import Classes, Labels
from protopinv.shards import ArrowRows, RowSource
from protopinv.train.config import AUTO
from protopinv.train.summary import LabelColumns, LabelCounts
from protopinv.train.survey import Survey


@documented
@as_estimator
class ProtoPINVClassifier(ProbabilisticClassifier, ProtoPINV):
    """A small network whose weights are solved from trained banks of prototypes.

    Adam trains prototype inputs, hidden targets and outputs; every weight matrix is the ridge
    regression from one to the next, solved anew at each step. Takes one class a row, or several
    labels a row as a matrix of 0 and 1.

    Parameters
    ----------
    {parameters}
    class_weight : dict, "balanced" or None, default=None
        What rows of each class count, beside their own weights; "balanced": every class the same.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted; the numbers of the columns for several labels a row.
    network_ : Network
        The plain network on original features, behind ``front_`` if there is one, in float64.
    objective_ : Classes or Labels
        What is asked of its outputs.
    config_ : TrainConfig
        The hyperparameters as they were used: every "auto" settled.
    bank_ : Bank
        The trained prototypes of every member whose mean is predicted, members first.
    front_ : Stem, Squash, Clip or None
        What stands before the network and does not fold into it.
    features_ : FeatureMap
        Scaling and projection before the network, already folded into ``network_``.
    history_ : History
        Loss, learning rate, ridges and validation score of every epoch, and what the guard did.
    n_iter_ : int
        Epochs that were run.
    tried_ : tuple of Tried
        The candidates that were looked at, with the loss of their folds; empty for one alone, and
        in a model that was loaded.
    """

    label_smoothing: float | str = AUTO
    class_weight: Any = None

    def _fit_given(
        self, X: Any, y: Any, sample_weight: Any, callbacks: Callbacks, saving: Saving
    ) -> None:
        source = as_source(X, y, sample_weight, self.columns)
        if source is not None:
            self._fit_labels_of(source, callbacks, saving)
            return
        config, checked = self._prepared(X, y, sample_weight)
        objective = self._objective_of(checked)
        weight = class_weights(self.class_weight, checked.y, checked.weight)
        if weight is not checked.weight:
            checked = with_weight(checked, weight)
            objective = self._objective_of(checked)
        if self._goes_on:
            self._require_same_classes(objective)
        self._fit(checked, objective, config, callbacks, saving)
        self.classes_ = known_classes(objective)

    def _fit_labels_of(self, source: RowSource, callbacks: Callbacks, saving: Saving) -> None:
        """The same for rows in files."""
        if is_small(source):
            self._fit_loaded(source, callbacks, saving)
            return
        if isinstance(source, ArrowRows) and source.is_framed:
            source = self._with_table(source)
        source = with_class_weight(source, self.class_weight)
        targets = LabelCounts() if source.is_column else LabelColumns()

        def objective_of(found: Survey) -> Classes | Labels:
            if isinstance(found.targets, LabelColumns):
                return labels_of(found.targets)
            if not isinstance(found.targets, LabelCounts):
                raise AssertionError("labels were asked for")
            return classes_of(found.targets.labels())

        self._fit_source(source, targets, objective_of, callbacks, saving)
        self.classes_ = known_classes(self.objective_)

    def _with_table(self, source: ArrowRows) -> RowSource:
        """Rows of files with text or dates as the network takes them."""
        if not source.is_column:
            return with_table(source, self.columns, LabelColumns(), scaled)

        def classes(counts: LabelCounts) -> tuple[Any, list[str]]:
            objective = classes_of(counts.labels())
            return lambda y: averaged(objective, y), averaged_names(objective)

        return with_table(source, self.columns, LabelCounts(), classes)

    def _require_same_classes(self, objective: Any) -> None:
        if isinstance(objective, Classes) and not np.array_equal(objective.labels, self.classes_):
            raise DataError(
                f"A warm start needs the classes of the last fit: {self.classes_.tolist()}. y has "
                f"{objective.labels.tolist()}. Set warm_start=False."
            )
