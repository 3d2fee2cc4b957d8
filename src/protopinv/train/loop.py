"""The only training loop."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture
from protopinv.train.config import TrainConfig
from protopinv.train.guard import Guard
from protopinv.train.history import Ending, History, Recorder
from protopinv.train.losses import CrossEntropy
from protopinv.train.rows import Rows, chunk_rows
from protopinv.train.schedule import rate_factor
from protopinv.train.step import Step
from protopinv.train.stopping import BestBank


@dataclass(frozen=True)
class EpochReport:
    """What a progress display may show; reading a number waits for the device."""

    epoch: int
    loss: Float[Tensor, ""]
    validation_score: Float[Tensor, ""] | None


def train(
    bank: Bank,
    rows: Rows,
    config: TrainConfig,
    *,
    loss: CrossEntropy,
    architecture: Architecture,
    generator: Generator,
    clock: Callable[[], float],
    validation: Rows | None = None,
    observer: Callable[[EpochReport], None] | None = None,
) -> tuple[Bank, History]:
    """Train a copy of ``bank`` on ``rows``; the trained bank and what happened.

    With early stopping the bank returned is the best on ``validation``, else the last one. After
    Ctrl-C it is the best so far: on ``validation``, or without it by training loss.
    """
    started = clock()
    chunk = chunk_rows(max(rows.X.shape[1], *config.widths), rows.X.dtype, rows.X.device)
    step = Step(bank.leaves(), architecture, config, loss, chunk=chunk, generator=generator)
    run = _Run(step, rows, validation)
    ending: Ending = "finished"
    try:
        for epoch in range(config.max_epochs):
            report = run.epoch(epoch)
            if observer is not None:
                observer(report)
            if config.early_stopping and run.stalled(epoch):
                ending = "stopped early"
                break
    except KeyboardInterrupt:
        ending = "interrupted"
    run.guard.count()
    keep_best = config.early_stopping or ending == "interrupted"
    kept = run.best.bank if keep_best else step.bank.snapshot()
    return kept, run.history(ending, keep_best=keep_best, seconds=clock() - started)


class _Run:
    """One training run: what an epoch does, and what is remembered of it."""

    def __init__(self, step: Step, rows: Rows, validation: Rows | None) -> None:
        self.step = step
        self.rows = rows
        self.validation = validation
        self.best = BestBank(step.bank)
        self.guard = Guard(step, self.best)
        self.recorder = Recorder()

    def epoch(self, epoch: int) -> EpochReport:
        """One pass over the rows, then judge the bank: on validation, or by its training loss.

        The loss of a full-batch epoch is that of the bank before the update, so without validation
        it is the bank at the start of the epoch that is judged.
        """
        at_start = self.step.bank.snapshot()
        loss, rate = self._pass_over_rows(epoch)
        numbers = {
            "loss": loss,
            "lr": torch.tensor(rate, dtype=torch.float64),
            "ridge": self.step.bank.ridge,
        }
        if self.validation is None:
            self.recorder.add(numbers)
            self.best.offer(at_start, -loss, loss, epoch)
            return EpochReport(epoch, loss, None)
        score, validation_loss = self.step.evaluate(self.validation)
        numbers |= {"validation_score": score, "validation_loss": validation_loss}
        self.recorder.add(numbers)
        self.best.offer(self.step.bank, score, validation_loss, epoch)
        return EpochReport(epoch, loss, score)

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
            report = self.step(batch, factor)
            losses.append(report.loss)
            self.guard.watch(report)
            if self.guard.due():
                self.guard.review()
        return torch.stack(losses).nanmean(), self.step.optimizer.peak * factor
