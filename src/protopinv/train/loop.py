"""The only training loop, and the guard that watches its steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from protopinv.errors import TrainingError
from protopinv.kernels import switched_on
from protopinv.train.bank_pass import SolverSettings
from protopinv.train.history import Ending, EpochReport, History, Observer
from protopinv.train.optimizer import rate_factor
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.state import Best, EpochChoice, Resumable, copied
from protopinv.train.step import CapturedStep, StepReport, TrainingStep

# Without validation the state is compared with the best so far only every so many steps.
STEPS_BETWEEN_COPIES = 16
MOST_RATE_CUTS = 6
RATE_CUT = 0.3
# Changes the seed of what steps draw into that of the order of batches.
FOR_ORDER = 0x5DEECE66D


class StopTraining(Exception):  # noqa: N818 - a wish, not an error
    """Raised between two steps to end a training there, with nothing half done."""


class _Epoch(NamedTuple):
    """An epoch that has begun: the state before it, the order of its batches, losses so far."""

    before: tuple[Tensor, ...]
    order: Tensor
    losses: list[Tensor]


class Run(Resumable):
    """One training: ``advance`` it to its end or only so far, then ``finish`` it.

    With early stopping it leaves the best state on ``validation``; with a ``choice`` the one that
    this has made, as some members hold rows out; else the last one. After Ctrl-C it leaves the best
    so far: on ``validation``, by the choice, or without either by training loss. It goes on while
    its ``ending`` is "finished".
    """

    state_names = ("step", "best", "guard", "choice", "_rates", "ending", "_order")

    def __init__(
        self,
        step: TrainingStep,
        rows: AnyRows,
        *,
        validation: AnyRows | None = None,
        choice: EpochChoice | None = None,
    ) -> None:
        self.step = step
        self.n_epochs = step.config.max_epochs
        self.ending: Ending = "finished"
        self.is_stopped = False
        self.validation = validation
        self.choice = choice
        self._free = choice is not None and step.judges_for_free
        self._held_rows = None if choice is None else rows.by_holders()
        # Where the pass that trains shows nothing of held-out rows, it need not look at them.
        self.rows = rows if self._free else rows.without_held()
        on_gpu = step.trained[0].is_cuda and step.ranks.size == 1 and switched_on()
        # a graph holds a step of all rows, if these lie on the GPU, or of a mini-batch
        fits = isinstance(rows, Rows) or rows.n_batches(step.config.batch_size) > 1
        self.runner: Any = CapturedStep(step, self.rows) if on_gpu and fits else step
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

    def advance(self, until: int | None = None, *, observer: Observer | None = None) -> None:
        """Train up to so many epochs, or to the end."""
        try:
            while self.ending == "finished" and len(self._rates) < (until or self.n_epochs):
                epoch = len(self._rates)
                report = self.epoch(epoch)
                stops = observer is not None and bool(observer(report))
                (self.is_stopped,) = self.step.ranks.agree(stops)
                if self.is_stopped or self._stalled(epoch):
                    self.ending = "stopped early"
                if self.after_step is not None:
                    self.after_step(self)
        except (KeyboardInterrupt, StopTraining):
            self.ending = "interrupted"

    def finish(self, *, seconds: Callable[[], float]) -> tuple[History, ...]:
        """Leave the state that training was for, and return a history for each member."""
        if self.choice is not None and self._rates and self.ending != "interrupted":
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
            self._begun = _Epoch(before, self._order.get_state(), [])
        before = self._begun.before
        report, factor = self._pass_over_rows(epoch, self._begun)
        self._begun = None
        self._rates.append([peak * factor for peak in step.optimizer.peak])
        if before:
            self.best.offer(before, -report.loss, report.loss, epoch)
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
        held_score, held_loss = seen or (None, None)
        return EpochReport(
            epoch,
            self.n_epochs,
            report.loss,
            held_score,
            held_loss,
            step.state,
            n_rows=self.rows.n_total,
            bytes_read=self.rows.bytes_read,
            lr=tuple(self._rates[-1]),
            config=step.config,
        )

    def _pass_over_rows(self, epoch: int, begun: _Epoch) -> tuple[StepReport, float]:
        """The report of the steps, with the mean loss of those taken, and the last rate."""
        config = self.step.config
        per_epoch = self.rows.n_batches(config.batch_size)
        self._order.set_state(begun.order)
        done = len(begun.losses)
        batches = self.rows.batches(config.batch_size, self._order, skip=done)
        for index, batch in enumerate(batches, start=done):
            factor = rate_factor(
                epoch * per_epoch + index,
                total=config.max_epochs * per_epoch,
                warmup=config.warmup_epochs * per_epoch,
                schedule=config.schedule,
            )
            report: StepReport = self.runner(batch, factor)
            begun.losses.append(report.loss)
            self.guard.steps += 1
            if self.guard.due():
                self.guard.review()
            if self.after_step is not None and index < per_epoch - 1:
                self.after_step(self)
        if len(begun.losses) > 1:
            report = StepReport(torch.stack(begun.losses).nanmean(0))
        return report, factor

    def _judged_by_folds(self) -> tuple[Tensor, Tensor]:
        """Score and loss of the state as it stands, on the rows that members hold out."""
        if self.choice is None or self._held_rows is None:
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
            step.go_back(self.choice.best)
            return [length - 1] * step.n_members
        if step.config.early_stopping is True or self.ending == "interrupted":
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
                fold_loss = [row[self.choice.n_full :] for row in columns.get(name, [])]
                columns[name] = [[sum(row) / len(row)] * self.step.n_members for row in fold_loss]
        n = min(len(columns.get("loss", [])), len(self._rates))
        best = self.best.epochs_on_host() if self.choice is None else epochs
        return tuple(
            History(
                **{name: [row[member] for row in rows[:n]] for name, rows in columns.items()},
                fold_loss=fold_loss[:n],
                seconds=seconds,
                ending=self.ending,
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
        epoch = None if self._begun is None else self._begun._asdict()
        if epoch is not None and epoch["losses"]:
            epoch["losses"] = torch.stack(epoch["losses"])
        recorded = {name: torch.stack(rows) for name, rows in self._recorded.items()}
        return {**super().dump(), "recorded": recorded, "epoch": epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same training."""
        super().restore(state)
        self._recorded = {name: list(rows) for name, rows in state["recorded"].items()}
        if (epoch := state["epoch"]) is not None:
            before, order = tuple(epoch["before"]), epoch["order"].cpu()
            self._begun = _Epoch(before, order, list(epoch["losses"]))


class Guard(Resumable):
    """Reads the device now and then, and decides what to try when steps fail.

    A failed step of a member changes nothing (the optimizer skips it on the device). ``review``
    counts such steps, falls back to a slower and safer solve, or lowers the learning rate of that
    member from its best bank so far. A member for which nothing is left to try is given up; when
    none is left, it raises. ``steps`` counts what was tried; ``rate_cuts`` and ``given_up`` have
    one entry a member.
    """

    state_names = ("_rung", "_judged", "rate_cuts", "given_up", "steps", "events")

    def __init__(self, step: TrainingStep, best: Best) -> None:
        self._step = step
        self._best = best
        first, exact = step.solver, torch.float64
        # the settings to solve by, one after the other
        ladder = [first, SolverSettings(first.form, exact), SolverSettings("svd", exact)]
        self._ladder = list(dict.fromkeys(ladder))
        self._rung = 0
        self._judged = [[0, 0] for _ in range(step.n_members)]
        self.rate_cuts = [0] * step.n_members
        self.given_up = [False] * step.n_members
        self._every = 16 if step.trained[0].is_cuda else 1
        self.steps = 0
        self.events: list[str] = []

    @property
    def skipped_steps(self) -> list[int]:
        """Steps that were not taken, of each member, as of the last review."""
        return [sum(counts) for counts in self._judged]

    def due(self, ahead: int = 0, every: int | None = None) -> bool:
        """Whether the host should read, now or some steps ahead: always at first, later rarely."""
        steps = self.steps + ahead
        return steps < 4 or steps % (every or self._every) == 0

    def count(self) -> dict[int, bool]:
        """Members with failures since the last count, and whether their solves failed."""
        before, self._judged = self._judged, self._step.failures.tolist()
        if before == self._judged:
            return {}
        pairs = enumerate(zip(before, self._judged, strict=True))
        return {member: was[0] < now[0] for member, (was, now) in pairs if was != now}

    def review(self) -> None:
        """After new failures change something, or raise TrainingError when nothing is left."""
        failed = {member: by for member, by in self.count().items() if not self.given_up[member]}
        if any(failed.values()) and self._rung + 1 < len(self._ladder):
            self._rung += 1
            solver = self._ladder[self._rung]
            self._step.solve_by(solver)
            self.events.append(f"step {self.steps}: ill-conditioned solve, went on with {solver}")
            return
        for member, by_solves in failed.items():
            complaint, advice = "The loss must stay finite. It was not", self._step.advice
            if by_solves:
                complaint = (
                    "The prototype matrices must be solvable. They stayed too ill-conditioned in "
                    f"every form, up to {self._step.solver}"
                )
                advice = "Raise ridge, lower lr, or set scaling='feature'."
            self._cut_rate(member, complaint, advice)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from there, with the solver that the step had."""
        super().restore(state)
        self._step.solve_by(self._ladder[self._rung])

    def _cut_rate(self, member: int, complaint: str, advice: str) -> None:
        none_worked = self.skipped_steps[member] == self.steps
        if none_worked or self.rate_cuts[member] == MOST_RATE_CUTS:
            self.given_up[member] = True
            cuts = f"after {self.rate_cuts[member]} cuts of the learning rate"
            if all(self.given_up):
                raise TrainingError(f"{complaint}, at step {self.steps}, {cuts}. {advice}")
            self.events.append(f"step {self.steps}: gave up member {member} {cuts}")
            return
        self.rate_cuts[member] += 1
        peak = self._step.optimizer.peak[member] * RATE_CUT
        self._step.go_back(self._best.tensors, member)
        self._step.optimizer.restart(member, peak)
        whose = "the best bank" if self._step.n_members == 1 else f"the best bank {member}"
        self.events.append(f"step {self.steps}: step failed, back to {whose} with lr {peak:.3g}")
