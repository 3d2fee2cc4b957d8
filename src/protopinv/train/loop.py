"""The only training loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.kernels import switched_on
from protopinv.train.capture import CapturedStep
from protopinv.train.config import TrainConfig
from protopinv.train.cross import EpochChoice, Folds
from protopinv.train.guard import Guard
from protopinv.train.history import Ending, History, Recorder
from protopinv.train.rows import AnyRows
from protopinv.train.schedule import rate_factor
from protopinv.train.step import Step, StepReport
from protopinv.train.stopping import Best, copied

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
    are to be run at most. Where folds are judged by the pass that trains them, what is known of
    held-out rows is that of the epoch before, and zero for members that hold none. While several
    candidates are looked at, of which one will be kept, ``look`` is the number of this one. Every
    epoch passes over ``n_rows``, on all ranks together; ``bytes_read`` is of this rank. ``lr`` is
    the learning rate of the last step, and ``config`` that of the first member.
    """

    epoch: int
    n_epochs: int
    loss: Float[Tensor, " m"]
    validation_score: Float[Tensor, " m"] | None
    validation_loss: Float[Tensor, " m"] | None
    state: Any
    look: int | None = None
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


def train(
    step: Step[Any],
    rows: AnyRows,
    *,
    clock: Callable[[], float],
    validation: AnyRows | None = None,
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
        rows: AnyRows,
        *,
        validation: AnyRows | None = None,
        choice: EpochChoice | None = None,
        epochs: int | None = None,
    ) -> None:
        self.step = step
        self.n_epochs = step.config.max_epochs if epochs is None else epochs
        self._ending: Ending = "finished" if epochs is None else "stopped early"
        self._is_over = self.told_to_stop = False
        self.validation = validation
        self.folds = None if choice is None else Folds(choice, rows, step)
        # Where the pass that trains shows nothing of held-out rows, it need not look at them.
        self.rows = rows if self.folds and self.folds.free else rows.without_held()
        self.taken: Any = step
        if self.rows.batches_on_gpu(step.config.batch_size) and switched_on():
            self.taken = CapturedStep(step, self.rows)
        self.best = Best(step.trained)
        self.guard = Guard(step, self.best)
        self.recorder = Recorder()
        self._rates: list[list[float]] = []
        # the order of batches has a generator of its own: who goes on in the middle of an epoch
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
                told_to_stop = observer is not None and bool(observer(report))
                (self.told_to_stop,) = self.step.ranks.agree(told_to_stop)
                if self.told_to_stop or self.stalled(epoch):
                    self.end("stopped early")
                if self.after_step is not None:
                    self.after_step(self)
        except (KeyboardInterrupt, StopTraining):
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
        begun = self._begun
        if begun is None:
            before = copied(self.step.kept) if self._judges() else ()
            if self.folds:
                self.folds.before(epoch, self.step)
            begun = self._begun = _Epoch(before, self._order.get_state())
        report, factor = self._pass_over_rows(epoch, begun)
        self._begun = None
        self.recorder.add(loss=report.loss, **self.step.numbers())
        self._rates.append([peak * factor for peak in self.step.optimizer.peak])
        if begun.before:
            self.best.offer(begun.before, -report.loss, report.loss, epoch)
        seen: tuple[Tensor, Tensor] | None = None
        if self.validation is not None:
            seen = self._validated(self.validation, epoch)
        elif self.folds:
            seen = self.folds.after(epoch, self.step, report, self.taken.evaluate)
        if seen is not None:
            self.recorder.add(validation_score=seen[0], validation_loss=seen[1])
        score, loss = seen or (None, None)
        state, n_rows = self.step.state, self.rows.n_total
        return EpochReport(
            epoch,
            self.n_epochs,
            report.loss,
            score,
            loss,
            state,
            n_rows=n_rows,
            bytes_read=self.rows.bytes_read,
            lr=tuple(self._rates[-1]),
            config=self.step.config,
        )

    def _validated(self, rows: AnyRows, epoch: int) -> tuple[Tensor, Tensor]:
        score, loss = self.taken.evaluate(rows)
        self.best.offer(self.step.kept, score, loss, epoch)
        return score, loss

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
        fold_loss: list[list[float]] = []
        if self.folds:
            fold_loss = self.folds.apart(columns.get("validation_loss", []))
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
                fold_loss=fold_loss[:n],
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

    def _pass_over_rows(self, epoch: int, begun: "_Epoch") -> tuple[StepReport, float]:
        """The report of the steps with the mean loss of those taken, and the last rate's factor."""
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
            report = self.taken(batch, begun.factor)
            begun.losses.append(report.loss)
            self.guard.watch()
            if self.guard.due():
                self.guard.review()
            if self.after_step is not None and index < per_epoch - 1:
                self.after_step(self)
        if len(begun.losses) == 1:
            return report, begun.factor
        loss = torch.stack(begun.losses).nanmean(0)
        return StepReport(loss), begun.factor

    def dump(self) -> dict[str, Any]:
        """All that lives through a run and is the same on all ranks, under names."""
        begun = self._begun
        return {
            "step": self.step.dump(),
            "best": self.best.dump(),
            "guard": self.guard.dump(),
            "recorder": self.recorder.dump(),
            "choice": None if self.folds is None else self.folds.choice.dump(),
            "rates": self._rates,
            "ending": self._ending,
            "is_over": self._is_over,
            "order": self._order.get_state(),
            "epoch": None if begun is None else begun.dump(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same training."""
        self.step.restore(state["step"])
        self.best.restore(state["best"])
        self.guard.restore(state["guard"])
        self.recorder.restore(state["recorder"])
        if self.folds is not None:
            self.folds.choice.restore(state["choice"])
        self._rates = [list(rates) for rates in state["rates"]]
        self._ending, self._is_over = state["ending"], state["is_over"]
        self._order.set_state(state["order"].cpu())
        self._begun = None if state["epoch"] is None else _Epoch.restored(state["epoch"])


@dataclass
class _Epoch:
    """An epoch that has begun: the state before it, the order of its batches, losses so far."""

    before: tuple[Tensor, ...]
    order: Tensor
    losses: list[Tensor] = field(default_factory=list)
    factor: float = 0.0

    def dump(self) -> dict[str, Any]:
        """Under names."""
        losses = torch.stack(self.losses) if self.losses else None
        return {
            "before": list(self.before),
            "order": self.order,
            "losses": losses,
            "factor": self.factor,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> "_Epoch":
        """What ``dump`` gave."""
        losses = [] if state["losses"] is None else list(state["losses"])
        return cls(tuple(state["before"]), state["order"].cpu(), losses, state["factor"])
