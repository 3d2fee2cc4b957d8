"""ProtoPINVRegressor: numbers from a closed-form prototype network."""

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from protopinv.callbacks import Callbacks
from protopinv.errors import ConfigError, DataError
from protopinv.estimators.continuing import Continuing, require_decay
from protopinv.estimators.door import all_or_nothing
from protopinv.estimators.parameters import as_estimator, documented
from protopinv.estimators.resuming import Saving
from protopinv.estimators.streams import is_small
from protopinv.estimators.table_stream import scaled, with_table
from protopinv.objective import Numbers
from protopinv.rows import ArrowRows, RowSource
from protopinv.train.config import TrainConfig
from protopinv.train.loop import Observer
from protopinv.train.summary import NumberStats
from protopinv.train.survey import SAMPLE_ROWS, Survey


@documented
@as_estimator
class ProtoPINVRegressor(RegressorMixin, Continuing):
    """A small network for numbers, with weights solved from trained banks of prototypes.

    Adam trains prototype inputs, hidden targets and outputs; every weight matrix is the ridge
    regression from one to the next, solved anew at each step. Takes one target a row or several;
    they are scaled inside, and predictions come in the units of ``y``. They stay near the range of
    ``y`` unless ``bounded`` is False; ``network_`` itself knows no bounds.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    network_ : Network
        The plain network on original features, behind ``front_`` if there is one, in float64.
    objective_ : Numbers
        How targets are scaled, and their loss.
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

    loss: str = TrainConfig.loss
    bounded: bool = True

    def __sklearn_tags__(self) -> Tags:
        """Several targets a row are fine."""
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _fit_given(
        self, X: Any, y: Any, sample_weight: Any, callbacks: Callbacks, saving: Saving
    ) -> None:
        source = self._source_given(X, y, sample_weight, is_more=self._goes_on)
        if source is not None:
            self._fit_numbers_of(source, callbacks, saving)
            return
        config, checked = self._prepared(X, y, sample_weight)
        numbers = _numbers(checked.y)
        objective = Numbers.of(numbers, checked.weight, config.loss)
        known = getattr(self, "objective_", None)
        if self.warm_start and known is not None and known.n_outputs == objective.n_outputs:
            # the banks there are speak in the units of the last fit
            objective = replace(known, loss=config.loss, is_column=objective.is_column)
        objective = objective.bounded_by(numbers) if self.bounded else _unbounded(objective)
        _check_scaling(objective, numbers)
        checked = replace(checked, y=numbers)
        self._fit(checked, objective, config, callbacks, saving)

    @all_or_nothing
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        decay: float = 0.0,
        observer: Observer | None = None,
    ) -> Self:
        """Learn from more rows without those of earlier calls; the first call is a fit.

        ``decay`` is the share of the memory of earlier rows to forget, for a world that changes.
        After Ctrl-C, or any error, the model is as it was before the call.
        """
        decay = require_decay(decay)
        is_more = hasattr(self, "network_")
        source = self._source_given(X, y, sample_weight, is_more=is_more)
        if source is not None:
            return self._learn_source(source, decay=decay, observer=observer)
        if not is_more:
            return self.fit(X, y, sample_weight, observer=observer)
        self._check_own_parameters()
        state, checked = self._state(), self._more(X, y, sample_weight, grows=True)
        numbers, objective = _numbers(checked.y), self.objective_
        if not isinstance(objective, Numbers):
            raise AssertionError("numbers were asked for")
        n_targets = 1 if numbers.ndim == 1 else numbers.shape[1]
        if n_targets != objective.n_outputs:
            raise DataError(
                f"This model has {objective.n_outputs} targets a row. y has {n_targets}. Give "
                "those of the fit."
            )
        _check_scaling(objective, numbers)
        objective = objective.bounded_by(numbers) if self.bounded else objective
        checked = replace(checked, y=numbers)
        return self._update(checked, replace(state, objective=objective), decay, observer)

    def _check_own_parameters(self) -> None:
        super()._check_own_parameters()
        if not isinstance(self.bounded, bool | np.bool_):
            raise ConfigError(
                f"bounded must be True or False. Got {self.bounded!r}. Change it, or leave it at "
                "True."
            )

    def _fit_numbers_of(self, source: RowSource, callbacks: Callbacks, saving: Saving) -> None:
        """The same for rows in files."""
        if is_small(source):
            self._fit_loaded(source, callbacks, saving)
            return
        if isinstance(source, ArrowRows) and source.is_framed:
            source = with_table(source, self.columns, NumberStats(), scaled)

        def objective_of(found: Survey) -> Numbers:
            stats, sample = found.targets, found.sample
            if not isinstance(stats, NumberStats) or sample is None:
                raise AssertionError("numbers were asked for")
            some = sample.lowest(SAMPLE_ROWS)
            columns = np.asarray(some.y, dtype=np.float64).reshape(len(some), -1)
            objective = Numbers.from_moments(
                stats.mean,
                stats.scatter / stats.mass,
                stats.n,
                self.loss,
                some=(columns, some.weight / some.weight.sum()),
                is_column=source.is_column,
            )
            ends = np.stack([stats.low, stats.high])
            _check_scaling(objective, ends)
            return objective.bounded_by(ends) if self.bounded else objective

        self._fit_source(source, NumberStats(), objective_of, callbacks, saving)


def _check_scaling(objective: Numbers, numbers: NDArray[np.float64]) -> None:
    scaling = (*objective.centre, *objective.spread, *objective.variance)
    if not (np.isfinite(scaling).all() and np.isfinite(objective.encode(numbers)).all()):
        raise DataError(
            "Targets must be small enough to be squared, at most about 1e150. y holds larger "
            "ones. Rescale it."
        )


def _unbounded(objective: Numbers) -> Numbers:
    return replace(objective, low=None, high=None)


def _numbers(y: NDArray[Any]) -> NDArray[np.float64]:
    try:
        numbers: NDArray[np.float64] = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"Targets must be numbers. y holds {y.dtype.name} such as {y.flat[0]!r}. Convert them, "
            "or use ProtoPINVClassifier for classes."
        ) from error
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers.reshape(len(y), -1)).all(axis=1))[0])
        raise DataError(
            f"Targets must be finite numbers. Row {row} of y is {y[row]}: NaN or infinity. Fill it "
            "in or leave the row out."
        )
    return numbers
