"""ProtoPINVRegressor: numbers from a closed-form prototype network."""

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from protopinv.errors import ConfigError
from protopinv.estimators.base import ProtoPINV
from protopinv.estimators.parameters import as_estimator, documented
from protopinv.model import Model
from protopinv.rows import RowSource
from protopinv.rows.memory import MemoryRows
from protopinv.train.config import TrainConfig
from protopinv.train.loop import Observer
from protopinv.train.targets import NumberStats, Targets, numbers_of


@documented
@as_estimator
class ProtoPINVRegressor(RegressorMixin, ProtoPINV):
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
    model_ : Model
        All that was fitted, as one frozen value.
    network_ : Network
        The plain network on original features, behind ``front_`` if there is one, in float64.
    bank_ : Bank
        The trained prototypes of every member of the ensemble, members first.
    config_ : TrainConfig
        The hyperparameters as they were used: every "auto" resolved.
    candidates_ : tuple of Tried
        The candidates that were screened, with their out-of-fold loss; empty where there was one,
        and in a model that was loaded.
    history_ : History
        Loss, learning rate, ridges and validation score of every epoch, and what the guard did.
    n_iter_ : int
        Epochs that were run.
    objective_ : Numbers
        How targets are scaled, and their loss.
    table_ : Table or None
        How the columns of a frame are encoded; ``print`` shows a line for each.
    features_ : FeatureMap
        Scaling and projection before the network, merged into ``network_``.
    front_ : Stem, Squash, Clip or None
        A stem or tail transform before the network, which cannot be merged.
    memory_ : Memory or None
        The replay memory: Gaussians in place of the rows, for ``partial_fit``.
    n_trained_ : int
        Trainable parameters.
    n_shipped_ : int
        Model size: parameters that are needed to predict.
    n_features_in_ : int
        Columns of ``X`` in ``fit``.
    feature_names_in_ : ndarray
        Names of the columns of ``X`` in ``fit``, where they had any.
    """

    loss: str = TrainConfig.loss
    bounded: bool = True

    def __sklearn_tags__(self) -> Tags:
        """Say that several targets a row are fine."""
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

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

        ``decay`` is the share of the replay memory of earlier rows to forget, for distribution
        drift. After Ctrl-C, or any error, the model is as it was before the call.
        """
        return self._learn(X, y, sample_weight, decay=decay, observer=observer)

    def config(self) -> TrainConfig:
        """The hyperparameters, validated: ConfigError for one outside its range.

        What is "auto" is resolved in ``fit``; ``config_`` has the values that were used.
        """
        if not isinstance(self.bounded, bool | np.bool_):
            raise ConfigError(
                f"bounded must be True or False. Got {self.bounded!r}. Change it, or leave it at "
                "True."
            )
        return super().config()

    def _targets_of(self, rows: RowSource, _: Model | None) -> Targets:
        """Numbers; those in memory become floats."""
        if isinstance(rows, MemoryRows):
            rows.y = numbers_of(rows.y, "y")
        return NumberStats(self.loss, bool(self.bounded), rows.is_column)
