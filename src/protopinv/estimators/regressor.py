"""ProtoPINVRegressor: numbers from a closed-form prototype network."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from protopinv.callbacks import Callback, Callbacks
from protopinv.continual import LearnOptions, learn
from protopinv.estimators.base import ProtoPINV, require_decay
from protopinv.estimators.parameters import as_estimator, hyperparameter, parameter
from protopinv.fitting import fit_rows, training_errors
from protopinv.rows import MemoryRows, RowSource
from protopinv.train.config import FLAG
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

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        observer: Observer | None = None,
        callbacks: Iterable[Callback] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | str = "5min",
        resume: bool = False,
    ) -> Self:
        """Train on rows ``X`` and numbers ``y``, one target a row or several.

        Rows, weights and options are those of ``ProtoPINVClassifier.fit``: ``X`` may be an array, a
        sparse matrix, a frame, images, or a source of rows that brings its targets along;
        ``observer`` and ``callbacks`` watch every epoch; with ``resume`` training continues from
        its ``checkpoint``. After any error the estimator is as it was before.
        """
        watchers = Callbacks(observer, callbacks)
        with watchers.told_of(self):
            start = vars(self).get("model_") if self.warm_start else None
            config, rows = self._rows(X, y, sample_weight, start)
            numbers = self._targets_of(rows)
            options = self._options(
                checkpoint=checkpoint, checkpoint_every=checkpoint_every, resume=resume
            )
            self.model_ = fit_rows(rows, numbers, config, options, start=start, callbacks=watchers)
        return self

    @training_errors()
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
        require_decay(decay)
        model = vars(self).get("model_")
        config, rows = self._rows(X, y, sample_weight, model)
        numbers, options = self._targets_of(rows), self._options()
        if model is None:
            watchers = Callbacks(observer, None)
            self.model_ = fit_rows(rows, numbers, config, options, callbacks=watchers)
        else:
            most, is_bounded = self.max_prototypes, bool(self.bounded)
            how = LearnOptions(
                decay=decay, observer=observer, max_prototypes=most, bounded=is_bounded
            )
            self.model_ = learn(model, rows, config, options, how)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The number of each row, or several, in the units of ``y``."""
        return self._model().objective.decode(self._outputs(X).numpy())

    def _targets_of(self, rows: RowSource) -> Targets:
        """Statistics of numbers; those in memory become floats."""
        if isinstance(rows, MemoryRows):
            rows.y = numbers_of(rows.y, "y")
        return NumberStats(self.loss, bool(self.bounded), rows.is_column)
