"""From prepared rows to trained banks: candidates are screened, the best trained to the end."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from threading import Event, Lock
from typing import Any

import torch

from protopinv.bank import Bank
from protopinv.errors import TrainingError
from protopinv.features import Steps
from protopinv.kernels import consider, note_built
from protopinv.objective import Objective
from protopinv.train.checkpoint import Checkpoints
from protopinv.train.config import TrainConfig
from protopinv.train.ensemble import HeldOut, combined, held_out
from protopinv.train.history import Ending, EpochReport, History, Observer, mean_history
from protopinv.train.loop import Run, StopTraining
from protopinv.train.machine import ALONE, Ranks, control_c, set_own_threads
from protopinv.train.prepare import Prepared, first_banks, noise_generator
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import Rows
from protopinv.train.state import EpochChoice
from protopinv.train.step import BankStep
from protopinv.train.survey import SAMPLE_ROWS

# Candidates are screened for this share of their epochs, or for fewer if these have so many steps.
# On 61 public tables the out-of-fold loss after 50 of 250 epochs chose as well as at the end.
SCREENING = 0.2
SCREENING_STEPS = 60
LEAST_SCREENING = 4


@dataclass(frozen=True)
class Start:
    """Banks where a training starts; the first ``n_frozen`` prototypes of each stay as they are.

    Their rows have these ``steps``, and their outputs keep their ``weight``.
    """

    bank: Bank
    n_frozen: int = 0
    steps: Steps | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Job:
    """Where a training runs, with which random numbers, and who watches it.

    ``seconds`` is the time since the start. Up to ``workers`` candidates are screened at once. With
    ``checkpoints`` the state of the training goes to a file now and then.
    """

    seed: int
    device: torch.device
    seconds: Callable[[], float]
    ranks: Ranks = ALONE
    checkpoints: Checkpoints | None = None
    observer: Observer | None = None
    workers: int = 1


@dataclass(frozen=True)
class Candidate:
    """A configuration that was screened: its lowest out-of-fold loss, and its weight in the end.

    The loss is Inf if it failed, and the weight 0 if it is no part of the ensemble.
    """

    config: TrainConfig
    held_loss: float
    weight: float = 0.0


@dataclass(frozen=True)
class Trained:
    """Banks after training, before they are merged into a network.

    Outputs of an ensemble are averaged by their ``weight``. ``constant_loss`` is that of the best
    constant on the training rows. ``calibration`` is the factor of the outputs under which held-out
    rows are likeliest (temperature scaling).
    """

    config: TrainConfig
    bank: Bank
    history: History
    constant_loss: float
    steps: Steps | None
    calibration: float = 1.0
    weight: float = 1.0


def train(
    prepared: Prepared,
    objective: Objective,
    configs: Sequence[TrainConfig],
    job: Job,
    starts: Sequence[Start] = (),
) -> tuple[list[Trained], tuple[Candidate, ...]]:
    """Screen the candidates, train the best to the end, weight and calibrate them.

    With folds, four members that leave rows out train beside those of all rows: their out-of-fold
    loss selects the candidates and the number of epochs, and weights those that are averaged; what
    counts most comes first. Predictions of each are the mean of ``n_members`` banks; with folds up
    to four of these are theirs. Without folds there is one candidate, or one for each of the
    ``starts``.
    """
    candidates = configs if prepared.n_full or starts else configs[:1]
    n_banks = prepared.n_full + FOLDS if prepared.n_full else configs[0].n_members
    sizes = (prepared.sample.X.shape[-1], *configs[0].widths, objective.n_outputs)
    steps = n_banks * configs[0].max_epochs * prepared.rows.n_total
    # rows forward, errors back, and gradients
    consider(job.device, 3.0 * steps * sum(a * b for a, b in pairwise(sizes)))
    with control_c(gently=job.checkpoints is not None) as stop:
        screening = Screening(prepared, objective, candidates, n_banks, job, starts, stop)
        runs = screening.trained()
    for run in runs.values():
        job.ranks.require_same(run.step.trained)
    note_built(job.device)
    trained = [screening.left_by(number, run) for number, run in runs.items()]
    held = [screening.held_out(number, run) for number, run in runs.items()]
    weights = combined(held, [starts[number].weight for number in runs] if starts else ())
    shares = dict(zip(runs, (weight for weight, _ in weights), strict=True))
    losses = [screening.losses.get(number, math.inf) for number in range(len(candidates))]
    seen = [
        Candidate(config, loss, shares.get(number, 0.0))
        for number, (config, loss) in enumerate(zip(candidates, losses, strict=True))
    ]
    parts = [
        replace(each, weight=weight, calibration=calibration)
        for each, (weight, calibration) in zip(trained, weights, strict=True)
        if weight > 0
    ]
    parts.sort(key=lambda each: -each.weight)
    return parts, tuple(seen) if len(seen) > 1 and not starts else ()


@dataclass
class Screening:
    """Candidates, each of which is trained for a while, several at once; the best go on to the end.

    A candidate that cannot be trained is passed over, unless none can. With checkpoints they are
    trained one after another, and resume where they were. Once ``stop`` is set all trainings end
    after their next step.
    """

    prepared: Prepared
    objective: Objective
    candidates: Sequence[TrainConfig]
    n_banks: int
    job: Job
    starts: Sequence[Start]
    stop: Event
    losses: dict[int, float] = field(default_factory=dict)
    _views: list[Prepared] = field(default_factory=list)
    _runs: dict[int, Run] = field(default_factory=dict)
    _errors: list[TrainingError] = field(default_factory=list)
    _ending: Ending | None = None  # of all trainings at once
    _lock: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        """Rows as each candidate sees them, encoded once for all that see the same."""
        if self.starts:
            self._views = [self.prepared.with_steps(start.steps) for start in self.starts]
            return
        encodings = dict.fromkeys(config.number_encoding for config in self.candidates)
        views = {each: self.prepared.encoded(each) for each in encodings}
        self._views = [views[config.number_encoding] for config in self.candidates]

    def trained(self) -> dict[int, Run]:
        """The trainings of those that were trained to the end, the best first."""
        numbers = list(range(len(self.candidates)))
        if len(numbers) > 1 and not self.starts:
            numbers = self._best(numbers)
        else:
            self._runs = {number: self._begin(number) for number in numbers}
        self._side_by_side(partial(self._finish, first=numbers[0]), numbers)
        runs = {number: self._runs[number] for number in numbers if number in self._runs}
        if not runs:
            raise self._errors[-1]
        return runs

    def left_by(self, number: int, run: Run) -> Trained:
        """The banks that a training has left, without those that took no step."""
        spent = 0.0 if self.job.checkpoints is None else self.job.checkpoints.spent
        histories = run.finish(seconds=lambda: self.job.seconds() + spent)
        alive = [n for n, history in enumerate(histories) if history.skipped_steps < history.steps]
        members = (alive or [0])[: run.step.config.n_members]
        view = self._views[number]
        rows = view.rows  # or a sample where not all are here
        counted = rows if isinstance(rows, Rows) and rows.total is None else view.sample
        weight = None if counted.weight is None else counted.weight[0]
        return Trained(
            run.step.config,
            run.step.state.to("cpu").members(members),
            mean_history([histories[n] for n in members]),
            run.step.objective.constant_loss(counted.y, weight),
            None if view.steps is None else view.steps.to("cpu"),
        )

    def held_out(self, number: int, run: Run) -> HeldOut | None:
        """Predictions of a training for the rows that its members leave out."""
        view = self._views[number]
        judged = view.judged
        if run.ending == "interrupted" and judged is not None and len(judged) > SAMPLE_ROWS:
            some = torch.linspace(0, len(judged) - 1, SAMPLE_ROWS, device=judged.X.device)
            judged = judged.taken(some.long())
        return held_out(run.step, judged, view.validation)

    def _best(self, numbers: Sequence[int]) -> list[int]:
        """Screen all, and choose those with the lowest loss; one alone if all are to end."""
        self._side_by_side(self._screen, numbers)
        if not self._runs:
            raise KeyboardInterrupt if self._ending == "interrupted" else self._errors[0]
        order = sorted(self._runs, key=lambda number: (self.losses[number], number))
        if self._ending is not None:
            self._runs[order[0]].ending = self._ending
            return order[:1]
        best = order[: self.candidates[order[0]].ensemble_size]
        if self.job.checkpoints is not None:
            for number in set(order) - set(best):
                self.job.checkpoints.drop(number)
        return best

    def _side_by_side(self, work: Callable[[int], None], numbers: Sequence[int]) -> None:
        """Do the work of some candidates, several at once where these are few numbers."""
        workers = 1 if self.job.checkpoints is not None else min(self.job.workers, len(numbers))
        own = (torch.get_num_threads(),)
        with ThreadPoolExecutor(workers, initializer=set_own_threads, initargs=own) as pool:
            each = map if workers == 1 else pool.map
            try:  # Ctrl-C comes to this thread, and ends all
                list(each(work, numbers))
            except KeyboardInterrupt:
                self._ending = "interrupted"
                self.stop.set()

    def _begin(self, number: int) -> Run:
        """The training of a candidate, before its first step or where a checkpoint left it."""
        view, job, config = self._views[number], self.job, self.candidates[number]
        start = self.starts[number] if self.starts else None
        if start is None:
            seeds = range(job.seed, job.seed + self.n_banks)
            bank = first_banks(view.sample, self.objective, config, seeds)
        else:
            bank = start.bank.to(job.device, getattr(torch, config.dtype)).snapshot()
        rows, rank = view.rows, None if job.ranks.size == 1 else job.ranks.number
        if isinstance(rows, Rows):
            rows = replace(rows, y=self.objective.dense(rows.y, bank.inputs.dtype))
        step = BankStep(
            bank,
            config,
            self.objective,
            generator=noise_generator(job.seed, job.device),
            row_generator=None if rank is None else noise_generator(job.seed, job.device, rank),
            ranks=job.ranks,
            n_frozen=0 if start is None else start.n_frozen,
        )
        choice = None
        if view.n_full:
            n_batches = rows.n_batches(config.batch_size)
            choice = EpochChoice(step.trained, view.n_full, config.max_epochs, n_batches)
        run = Run(step, rows, validation=view.validation, choice=choice)
        run.after_step = self._after_step
        return run if job.checkpoints is None else job.checkpoints.watch(number, run)

    def _after_step(self, run: Run) -> None:
        """In whichever thread a step was taken: write a checkpoint if it is time, or stop."""
        stops, checkpoints = self.stop.is_set(), self.job.checkpoints
        if checkpoints is not None:
            stops = checkpoints.after_step(run, stopping=stops)
        if stops:
            raise StopTraining

    def _screen(self, number: int) -> None:
        """Train one candidate for a while, unless all are to end."""
        checkpoints = self.job.checkpoints
        if self._ending is not None:
            return
        if checkpoints is not None and (loss := checkpoints.loss_of_dropped(number)) is not None:
            self.losses[number] = loss
            return
        try:
            run = self._begin(number)
            per_epoch = run.rows.n_batches(run.step.config.batch_size)
            epochs = screening_epochs(run.n_epochs, per_epoch)
            run.advance(epochs, observer=lambda report: self._observe(number, report))
        except TrainingError as error:
            self._errors.append(error)
            if checkpoints is not None:
                checkpoints.screened(number, math.inf)
                checkpoints.drop(number)
            return
        # the best epoch, or calibrated: label smoothing makes for timid probabilities, which does
        # not mean that a candidate is worse
        loss = math.inf if run.choice is None else run.choice.lowest_on_host()
        if run.ending == "interrupted":  # a pass over all rows takes a while
            self._ending = "interrupted"
        else:
            held = self.held_out(number, run)
            loss = loss if held is None else min(loss, held.calibration()[1])
            if checkpoints is not None:
                loss = checkpoints.screened(number, loss)
            if run.is_stopped:
                self._ending = self._ending or "stopped early"
        self.losses[number], self._runs[number] = loss, run

    def _finish(self, number: int, first: int) -> None:
        """Train one of the best to the end; only of the ``first`` are epochs shown as training."""
        run, label = self._runs[number], None if number == first else number
        try:
            run.advance(observer=lambda report: self._observe(label, report))
        except TrainingError as error:
            self._errors.append(error)
            del self._runs[number]
        if run.is_stopped:
            self._ending = self._ending or "stopped early"

    def _observe(self, number: int | None, report: EpochReport) -> bool:
        """Show a report with the number of its candidate, one at a time; True once all end."""
        with self._lock:
            observer, report = self.job.observer, replace(report, candidate=number)
            if observer is not None and self._ending is None and observer(report):
                self._ending = "stopped early"
        return self._ending is not None


def screening_epochs(max_epochs: int, steps_an_epoch: int) -> int:
    """Epochs after which candidates are compared."""
    least = max(LEAST_SCREENING, math.ceil(SCREENING_STEPS / steps_an_epoch))
    return min(max_epochs, least, max(1, math.ceil(SCREENING * max_epochs)))
