"""The only training loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.kernels import switched_on
from protopinv.train.config import TrainConfig
from protopinv.train.guard import Guard
from protopinv.train.history import Ending, History
from protopinv.train.optimizer import rate_factor
from protopinv.train.rows import AnyRows
from protopinv.train.step import Step, StepReport
from protopinv.train.stopping import Best, EpochChoice, copied

# Without validation the state is compared with the best so far only every so many steps.
STEPS_BETWEEN_COPIES = 16
# Changes the seed of what steps draw into that of the order of batches.
FOR_ORDER = 0x5DEECE66D


class StopTraining(Exception):  # noqa: N818 - a wish, not an error
    """Raised between two steps to end a training there, with nothing half done."""


@dataclass(frozen=True)
class EpochReport:
    """What an observer may look at, one number a member; reading one waits for the device.

    ``state`` is what is being trained, a Bank here; the next step changes it in place. ``n_epochs``
    are to be run at most. Where folds are judged by the pass that trains them, scores and losses of
    held-out rows are those of the epoch before, and zero for members that hold none. While several
    candidates are screened ``candidate`` is the number of this one. Every epoch passes over
    ``n_rows``, on all ranks together; ``bytes_read`` is of this rank. ``lr`` is the learning rate
    of the last step.
    """

    epoch: int
    n_epochs: int
    loss: Float[Tensor, " m"]
    validation_score: Float[Tensor, " m"] | None
    validation_loss: Float[Tensor, " m"] | None
    state: Any
    candidate: int | None = None
    n_rows: int = 0
    bytes_read: int = 0
    lr: tuple[float, ...] = ()
    config: TrainConfig | None = None

    def means(self) -> dict[str, float | None]:
        """Losses and score as plain numbers, of validation over members that hold rows out.

        None for what is not known.
        """
        held_loss, held_score = self.validation_loss, self.validation_score
        loss = score = None
        if held_loss is not None and held_score is not None:
            holds = held_loss != 0
            holds = holds if bool(holds.any()) else ~holds  # all of them may be without any loss
            loss, score = float(held_loss[holds].mean()), float(held_score[holds].mean())
        return {"loss": float(self.loss.mean()), "validation_loss": loss, "validation_score": score}


# One that returns True ends the training there.
Observer = Callable[[EpochReport], bool | None]


def run_to_end(
    step: Step,
    rows: AnyRows,
    *,
    clock: Callable[[], float],
    validation: AnyRows | None = None,
    choice: EpochChoice | None = None,
    observer: Observer | None = None,
    epochs: int | None = None,
) -> tuple[History, ...]:
    """Train ``step.state`` in place, and return a history for each member.

    ``epochs`` ends the training before its schedule does.

    With early stopping what is left is the best state on ``validation``; with a ``choice`` the one
    it has made; else the last one. After Ctrl-C it is the best so far: on ``validation``, by the
    choice, or without either by training loss.
    """
    started = clock()
    run = Run(step, rows, validation=validation, choice=choice, epochs=epochs)
    run.advance(observer=observer)
    return run.finish(seconds=lambda: clock() - started)


@dataclass
class _Epoch:
    """An epoch that has begun: the state before it, the order of its batches, losses so far."""

    before: tuple[Tensor, ...]
    order: Tensor
    losses: list[Tensor] = field(default_factory=list)
    factor: float = 0.0


class Run:
    """One training: ``advance`` it to its end or only so far, then ``finish`` it.

    With a ``choice`` some members hold rows out, and their loss on these chooses the epoch.
    """

    def __init__(
        self,
        step: Step,
        rows: AnyRows,
        *,
        validation: AnyRows | None = None,
        choice: EpochChoice | None = None,
        epochs: int | None = None,
    ) -> None:
        self.step = step
        self.n_epochs = step.config.max_epochs if epochs is None else epochs
        self._ending: Ending = "finished" if epochs is None else "stopped early"
        self._is_over = self.is_stopped = False
        self.validation = validation
        self.choice = choice
        self._free = choice is not None and step.judges_for_free
        if choice is not None:
            self._holds = step.ranks.agree(*rows.holds)
            self._held_rows = rows.by_holders()
        # Where the pass that trains shows nothing of held-out rows, it need not look at them.
        self.rows = rows if self._free else rows.without_held()
        self.runner: Any = step
        if self.rows.batches_on_gpu(step.config.batch_size) and switched_on():
            from protopinv.train.capture import CapturedStep

            self.runner = CapturedStep(step, self.rows)
        self.best = Best(step.trained)
        self.guard = Guard(step, self.best)
        # numbers of every epoch that may still be on the device, one a member
        self._recorded: dict[str, list[Tensor]] = {}
        self._rates: list[list[float]] = []
        # the order of batches has a generator of its own: who resumes in the middle of an epoch
        # draws it again, and nothing else
        device = step.generator.device
        self._order = Generator(device).manual_seed(step.generator.initial_seed() ^ FOR_ORDER)
        self._begun: _Epoch | None = None
        self.after_step: Callable[[Run], None] | None = None

    @property
    def is_within_epoch(self) -> bool:
        """Whether some steps of an epoch have been taken, and not all."""
        return self._begun is not None

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
                stops = observer is not None and bool(observer(report))
                (self.is_stopped,) = self.step.ranks.agree(stops)
                if self.is_stopped or self._stalled(epoch):
                    self.end("stopped early")
                if self.after_step is not None:
                    self.after_step(self)
        except (KeyboardInterrupt, StopTraining):
            self.end("interrupted")

    def end(self, ending: Ending) -> None:
        """Train no further."""
        self._ending, self._is_over = ending, True

    def finish(self, *, seconds: Callable[[], float]) -> tuple[History, ...]:
        """Leave the state that training was for, and return a history for each member."""
        if self.choice is not None and self._rates and not self.was_interrupted:
            if self._free:  # no pass has judged the last state
                self._record(None, self._judged_by_folds())
            self.choice.finish()
        self.guard.count()
        epochs = self._put_back()
        return self._histories(epochs, seconds())

    def epoch(self, epoch: int) -> EpochReport:
        """One pass over the rows, then judge the state: on validation, or by its training loss.

        The loss of a full-batch epoch is that of the state before the update, so without
        validation it is the state at the start of the epoch that is judged.
        """
        step, choice = self.step, self.choice
        if self._begun is None:
            many_steps = step.config.batch_size is not None
            due = many_steps or self.guard.due(ahead=1, every=STEPS_BETWEEN_COPIES)
            before = copied(step.best) if self.validation is None and due else ()
            if choice is not None and self._free and epoch > 0:
                choice.remember(step.best)  # the next pass judges it
            self._begun = _Epoch(before, self._order.get_state())
        begun = self._begun
        report: StepReport = self._pass_over_rows(epoch, begun)
        self._begun = None
        self._rates.append([peak * begun.factor for peak in step.optimizer.peak])
        if begun.before:
            self.best.offer(begun.before, -report.loss, report.loss, epoch)
        seen: tuple[Tensor, Tensor] | None = None
        if self.validation is not None:
            score, loss = seen = self.runner.evaluate(self.validation)
            self.best.offer(step.best, score, loss, epoch)
        elif choice is not None and not self._free:
            seen = self._judged_by_folds()
        elif choice is not None and epoch > 0 and report.held is not None:
            seen = report.held
            choice.judge(seen[1])
        self._record(report.loss, seen)
        return EpochReport(
            epoch,
            self.n_epochs,
            report.loss,
            None if seen is None else seen[0],
            None if seen is None else seen[1],
            step.state,
            n_rows=self.rows.n_total,
            bytes_read=self.rows.bytes_read,
            lr=tuple(self._rates[-1]),
            config=step.config,
        )

    def _pass_over_rows(self, epoch: int, begun: _Epoch) -> StepReport:
        """The report of the steps, with the mean loss of those taken."""
        config = self.step.config
        per_epoch = self.rows.n_batches(config.batch_size)
        self._order.set_state(begun.order)
        done = len(begun.losses)
        batches = self.rows.batches(config.batch_size, self._order, skip=done)
        for index, batch in enumerate(batches, start=done):
            begun.factor = rate_factor(
                epoch * per_epoch + index,
                total=config.max_epochs * per_epoch,
                warmup=config.warmup_epochs * per_epoch,
                schedule=config.schedule,
            )
            report: StepReport = self.runner(batch, begun.factor)
            begun.losses.append(report.loss)
            self.guard.steps += 1
            if self.guard.due():
                self.guard.review()
            if self.after_step is not None and index < per_epoch - 1:
                self.after_step(self)
        if len(begun.losses) == 1:
            return report
        return StepReport(torch.stack(begun.losses).nanmean(0))

    def _judged_by_folds(self) -> tuple[Tensor, Tensor]:
        """Score and loss of the state as it stands, on the rows that members hold out."""
        if self.choice is None:
            raise AssertionError("no member holds rows out")
        self.choice.remember(self.step.best)
        score, loss = self.runner.evaluate(self._held_rows)
        self.choice.judge(loss)
        return score, loss

    def _record(self, loss: Tensor | None, seen: tuple[Tensor, Tensor] | None) -> None:
        """Keep the numbers of an epoch, or what was seen of its state after the last one."""
        numbers = {} if loss is None else {"loss": loss, **self.step.numbers()}
        if seen is not None:
            numbers |= {"validation_score": seen[0], "validation_loss": seen[1]}
        for name, number in numbers.items():
            self._recorded.setdefault(name, []).append(number.detach())

    def _stalled(self, epoch: int) -> bool:
        """Whether the best epoch is long past; on a GPU asked only when the guard reads anyway."""
        if self.choice is not None:
            return self.choice.stalled()
        config = self.step.config
        if config.early_stopping is not True:
            return False
        if config.batch_size is None and not self.guard.due():
            return False
        latest = max(-1 if best is None else best for best in self.best.epochs_on_host())
        return epoch - latest >= config.n_iter_no_change

    def _put_back(self) -> list[int | None]:
        """Put back the state that training was for, and return its epoch, by member."""
        step = self.step
        if self.choice is not None and (length := self.choice.length_on_host()) > 0:
            step.go_back(self.choice.tensors)
            return [length - 1] * step.n_members
        if step.config.early_stopping is True or self.was_interrupted:
            step.go_back(self.best.tensors)
            return self.best.epochs_on_host()
        step.go_back(copied(step.best))
        return [len(self._rates) - 1 if self._rates else None] * step.n_members

    def _histories(self, epochs: Sequence[int | None], seconds: float) -> tuple[History, ...]:
        """All that was recorded, as plain numbers, one history a member."""
        columns: dict[str, Any] = {
            name: torch.stack(rows).tolist() for name, rows in self._recorded.items()
        }
        columns["lr"] = self._rates
        fold_loss: list[list[float]] = []
        if self.choice is not None:
            for name in ("validation_score", "validation_loss"):
                fold_loss = [
                    [x for x, holds in zip(row, self._holds, strict=True) if holds]
                    for row in columns.get(name, [])
                ]
                columns[name] = [[sum(row) / len(row)] * self.step.n_members for row in fold_loss]
        n = min(len(columns.get("loss", [])), len(self._rates))
        best = self.best.epochs_on_host() if self.choice is None else epochs
        return tuple(
            History(
                **{name: [row[member] for row in rows[:n]] for name, rows in columns.items()},
                fold_loss=fold_loss[:n],
                seconds=seconds,
                ending=self._ending,
                events=self.guard.events,
                best_epoch=best[member],
                kept_epoch=epochs[member],
                steps=self.guard.steps,
                skipped_steps=self.guard.skipped_steps[member],
                rate_cuts=self.guard.rate_cuts[member],
            )
            for member in range(self.step.n_members)
        )

    def dump(self) -> dict[str, Any]:
        """All that lives through a run and is the same on all ranks, under names."""
        begun = self._begun
        return {
            "step": self.step.dump(),
            "best": self.best.dump(),
            "guard": self.guard.dump(),
            "recorder": {name: torch.stack(rows) for name, rows in self._recorded.items()},
            "choice": None if self.choice is None else self.choice.dump(),
            "rates": self._rates,
            "ending": self._ending,
            "is_over": self._is_over,
            "order": self._order.get_state(),
            "epoch": None
            if begun is None
            else {
                "before": list(begun.before),
                "order": begun.order,
                "losses": torch.stack(begun.losses) if begun.losses else None,
                "factor": begun.factor,
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same training."""
        self.step.restore(state["step"])
        self.best.restore(state["best"])
        self.guard.restore(state["guard"])
        self._recorded = {name: list(rows) for name, rows in state["recorder"].items()}
        if self.choice is not None:
            self.choice.restore(state["choice"])
        self._rates = [list(rates) for rates in state["rates"]]
        self._ending, self._is_over = state["ending"], state["is_over"]
        self._order.set_state(state["order"].cpu())
        epoch, self._begun = state["epoch"], None
        if epoch is not None:
            losses = [] if epoch["losses"] is None else list(epoch["losses"])
            order = epoch["order"].cpu()
            self._begun = _Epoch(tuple(epoch["before"]), order, losses, epoch["factor"])
