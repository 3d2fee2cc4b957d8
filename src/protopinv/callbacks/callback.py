"""A callback, several as one observer that no failure of theirs can harm, and early stopping."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from protopinv.errors import CallbackWarning, ConfigError
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport, Observer
from protopinv.train.machine import is_first

Monitored = Literal["auto", "loss", "validation_loss", "validation_score"]


@dataclass(frozen=True)
class TrainingStart:
    """What is known when training begins.

    There is one configuration, or several ``candidates`` of which one is kept after screening.
    ``resumed`` says that training goes on from a checkpoint.
    """

    candidates: tuple[TrainConfig, ...]
    n_rows: int
    n_features: int
    resumed: bool = False


class Callback:
    """Is told when a training begins, after every epoch, and when it has ended.

    All methods may be left out. While candidates are screened their epochs are shown too, each with
    its number in ``report.candidate``. The one that is kept goes on with the epoch after its
    screening, and ``candidate`` is None from there on.

    Whatever a callback raises becomes one CallbackWarning, and training goes on without it. Where
    several processes train one model, only the first has callbacks, unless ``on_all_ranks``.
    """

    on_all_ranks = False

    def on_train_begin(self, start: TrainingStart) -> None:
        """Before the first epoch."""

    def on_epoch_end(self, report: EpochReport) -> bool | None:
        """After every epoch; True ends the training there."""

    def on_train_end(self, model: Any) -> None:
        """After a training that has left a fitted ``model``, also one that was stopped early."""

    def on_train_failed(self, error: BaseException) -> None:
        """After a training that has left none, or after this callback has failed: let go of all."""


class Callbacks:
    """An observer, whose errors are errors of the training, and callbacks, whose are not."""

    def __init__(self, observer: Observer | None, callbacks: Iterable[Callback] | None) -> None:
        self._observer = observer
        self._listed = [each for each in _checked(callbacks) if each.on_all_ranks or is_first()]

    @property
    def observer(self) -> Observer | None:
        """What to call after every epoch; None where nobody listens."""
        return self._after_epoch if self._listed else self._observer

    @contextmanager
    def told_of(self, model: Any) -> Iterator[None]:
        """Tell how it has ended: the model that was fitted in here, or the error."""
        try:
            yield
        except BaseException as error:
            self.tell("on_train_failed", error)
            raise
        self.tell("on_train_end", model)

    def _after_epoch(self, report: EpochReport) -> bool:
        stop = self._observer is not None and bool(self._observer(report))
        return any(self.tell("on_epoch_end", report)) or stop

    def tell(self, event: str, value: Any) -> list[Any]:
        """What all of them return; one that fails is told nothing more."""
        answers = []
        for callback in tuple(self._listed):
            try:
                answers.append(getattr(callback, event)(value))
            except Exception as error:  # whatever it is, it must not end a training
                self._listed.remove(callback)
                reason = str(error).strip().partition("\n")[0]
                text = (
                    f"A callback must not fail. {type(callback).__name__} did "
                    f"({type(error).__name__}: {reason}). Training goes on without it."
                )
                warnings.warn(CallbackWarning(text), stacklevel=5)
                with suppress(Exception):
                    callback.on_train_failed(error)
        return answers


def place_of(report: EpochReport) -> tuple[int | None, int]:
    """The number of the candidate, from 1, while several are screened; and of the epoch, from 1."""
    return None if report.candidate is None else report.candidate + 1, report.epoch + 1


def epoch_numbers(report: EpochReport) -> dict[str, float | None]:
    """Losses, score, learning rate and ridges of an epoch, by name; None for what is not known.

    Means over banks that train side by side; ridges are counted from the inputs on.
    """
    ridge = getattr(report.state, "ridge", None)
    layers = [] if ridge is None else ridge.detach().mean(0).tolist()
    return {
        **report.means(),
        "lr": sum(report.lr) / len(report.lr) if report.lr else None,
        **{f"ridge_{number}": value for number, value in enumerate(layers, start=1)},
    }


def _checked(callbacks: Iterable[Callback] | None) -> list[Callback]:
    value: Any = callbacks
    if isinstance(value, Callback) or not (value is None or isinstance(value, Iterable)):
        raise ConfigError(
            f"callbacks must be a list. Got {value!r:.60}. Write callbacks=[...] around it."
        )
    listed = list(value or ())
    for each in listed:
        if isinstance(each, type):
            raise ConfigError(
                f"callbacks must be objects. Got the class {each.__name__}. Write "
                f"{each.__name__}(...)."
            )
        if not isinstance(each, Callback):
            raise ConfigError(
                f"callbacks must be of the class protopinv.callbacks.Callback. Got {each!r:.60}. "
                "Derive from it, or give a function as observer=."
            )
    return listed


class EarlyStop(Callback):
    """Ends a training after ``patience`` epochs in which a number got no better by ``min_delta``.

    ``monitor`` names it; "auto" is the loss of held-out rows, or that of training where none are
    held out. Epochs of screening are not counted. This only says when to end: which epoch is kept
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
        if number is None and report.epoch > 0:
            raise ConfigError(
                f"monitor={name!r} needs rows that are held out. This training holds out none. Set "
                "early_stopping or validation_fraction of the estimator, or monitor='loss'"
            )
        if number is None:  # folds have no score after their first epoch
            return False
        gain = number - self._best if name == "validation_score" else self._best - number
        # after their first epoch folds have no score yet, and "auto" may be another number
        if name != self._name or gain > self.min_delta:
            self._name, self._best, self._waited = name, number, 0
            return False
        self._waited += 1
        return self._waited >= self.patience
