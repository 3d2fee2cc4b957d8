"""The only training loop."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import switched_on
from protopinv.train.capture import CapturedStep
from protopinv.train.guard import Guard
from protopinv.train.history import Ending, History, Recorder
from protopinv.train.rows import Rows
from protopinv.train.schedule import rate_factor
from protopinv.train.step import Step
from protopinv.train.stopping import Best, copied, put_back


@dataclass(frozen=True)
class EpochReport:
    """What an observer may look at; reading a number waits for the device.

    ``state`` is what is being trained, a Bank here; the next step changes it in place. ``n_epochs``
    are to be run at most. ``fold`` is empty unless a fold is trained to choose their number.
    """

    epoch: int
    n_epochs: int
    loss: Float[Tensor, ""]
    validation_score: Float[Tensor, ""] | None
    validation_loss: Float[Tensor, ""] | None
    state: Any
    fold: str = ""


# One that returns True ends the training there.
Observer = Callable[[EpochReport], bool | None]


def train(
    step: Step,
    rows: Rows,
    *,
    clock: Callable[[], float],
    validation: Rows | None = None,
    observer: Observer | None = None,
    epochs: int | None = None,
) -> History:
    """Train ``step.state`` in place, and tell what happened.

    ``epochs`` ends the training before its schedule does.

    With early stopping what is left is the best state on ``validation``, else the last one. After
    Ctrl-C it is the best so far: on ``validation``, or without it by training loss.
    """
    started = clock()
    config = step.config
    run = _Run(step, rows, validation, config.max_epochs if epochs is None else epochs)
    ending: Ending = "finished" if epochs is None else "stopped early"
    try:
        for epoch in range(run.n_epochs):
            report = run.epoch(epoch)
            told_to_stop = observer is not None and bool(observer(report))
            if told_to_stop or (config.early_stopping is True and run.stalled(epoch)):
                ending = "stopped early"
                break
    except KeyboardInterrupt:
        ending = "interrupted"
    run.guard.count()
    keep_best = config.early_stopping is True or ending == "interrupted"
    put_back(step.trained, run.best.tensors if keep_best else step.kept)
    return run.history(ending, keep_best=keep_best, seconds=clock() - started)


class _Run:
    """One training run: what an epoch does, and what is remembered of it."""

    def __init__(self, step: Step, rows: Rows, validation: Rows | None, n_epochs: int) -> None:
        self.step = step
        self.n_epochs = n_epochs
        self.taken = CapturedStep(step, rows) if rows.X.is_cuda and switched_on() else step
        self.rows = rows
        self.validation = validation
        self.best = Best(step.trained)
        self.guard = Guard(step, self.best)
        self.recorder = Recorder()

    def epoch(self, epoch: int) -> EpochReport:
        """One pass over the rows, then judge the state: on validation, or by its training loss.

        The loss of a full-batch epoch is that of the state before the update, so without
        validation it is the state at the start of the epoch that is judged.
        """
        judged = self._judges()
        at_start = copied(self.step.kept) if judged and self.validation is None else ()
        loss, rate = self._pass_over_rows(epoch)
        numbers = {
            "loss": loss,
            "lr": torch.tensor(rate, dtype=torch.float64),
            **self.step.numbers(),
        }
        if self.validation is None:
            self.recorder.add(numbers)
            if judged:
                self.best.offer(at_start, -loss, loss, epoch)
            return EpochReport(epoch, self.n_epochs, loss, None, None, self.step.state)
        score, validation_loss = self.taken.evaluate(self.validation)
        numbers |= {"validation_score": score, "validation_loss": validation_loss}
        self.recorder.add(numbers)
        self.best.offer(self.step.kept, score, validation_loss, epoch)
        state = self.step.state
        return EpochReport(epoch, self.n_epochs, loss, score, validation_loss, state)

    def _judges(self) -> bool:
        """Whether the state is compared with the best so far.

        On a GPU, where a full-batch epoch is over in no time, only when the guard reads anyway.
        """
        many_steps = self.step.config.batch_size is not None
        return self.validation is not None or many_steps or self.guard.due(ahead=1)

    def stalled(self, epoch: int) -> bool:
        """Whether the best epoch is long past; on a GPU asked only when the guard reads anyway."""
        config = self.step.config
        if config.batch_size is None and not self.guard.due():
            return False
        best_epoch = self.best.epoch_on_host()
        return epoch - (-1 if best_epoch is None else best_epoch) >= config.n_iter_no_change

    def history(self, ending: Ending, *, keep_best: bool, seconds: float) -> History:
        """All that was recorded, as plain numbers."""
        columns = self.recorder.columns()
        best_epoch = self.best.epoch_on_host()
        last_epoch = len(columns["loss"]) - 1 if columns else None
        return History(
            **columns,
            seconds=seconds,
            ending=ending,
            best_epoch=best_epoch,
            kept_epoch=best_epoch if keep_best else last_epoch,
            steps=self.guard.steps,
            skipped_steps=self.guard.skipped_steps,
            rate_cuts=self.guard.rate_cuts,
            events=self.guard.events,
        )

    def _pass_over_rows(self, epoch: int) -> tuple[Float[Tensor, ""], float]:
        """The mean loss of the steps that were taken, and the last learning rate."""
        config = self.step.config
        per_epoch = 1 if config.batch_size is None else -(-len(self.rows) // config.batch_size)
        losses = []
        factor = 0.0
        for index, batch in enumerate(self.rows.batches(config.batch_size, self.step.generator)):
            factor = rate_factor(
                epoch * per_epoch + index,
                total=config.max_epochs * per_epoch,
                warmup=config.warmup_epochs * per_epoch,
                schedule=config.schedule,
            )
            report = self.taken(batch, factor)
            losses.append(report.loss)
            self.guard.watch()
            if self.guard.due():
                self.guard.review()
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).nanmean()
        return loss, self.step.optimizer.peak * factor
