"""ProtoPINVRegressor: numbers from a closed-form prototype network."""

import warnings
from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from protopinv.errors import TextTargetsWarning
from protopinv.estimators.base import ProtoPINV
from protopinv.estimators.parameters import as_estimator, hyperparameter, parameter
from protopinv.estimators.targets import written_numbers
from protopinv.model import Model
from protopinv.rows import ArrowRows, MemoryRows, RowSource
from protopinv.train.config import FLAG, TrainConfig
from protopinv.train.history import Observer
from protopinv.train.targets import NumberStats, Targets, numbers_of


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
    {attributes}
    """

    loss: str = hyperparameter("loss")
    bounded: bool = parameter(
        True, "bool", "Predictions leave the range of y by no more than a tenth of it.", FLAG
    )

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
        return self._learn(X, y, sample_weight, decay, observer)

    def _rows(
        self, X: Any, y: Any, sample_weight: Any, model: Model | None
    ) -> tuple[TrainConfig, RowSource]:
        """Targets of text in files are numbers where they are written as such."""
        if isinstance(X, ArrowRows):
            typed = X.with_number_targets(few_too=True)
            for line in typed.said[len(X.said) :]:
                warnings.warn(TextTargetsWarning(line), stacklevel=3)
            X = typed
        return super()._rows(X, y, sample_weight, model)

    def _targets(self, rows: RowSource, listed: Any = None) -> Targets:  # noqa: ARG002
        """Statistics of numbers; those in memory become floats."""
        if isinstance(rows, MemoryRows):
            rows.y = numbers_of(written_numbers(rows.y), "y")
        return NumberStats(self.loss, bool(self.bounded), rows.is_column)
