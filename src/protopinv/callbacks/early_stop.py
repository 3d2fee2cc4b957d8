"""End a training that gets no better."""

from typing import Literal, get_args

from protopinv.callbacks.callback import Callback, TrainingStart
from protopinv.errors import ConfigError
from protopinv.train.history import EpochReport

Monitored = Literal["auto", "loss", "validation_loss", "validation_score"]


class EarlyStop(Callback):
    """Ends a training after ``patience`` epochs in which a number got no better by ``min_delta``.

    ``monitor`` names it; "auto" is the loss of held-out rows, or that of training where none are
    held out. Looks at candidates are not counted. This only says when to end: which epoch is kept
    is for the ``early_stopping`` of the estimator, without which it is the last one.

    >>> model.fit(X, y, callbacks=[EarlyStop(patience=20)])
    """

    on_all_ranks = True

    def __init__(
        self, patience: int = 10, *, min_delta: float = 0.0, monitor: Monitored = "auto"
    ) -> None:
        if patience < 1:
            raise ConfigError(f"patience must be 1 or more epochs. Got {patience}. Raise it.")
        if not min_delta >= 0:
            raise ConfigError(f"min_delta must be 0 or more. Got {min_delta}. Raise it.")
        if monitor not in get_args(Monitored):
            raise ConfigError(
                f"monitor must be one of {', '.join(get_args(Monitored))}. Got {monitor!r}. Choose "
                "one of these."
            )
        self.patience, self.min_delta, self.monitor = patience, min_delta, monitor
        self._name, self._best, self._waited = "", 0.0, 0

    def on_train_begin(self, _start: TrainingStart) -> None:
        """Nothing is known yet."""
        self._name = ""

    def on_epoch_end(self, report: EpochReport) -> bool:
        """True once it has waited long enough."""
        if report.candidate is not None:
            return False
        means = report.means()
        name: str = self.monitor
        if name == "auto":
            name = "loss" if means["validation_loss"] is None else "validation_loss"
        number = means[name]
        if number is None:
            return self._unknown(report, name)
        gain = number - self._best if name == "validation_score" else self._best - number
        # after their first epoch folds have said nothing yet, and "auto" may be another number
        if name != self._name or gain > self.min_delta:
            self._name, self._best, self._waited = name, number, 0
            return False
        self._waited += 1
        return self._waited >= self.patience

    def _unknown(self, report: EpochReport, name: str) -> bool:
        """Folds say nothing after their first epoch; where there are none, nothing ever comes."""
        if report.epoch > 0:
            raise ConfigError(
                f"monitor={name!r} needs rows that are held out. This training holds out none. Set "
                "early_stopping or validation_fraction of the estimator, or monitor='loss'"
            )
        return False
