"""A callback, and several of them as one observer that no failure of theirs can harm."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from protopinv.errors import CallbackWarning, ConfigError
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport, Observer
from protopinv.train.machine import is_first


@dataclass(frozen=True)
class TrainingStart:
    """What is known when training begins.

    There is one configuration, or several ``candidates`` of which one will be kept after a short
    look at each. ``resumed`` says that training goes on from a checkpoint.
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
        listed = _checked(callbacks)
        self._observer = observer
        self._listed = [each for each in listed if each.on_all_ranks or is_first()]

    @property
    def observer(self) -> Observer | None:
        """What to call after every epoch; None where nobody listens."""
        return self._after_epoch if self._listed else self._observer

    def begin(self, start: TrainingStart) -> None:
        """Tell that training begins."""
        self._tell(lambda each: each.on_train_begin(start))

    @contextmanager
    def told_of(self, model: Any) -> Iterator[None]:
        """Tell how it has ended: the model that was fitted in here, or the error."""
        try:
            yield
        except BaseException as error:
            # bound here, since the name is gone behind this block
            failure = error
            self._tell(lambda each: each.on_train_failed(failure))
            raise
        self._tell(lambda each: each.on_train_end(model))

    def _after_epoch(self, report: EpochReport) -> bool:
        stop = self._observer is not None and bool(self._observer(report))
        wishes = self._tell(lambda each: each.on_epoch_end(report))
        return stop or any(wishes)

    def _tell(self, message: Callable[[Callback], Any]) -> list[Any]:
        """All of them; who fails is told nothing more."""
        answers = []
        for callback in tuple(self._listed):
            try:
                answers.append(message(callback))
            except Exception as error:  # whatever it is, it must not end a training
                self._listed.remove(callback)
                _warn(callback, error)
                with suppress(Exception):
                    callback.on_train_failed(error)
        return answers


def numbers_of(report: EpochReport) -> dict[str, float | None]:
    """What is worth keeping of an epoch, by name, and None for what is not known.

    Means over banks that train side by side; ridges are counted from the inputs on.
    """
    ridge = getattr(report.state, "ridge", None)
    layers = [] if ridge is None else ridge.detach().mean(0).tolist()
    return {
        **report.means(),
        "lr": sum(report.lr) / len(report.lr) if report.lr else None,
        **{f"ridge_{number}": value for number, value in enumerate(layers, start=1)},
    }


def _warn(callback: Callback, error: Exception) -> None:
    reason = str(error).strip().splitlines()[:1] or [""]
    warnings.warn(
        CallbackWarning(
            f"A callback must not fail. {type(callback).__name__} did "
            f"({type(error).__name__}: {reason[0]}). Training goes on without it."
        ),
        stacklevel=6,
    )


def _checked(callbacks: Iterable[Callback] | None) -> list[Callback]:
    given: Any = callbacks
    if isinstance(given, Callback) or not (given is None or isinstance(given, Iterable)):
        raise ConfigError(
            f"callbacks must be a list. Got {given!r:.60}. Write callbacks=[...] around it."
        )
    listed = list(given or ())
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
