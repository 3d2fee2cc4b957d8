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
    leaves = bank.leaves()
    chunk = chunk_rows(max(rows.X.shape[1], *config.widths), rows.X.dtype, rows.X.device)
    step = Step(leaves, architecture, config, loss, chunk=chunk, generator=generator)
    best = BestBank(leaves)
    guard = Guard(step, best)
    recorder = Recorder()
    rates: list[float] = []
    ending: Ending = "finished"
    try:
        for epoch in range(config.max_epochs):
            at_start = leaves.snapshot()
            mean_loss, factor = _run_epoch(step, guard, rows, epoch)
            if validation is None:
                best.offer(at_start, -mean_loss, mean_loss, epoch)
                report = EpochReport(epoch, mean_loss, None)
            else:
                score, validation_loss = step.evaluate(validation)
                best.offer(leaves, score, validation_loss, epoch)
                recorder.add(validation_score=score, validation_loss=validation_loss)
                report = EpochReport(epoch, mean_loss, score)
            recorder.add(loss=mean_loss, ridge=leaves.ridge)
            rates.append(step.optimizer.peak * factor)
            if observer is not None:
                observer(report)
            if config.early_stopping and guard.due() and _stalled(best, epoch, config):
                ending = "stopped early"
                break
    except KeyboardInterrupt:
        ending = "interrupted"
    guard.review()
    keep_best = config.early_stopping or ending == "interrupted"
    best_epoch = best.best_epoch()
    history = History(
        loss=recorder.floats("loss"),
        lr=rates,
        ridge=recorder.floats("ridge"),
        validation_score=recorder.floats("validation_score"),
        validation_loss=recorder.floats("validation_loss"),
        seconds=clock() - started,
        ending=ending,
        best_epoch=best_epoch,
        kept_epoch=best_epoch if keep_best else len(rates) - 1,
        steps=guard.steps,
        skipped_steps=guard.skipped_steps,
        rate_cuts=guard.rate_cuts,
        events=guard.events,
    )
    return (best.bank if keep_best else leaves.snapshot()), history


def _run_epoch(step: Step, guard: Guard, rows: Rows, epoch: int) -> tuple[Float[Tensor, ""], float]:
    """One pass over the rows: the mean loss of its steps, and the last factor of the rate."""
    config = step.config
    per_epoch = 1 if config.batch_size is None else -(-len(rows) // config.batch_size)
    losses = []
    factor = 0.0
    for index, batch in enumerate(rows.batches(config.batch_size, step.generator)):
        factor = rate_factor(
            epoch * per_epoch + index,
            total=config.max_epochs * per_epoch,
            warmup=config.warmup_epochs * per_epoch,
            schedule=config.schedule,
        )
        report = step(batch, factor)
        losses.append(report.loss)
        guard.watch(report)
        if guard.due():
            guard.review()
    return torch.stack(losses).mean(), factor


def _stalled(best: BestBank, epoch: int, config: TrainConfig) -> bool:
    best_epoch = best.best_epoch()
    return epoch - (-1 if best_epoch is None else best_epoch) >= config.n_iter_no_change
