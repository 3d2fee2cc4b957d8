"""The only training loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import switched_on
from protopinv.train.capture import CapturedStep
from protopinv.train.cross import EpochChoice
from protopinv.train.guard import Guard
from protopinv.train.history import Ending, History, Recorder
from protopinv.train.rows import Rows
from protopinv.train.schedule import rate_factor
from protopinv.train.step import Step, StepReport
from protopinv.train.stopping import Best, copied

# Without validation the state is compared with the best so far only every so many steps.
STEPS_BETWEEN_COPIES = 16


@dataclass(frozen=True)
class EpochReport:
    """What an observer may look at, one number a member; reading one waits for the device.

    ``state`` is what is being trained, a Bank here; the next step changes it in place. ``n_epochs``
    are to be run at most. Where folds are judged by the pass that trains them, what is known of
    held-out rows is that of the epoch before, and zero for members that hold none. While several
    candidates are looked at, of which one will be kept, ``look`` is the number of this one.
    """

    epoch: int
    n_epochs: int
    loss: Float[Tensor, " m"]
    validation_score: Float[Tensor, " m"] | None
    validation_loss: Float[Tensor, " m"] | None
    state: Any
    look: int | None = None


# One that returns True ends the training there.
Observer = Callable[[EpochReport], bool | None]
# Rows to score and loss of every member.
Evaluate = Callable[[Rows], tuple[Tensor, Tensor]]


def train(
    step: Step[Any],
    rows: Rows,
    *,
    clock: Callable[[], float],
    validation: Rows | None = None,
    choice: EpochChoice | None = None,
    observer: Observer | None = None,
    epochs: int | None = None,
) -> tuple[History, ...]:
    """Train ``step.state`` in place, and tell what happened to each member.

    ``epochs`` ends the training before its schedule does.

    With early stopping what is left is the best state on ``validation``; with a ``choice`` the one
    it has made; else the last one. After Ctrl-C it is the best so far: on ``validation``, by the
    choice, or without either by training loss.
    """
    started = clock()
    run = Run(step, rows, validation=validation, choice=choice, epochs=epochs)
    run.advance(observer=observer)
    return run.finish(seconds=lambda: clock() - started)


class Run:
    """One training: ``advance`` it to its end or only so far, then ``finish`` it."""

    def __init__(
        self,
        step: Step[Any],
        rows: Rows,
        *,
        validation: Rows | None = None,
        choice: EpochChoice | None = None,
        epochs: int | None = None,
    ) -> None:
        self.step = step
        self.n_epochs = step.config.max_epochs if epochs is None else epochs
        self._ending: Ending = "finished" if epochs is None else "stopped early"
        self._is_over = False
        self.validation = validation
        self.folds = None if choice is None else _Folds(choice, rows, step)
        # Where the pass that trains shows nothing of held-out rows, it need not look at them.
        self.rows = rows if self.folds and self.folds.free else replace(rows, held=None)
        self.taken = CapturedStep(step, self.rows) if rows.X.is_cuda and switched_on() else step
        self.best = Best(step.trained)
        self.guard = Guard(step, self.best)
        self.recorder = Recorder()
        self._rates: list[list[float]] = []

    @property
    def was_interrupted(self) -> bool:
        """Whether Ctrl-C has ended it."""
        return self._ending == "interrupted"

    def advance(self, until: int | None = None, *, observer: Observer | None = None) -> None:
        """Train up to so many epochs, or to the end."""
        try:
            while not self._is_over and len(self._rates) < (until or self.n_epochs):
                epoch = len(self._rates)
                report = self.epoch(epoch)
                told_to_stop = observer is not None and bool(observer(report))
                if told_to_stop or self.stalled(epoch):
                    self.end("stopped early")
        except KeyboardInterrupt:
            self.end("interrupted")

    def end(self, ending: Ending) -> None:
        """Train no further."""
        self._ending, self._is_over = ending, True

    def finish(self, *, seconds: Callable[[], float]) -> tuple[History, ...]:
        """Leave the state that training was for, and tell what happened."""
        if not self.was_interrupted:
            self._judge_the_last()
        self.guard.count()
        kept = self.keep(interrupted=self.was_interrupted)
        return self.histories(self._ending, kept, seconds=seconds())

    def epoch(self, epoch: int) -> EpochReport:
        """One pass over the rows, then judge the state: on validation, or by its training loss.

        The loss of a full-batch epoch is that of the state before the update, so without
        validation it is the state at the start of the epoch that is judged.
        """
        before = copied(self.step.kept) if self._judges() else ()
        if self.folds:
            self.folds.before(epoch, self.step)
        report, factor = self._pass_over_rows(epoch)
        self.recorder.add(loss=report.loss, **self.step.numbers())
        self._rates.append([peak * factor for peak in self.step.optimizer.peak])
        if before:
            self.best.offer(before, -report.loss, report.loss, epoch)
        seen: tuple[Tensor, Tensor] | None = None
        if self.validation is not None:
            seen = self.taken.evaluate(self.validation)
            self.best.offer(self.step.kept, *seen, epoch)
        elif self.folds:
            seen = self.folds.after(epoch, self.step, report, self.taken.evaluate)
        if seen is not None:
            self.recorder.add(validation_score=seen[0], validation_loss=seen[1])
        score, loss = (None, None) if seen is None else seen
        return EpochReport(epoch, self.n_epochs, report.loss, score, loss, self.step.state)

    def _judge_the_last(self) -> None:
        """Judge the last state by held-out rows, if that has not been done."""
        if self.folds and self._rates:
            seen = self.folds.finish(self.step, self.taken.evaluate)
            if seen is not None:
                self.recorder.add(validation_score=seen[0], validation_loss=seen[1])

    def _judges(self) -> bool:
        """Whether the state at the start of the epoch is compared with the best so far."""
        if self.validation is not None:
            return False
        many_steps = self.step.config.batch_size is not None
        return many_steps or self.guard.due(ahead=1, every=STEPS_BETWEEN_COPIES)

    def stalled(self, epoch: int) -> bool:
        """Whether the best epoch is long past; on a GPU asked only when the guard reads anyway."""
        if self.folds:
            return self.folds.choice.stalled()
        config = self.step.config
        if config.early_stopping is not True:
            return False
        if config.batch_size is None and not self.guard.due():
            return False
        latest = max(-1 if best is None else best for best in self.best.epochs_on_host())
        return epoch - latest >= config.n_iter_no_change

    def keep(self, *, interrupted: bool) -> list[int | None]:
        """Put back the state that training was for, and say of which epoch it is, by member."""
        step = self.step
        last = len(self._rates) - 1 if self._rates else None
        if self.folds and (length := self.folds.choice.length_on_host()) > 0:
            step.go_back(self.folds.choice.tensors)
            return [length - 1] * step.n_members
        if step.config.early_stopping is True or interrupted:
            step.go_back(self.best.tensors)
            return self.best.epochs_on_host()
        step.go_back(copied(step.kept))
        return [last] * step.n_members

    def histories(
        self, ending: Ending, kept: Sequence[int | None], *, seconds: float
    ) -> tuple[History, ...]:
        """All that was recorded, as plain numbers, one history a member."""
        columns = {**self.recorder.columns(), "lr": self._rates}
        if self.folds:
            for name in ("validation_score", "validation_loss"):
                columns[name] = self.folds.means(columns.get(name, []))
        n = min(len(columns.get("loss", [])), len(self._rates))
        best = kept if self.folds else self.best.epochs_on_host()
        of: Any = [
            {name: [row[member] for row in rows[:n]] for name, rows in columns.items()}
            for member in range(self.step.n_members)
        ]
        return tuple(
            History(
                **of[member],
                seconds=seconds,
                ending=ending,
                events=self.guard.events,
                best_epoch=best[member],
                kept_epoch=kept[member],
                steps=self.guard.steps,
                skipped_steps=self.guard.skipped_steps[member],
                rate_cuts=self.guard.rate_cuts[member],
            )
            for member in range(self.step.n_members)
        )

    def _pass_over_rows(self, epoch: int) -> tuple[StepReport, float]:
        """The report of the steps with the mean loss of those taken, and the last rate's factor."""
        config = self.step.config
        per_epoch = self.rows.n_batches(config.batch_size)
        reports = []
        factor = 0.0
        for index, batch in enumerate(self.rows.batches(config.batch_size, self.step.generator)):
            factor = rate_factor(
                epoch * per_epoch + index,
                total=config.max_epochs * per_epoch,
                warmup=config.warmup_epochs * per_epoch,
                schedule=config.schedule,
            )
            reports.append(self.taken(batch, factor))
            self.guard.watch()
            if self.guard.due():
                self.guard.review()
        if len(reports) == 1:
            return reports[0], factor
        loss = torch.stack([report.loss for report in reports]).nanmean(0)
        return replace(reports[-1], loss=loss), factor


class _Folds:
    """Members that hold rows out, and the epoch that is chosen by what they say of these.

    ``free`` says that the pass which trains shows the state as it is before the update: then what
    is known after an epoch is what the one before it has led to.
    """

    def __init__(self, choice: EpochChoice, rows: Rows, step: Step[Any]) -> None:
        self.choice = choice
        self.free = step.judges_for_free
        held = rows.X.new_zeros(1, len(rows)) if rows.held is None else rows.held
        self._holds = (held.sum(1) > 0).tolist()
        # each row counts as the members that hold it out count it
        self._rows = Rows(rows.X, rows.y, held * len(rows))

    def before(self, epoch: int, step: Step[Any]) -> None:
        """Remember the state that the next pass will judge."""
        if self.free and epoch > 0:
            self.choice.remember(step.kept)

    def after(
        self, epoch: int, step: Step[Any], report: StepReport, evaluate: Evaluate
    ) -> tuple[Tensor, Tensor] | None:
        """Score and loss on the rows that members hold out, where they are known by now."""
        if not self.free:
            return self._look(step, evaluate)
        if epoch == 0 or report.held_score is None or report.held_loss is None:
            return None
        self.choice.judge(report.held_loss)
        return report.held_score, report.held_loss

    def finish(self, step: Step[Any], evaluate: Evaluate) -> tuple[Tensor, Tensor] | None:
        """Judge the last state, if no pass has, and decide."""
        seen = self._look(step, evaluate) if self.free else None
        self.choice.finish()
        return seen

    def means(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """What the members that hold rows out say on average, for every member, by epoch."""
        found = []
        for row in rows:
            said = [number for number, holds in zip(row, self._holds, strict=True) if holds]
            found.append([sum(said) / len(said)] * len(row))
        return found

    def _look(self, step: Step[Any], evaluate: Evaluate) -> tuple[Tensor, Tensor]:
        """Judge the state as it stands."""
        self.choice.remember(step.kept)
        score, loss = evaluate(self._rows)
        self.choice.judge(loss)
        return score, loss
