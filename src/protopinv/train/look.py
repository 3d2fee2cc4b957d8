"""A short look at several candidates, after which one of them is kept."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Event, Lock

import torch

from protopinv.errors import TrainingError
from protopinv.train.checkpoint import Checkpoints
from protopinv.train.config import TrainConfig
from protopinv.train.loop import EpochReport, Observer, Run
from protopinv.train.threads import set_own_threads

# Candidates are trained for this share of their epochs before one is kept, or for fewer if these
# have so many steps. On 61 public tables the loss in folds after 50 of 250 epochs chose as well as
# at the end.
LOOK = 0.2
LOOK_STEPS = 60
LEAST_LOOK = 4


@dataclass(frozen=True)
class Tried:
    """A candidate, and the lowest loss of its folds while it was looked at; Inf if it failed."""

    config: TrainConfig
    held_loss: float


def look_epochs(max_epochs: int, steps_an_epoch: int) -> int:
    """Epochs after which candidates are compared."""
    enough = max(LEAST_LOOK, math.ceil(LOOK_STEPS / steps_an_epoch))
    return min(max_epochs, enough, max(1, math.ceil(LOOK * max_epochs)))


def best_of(
    candidates: Sequence[TrainConfig],
    begun: Callable[[TrainConfig], Run],
    loss_of: Callable[[Run], float],
    observer: Observer | None,
    *,
    workers: int = 1,
    checkpoints: Checkpoints | None = None,
    stop: Event,
) -> tuple[Run, tuple[Tried, ...]]:
    """The training to go on with: that of the only candidate, or of the one that looks best.

    ``loss_of`` says how good one is after its look, the lowest being best. A candidate that cannot
    be trained is passed over, unless none can. With ``checkpoints`` looks are taken one after
    another, and go on where they were. Once ``stop`` is set all trainings end after their next
    step.
    """
    if len(candidates) == 1:
        run = begun(candidates[0])
        return run if checkpoints is None else checkpoints.watch(0, run), ()
    looks = _Looks(candidates, begun, loss_of, observer, checkpoints, stop)
    looks.take_all(min(workers if checkpoints is None else 1, len(candidates)))
    return looks.best()


class _Looks:
    """What is known of every candidate; looks may be taken by several threads."""

    def __init__(
        self,
        candidates: Sequence[TrainConfig],
        begun: Callable[[TrainConfig], Run],
        loss_of: Callable[[Run], float],
        observer: Observer | None,
        checkpoints: Checkpoints | None,
        stop: Event,
    ) -> None:
        self._checkpoints = checkpoints
        self._stop = stop
        self._losses: dict[int, float] = {}
        self._candidates = candidates
        self._begun = begun
        self._loss_of = loss_of
        self._observer = observer
        self._lock = Lock()
        self._runs: dict[int, Run] = {}
        self._errors: list[TrainingError] = []
        self._is_over = self._was_interrupted = False

    def take(self, number: int) -> None:
        """Train one candidate for a while, unless all was told to end."""
        if self._is_over:
            return
        lost = None if self._checkpoints is None else self._checkpoints.lost(number)
        if lost is not None:
            self._losses[number] = lost
            return
        try:
            run = self._begun(self._candidates[number])
            if self._checkpoints is not None:
                run = self._checkpoints.watch(number, run)
            steps = run.rows.n_batches(run.step.config.batch_size)
            run.advance(look_epochs(run.n_epochs, steps), observer=self._observed(number))
        except TrainingError as error:
            self._errors.append(error)
            if self._checkpoints is not None:
                self._checkpoints.look_is_over(number, math.inf)
                self._checkpoints.drop(number)
            return
        self._losses[number] = self._loss_of(run)
        self._runs[number] = run
        self._is_over = self._is_over or run.told_to_stop
        if run.was_interrupted:
            self._is_over = self._was_interrupted = True
        elif self._checkpoints is not None:
            self._losses[number] = self._checkpoints.look_is_over(number, self._losses[number])

    def take_all(self, workers: int) -> None:
        """Look at all candidates, here or in threads; Ctrl-C comes to this one and ends them."""
        numbers, own = range(len(self._candidates)), (torch.get_num_threads(),)
        with ThreadPoolExecutor(workers, initializer=set_own_threads, initargs=own) as pool:
            look = map if workers == 1 else pool.map
            try:
                for _ in look(self.take, numbers):
                    pass
            except KeyboardInterrupt:
                self._is_over = self._was_interrupted = True
                self._stop.set()

    def best(self) -> tuple[Run, tuple[Tried, ...]]:
        """The one with the lowest loss, the first of several, and what there was to choose from."""
        if not self._runs:
            raise KeyboardInterrupt if self._was_interrupted else self._errors[0]
        losses = self._losses
        best = min(self._runs, key=lambda number: (losses[number], number))
        chosen = self._runs[best]
        if self._is_over:
            chosen.end("interrupted" if self._was_interrupted else "stopped early")
        elif self._checkpoints is not None:
            for number in set(self._runs) - {best}:
                self._checkpoints.drop(number)
        tried = (
            Tried(config, losses.get(number, math.inf))
            for number, config in enumerate(self._candidates)
        )
        return chosen, tuple(tried)

    def _observed(self, number: int) -> Observer:
        """Reports with the number of the candidate, one at a time; True once all shall end."""

        def observe(report: EpochReport) -> bool:
            with self._lock:
                if self._observer is not None and not self._is_over:
                    self._is_over = bool(self._observer(replace(report, look=number)))
            return self._is_over

        return observe
