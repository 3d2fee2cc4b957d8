"""ProtoPINVClassifier: a closed-form prototype network behind scikit-learn's manners."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from protopinv.callbacks import Callbacks
from protopinv.continual import State, with_outputs
from protopinv.continual.banks import without_output
from protopinv.errors import ConfigError, DataError
from protopinv.estimators.checks import plain_labels
from protopinv.estimators.classes import (
    ProbabilisticClassifier,
    check_class_weight,
    class_factors,
    classes_of,
    few,
    known_classes,
    labels_of,
    narrowed,
)
from protopinv.estimators.continuing import Continuing, refuse_classes, require_decay
from protopinv.estimators.door import Checked, all_or_nothing, data_errors, with_weight
from protopinv.estimators.fitting import target_names
from protopinv.estimators.frames import averaged, averaged_names
from protopinv.estimators.parameters import as_estimator, documented
from protopinv.estimators.resuming import Saving
from protopinv.estimators.streams import Weighted, is_small, with_class_weight
from protopinv.estimators.table_stream import unscaled, with_table
from protopinv.memory import Memory
from protopinv.objective import Classes, Labels, Objective
from protopinv.rows import ArrowRows, RowSource
from protopinv.train.config import AUTO
from protopinv.train.loop import Observer
from protopinv.train.summary import LabelColumns, LabelCounts
from protopinv.train.survey import Survey


@documented
@as_estimator
class ProtoPINVClassifier(ProbabilisticClassifier, Continuing):
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
        source = self._source_given(X, y, sample_weight, is_more=self._goes_on)
        if source is not None:
            self._fit_labels_of(source, callbacks, saving)
            return
        config, checked = self._prepared(X, y, sample_weight)
        objective = self._objective_of(checked)
        factors = self._factors(checked, objective)
        if factors is not None:
            checked = counted(checked, objective, factors)
            objective, factors = self._objective_of(checked), factors[factors > 0]
        if self._goes_on:
            self._require_same_classes(objective)
        self._fit(checked, objective, config, callbacks, saving)
        self._remember_rows(factors)
        self.classes_ = known_classes(objective)

    @all_or_nothing
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
        ``decay`` is the share of the memory of earlier rows to forget, for a world that changes.
        After Ctrl-C, or any error, the model is as it was before the call.
        """
        options = {"classes": classes, "decay": require_decay(decay), "observer": observer}
        is_more = hasattr(self, "network_")
        source = self._source_given(X, y, sample_weight, is_more=is_more)
        if source is not None:
            return self._learn_source(source, **options)
        if not is_more:
            return self._fit_first(X, y, classes, sample_weight, observer)
        self._check_own_parameters()
        state, checked = self._state(), self._more(X, y, sample_weight, grows=True)
        if isinstance(self.objective_, Labels):
            refuse_classes(classes)
            self._require_labels(checked.y)
            return self._update(checked, state, decay, observer)
        checked = self._without_weightless(checked)
        state = self._with_classes(state, self._classes_in(checked, classes))
        factors = self._factors(checked, state.objective, state.memory)
        self._update(checked, state, decay, observer, factors)
        self.classes_ = known_classes(self.objective_)
        self.is_closed_ = self.is_closed_ or classes is not None
        return self

    @all_or_nothing
    def forget(self, label: Any) -> Self:
        """Unlearn a class: its memory and its output go, and the others are as they were.

        Rows of this class have still shaped the hidden units; of the memory nothing of it is left.
        Training rows in ``examples_`` go too, all of them: their classes are not stored.
        """
        state, objective = self._state(), self.objective_
        if not isinstance(objective, Classes):
            raise ConfigError("A class can be forgotten. This model has several labels a row.")
        places = np.flatnonzero(objective.labels == label)
        if not len(places) or objective.n_outputs < 3:
            raise DataError(
                "A class of the model can be forgotten while two others are left. Got "
                f"{label!r}, and there are {few(objective.labels.tolist())}. Choose one of these."
            )
        number = int(places[0])
        memory = state.memory.without(number)
        if not len(memory.parts):
            raise DataError(
                "A class can be forgotten while the memory has rows of others. That of this model "
                f"has rows of {few(objective.labels[places].tolist())} alone. Fit again without "
                "them."
            )
        smaller = replace(objective, labels=narrowed(np.delete(objective.labels, number)))
        changed = State(without_output(state.bank, number), memory, smaller, state.n_frozen)
        self._take_state(changed)
        self.examples_ = self.examples_[:0].copy()
        self.classes_ = smaller.labels
        return self

    def _fit_first(
        self, X: Any, y: Any, classes: Any, sample_weight: Any, observer: Observer | None
    ) -> Self:
        """A fit, with room for classes that are to come."""
        if classes is None:
            return self.fit(X, y, sample_weight, observer=observer)
        config, checked = self._prepared(X, y, sample_weight)
        if checked.y.ndim > 1:
            refuse_classes(classes)
        objective = classes_of(self._declared(checked, classes))
        factors = self._factors(checked, objective)
        if factors is not None:
            checked = counted(checked, objective, factors)
        self._fit(checked, objective, config, Callbacks(observer, None), Saving())
        self._remember_rows(factors)
        self.classes_, self.is_closed_ = known_classes(objective), True
        self.target_names_ = target_names(X, y)
        return self

    def _declared(self, checked: Checked, classes: Any) -> NDArray[Any]:
        """The classes a user lists, sorted, which must be all that y has."""
        listed, labels = plain_labels(np.asarray(classes).ravel()), plain_labels(checked.y)
        with data_errors():
            check_classification_targets(labels)
        known = np.unique(listed)
        unlisted = np.setdiff1d(labels, known)
        if len(unlisted):
            raise DataError(
                f"classes must list every class of y: {few(known.tolist())}. y holds "
                f"{few(unlisted.tolist())} too. Add these to classes, or leave it out."
            )
        return known

    def _classes_in(self, checked: Checked, classes: Any) -> NDArray[Any]:
        """Classes of the model and new ones, sorted; raises DataError for uninvited ones."""
        if checked.y.ndim > 1:
            raise DataError(
                f"This model has one class a row. y has {checked.y.shape[1]} columns. Give one "
                "of them."
            )
        labels = plain_labels(checked.y)
        with data_errors():
            check_classification_targets(labels)
        if classes is not None:
            return np.union1d(self.classes_, self._declared_with(checked, classes))
        if (labels.dtype.kind in "OU") != (self.classes_.dtype.kind in "OU"):
            raise DataError(
                f"Labels must be of one kind: this model has {few(self.classes_.tolist())}. y "
                f"holds {few(np.unique(labels).tolist())}. Convert them."
            )
        new = np.setdiff1d(labels, self.classes_)
        if len(new) and self.is_closed_:
            raise DataError(
                f"An earlier call listed all classes: {few(self.classes_.tolist())}. y holds "
                f"{few(new.tolist())}. List these in classes to have them learned."
            )
        return np.union1d(self.classes_, new) if len(new) else self.classes_

    def _declared_with(self, checked: Checked, classes: Any) -> NDArray[Any]:
        listed = np.asarray(classes).ravel()
        return self._declared(checked, np.union1d(self.classes_, plain_labels(listed)))

    def _with_classes(self, state: State, labels: NDArray[Any]) -> State:
        """The same with an output for every class, in their order."""
        objective = state.objective
        if not isinstance(objective, Classes):
            raise AssertionError("classes were asked for")
        if len(labels) == objective.n_outputs:
            return state
        places = torch.from_numpy(np.searchsorted(labels, objective.labels))
        return replace(
            state.with_bank(with_outputs(state.bank, places, len(labels))),
            memory=state.memory.renumbered(places, len(labels)),
            objective=replace(objective, labels=narrowed(labels)),
        )

    def _check_own_parameters(self) -> None:
        super()._check_own_parameters()
        if self.class_weight is not None:
            check_class_weight(self.class_weight)

    def _factors(
        self, checked: Checked, objective: Objective, memory: Memory | None = None
    ) -> Tensor | None:
        """What rows of each class count, by class_weight; of old rows the memory knows how many."""
        if self.class_weight is None:
            return None
        check_class_weight(self.class_weight, is_column=isinstance(objective, Classes))
        labels, n = known_classes(objective), objective.n_groups
        weight = np.ones(len(checked.y)) if checked.weight is None else checked.weight
        mass = np.bincount(objective.encode(checked.y), weight, n).astype(np.float64)
        class_weight = self.class_weight
        if memory is not None:
            mass = mass + memory.masses(n).numpy()
            class_weight = _that_count(class_weight)
        there, factors = mass > 0, np.ones(n)
        factors[there] = class_factors(class_weight, labels[there], mass[there])
        return torch.from_numpy(factors)

    def _without_weightless(self, checked: Checked) -> Checked:
        """Rows without those of classes that count nothing."""
        if not isinstance(self.class_weight, dict) or checked.y.ndim > 1:
            return checked
        weightless = [label for label, number in self.class_weight.items() if number == 0]
        if not weightless:
            return checked
        labels, codes = np.unique(checked.y, return_inverse=True)
        present = np.array([label not in weightless for label in labels.tolist()])[codes]
        weight = np.ones(len(present)) if checked.weight is None else checked.weight
        return with_weight(checked, weight * present)

    def _remember_rows(self, factors: Tensor | None) -> None:
        """The memory counts rows; what their class counts comes in where it is used."""
        if factors is not None and self.memory_ is not None:
            self.memory_ = self.memory_.reweighted(torch.where(factors > 0, 1 / factors, 1.0))

    def _require_labels(self, y: NDArray[Any]) -> None:
        """Raise DataError unless y is a matrix of 0 and 1 as wide as that of the fit."""
        n = self.objective_.n_outputs
        if y.ndim != 2 or y.shape[1] != n or not np.isin(y, (0, 1)).all():
            raise DataError(
                f"This model has {n} labels a row: y must be a matrix of 0 and 1 with {n} columns. "
                f"It has the shape {y.shape}. Give all labels of the fit, and no others."
            )

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
        if isinstance(source, Weighted):
            self._remember_rows(torch.from_numpy(source.factors[source.factors > 0]))
        self.classes_ = known_classes(self.objective_)

    def _with_table(self, source: ArrowRows) -> RowSource:
        """Rows of files with text or dates as the network takes them."""
        if not source.is_column:
            return with_table(source, self.columns, LabelColumns(), unscaled)

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


def counted(checked: Checked, objective: Objective, factors: Tensor) -> Checked:
    """Rows that count as their class does, too, without those that count nothing."""
    weight = factors.numpy()[objective.encode(checked.y)]
    return with_weight(checked, weight if checked.weight is None else checked.weight * weight)


def _that_count(class_weight: Any) -> Any:
    """Without classes that count nothing: once these are left out, no one knows them."""
    if not isinstance(class_weight, dict):
        return class_weight
    return {label: number for label, number in class_weight.items() if number != 0}
