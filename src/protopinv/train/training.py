"""From prepared rows to trained banks: candidates are screened, the best is trained to the end."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Event, Lock
from typing import Any

import torch

from protopinv.bank import Bank
from protopinv.errors import TrainingError
from protopinv.kernels import consider, note_built
from protopinv.objective import Objective
from protopinv.train.checkpoint import Checkpoints
from protopinv.train.config import TrainConfig
from protopinv.train.history import Ending, EpochReport, History, Observer, mean_history
from protopinv.train.loop import Run, StopTraining
from protopinv.train.machine import ALONE, Ranks, control_c, set_own_threads
from protopinv.train.prepare import Prepared, first_banks, noise_generator
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.state import EpochChoice
from protopinv.train.step import BankStep, TrainingStep
from protopinv.train.survey import SAMPLE_ROWS

# Candidates are screened for this share of their epochs, or for fewer if these have so many steps.
# On 61 public tables the out-of-fold loss after 50 of 250 epochs chose as well as at the end.
SCREENING = 0.2
SCREENING_STEPS = 60
LEAST_SCREENING = 4


@dataclass(frozen=True)
class Start:
    """Banks where a training starts; the first ``n_frozen`` prototypes of each stay as they are."""

    bank: Bank
    n_frozen: int = 0


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
    """A configuration that was screened, and its lowest out-of-fold loss; Inf if it failed."""

    config: TrainConfig
    held_loss: float


@dataclass(frozen=True)
class Trained:
    """Banks after training, before they are merged into a network.

    ``constant_loss`` is that of the best constant on the training rows. ``calibration`` is the
    factor of the outputs under which held-out rows are likeliest (temperature scaling).
    """

    config: TrainConfig
    bank: Bank
    history: History
    constant_loss: float
    calibration: float
    candidates: tuple[Candidate, ...] = ()


def train(
    prepared: Prepared,
    objective: Objective,
    configs: Sequence[TrainConfig],
    job: Job,
    start: Start | None = None,
) -> Trained:
    """Screen the candidates, train the best of them to the end, and calibrate it.

    With folds, four members that leave rows out train beside those of all rows: their out-of-fold
    loss selects the candidate and the number of epochs. Predictions are the mean of ``n_members``
    banks; with folds up to four of these are theirs.
    """
    candidates = configs if prepared.n_full else configs[:1]
    n_banks = prepared.n_full + FOLDS if prepared.n_full else configs[0].n_members
    sizes = (prepared.sample.X.shape[-1], *configs[0].widths, objective.n_outputs)
    steps = n_banks * configs[0].max_epochs * prepared.rows.n_total
    # rows forward, errors back, and gradients
    consider(job.device, 3.0 * steps * sum(a * b for a, b in pairwise(sizes)))
    with control_c(gently=job.checkpoints is not None) as stop:
        screening = Screening(prepared, objective, candidates, n_banks, job, start, stop)
        run = screening.best()
        run.advance(observer=job.observer)
    job.ranks.require_same(run.step.trained)
    note_built(job.device)
    spent = 0.0 if job.checkpoints is None else job.checkpoints.spent
    histories = run.finish(seconds=lambda: job.seconds() + spent)
    step, config, judged = run.step, run.step.config, prepared.judged
    alive = [n for n, history in enumerate(histories) if history.skipped_steps < history.steps]
    members = (alive or [0])[: config.n_members]
    if run.ending == "interrupted" and judged is not None and len(judged) > SAMPLE_ROWS:
        some = torch.linspace(0, len(judged) - 1, SAMPLE_ROWS, device=judged.X.device)
        judged = judged.taken(some.long())
    rows = prepared.rows  # or a sample where not all are here
    counted = rows if isinstance(rows, Rows) and rows.total is None else prepared.sample
    weight = None if counted.weight is None else counted.weight[0]
    losses = [screening.losses.get(number, math.inf) for number in range(len(candidates))]
    return Trained(
        config,
        step.state.to("cpu").members(members),
        mean_history([histories[n] for n in members]),
        step.objective.constant_loss(counted.y, weight),
        calibrated(step, judged, prepared.validation)[0],
        tuple(map(Candidate, candidates, losses)) if len(candidates) > 1 else (),
    )


@dataclass
class Screening:
    """Candidates, each of which is trained for a while, several at once; the best is kept.

    A candidate that cannot be trained is passed over, unless none can. With checkpoints they are
    screened one after another, and resume where they were. Once ``stop`` is set all trainings end
    after their next step.
    """

    prepared: Prepared
    objective: Objective
    candidates: Sequence[TrainConfig]
    n_banks: int
    job: Job
    start: Start | None
    stop: Event
    losses: dict[int, float] = field(default_factory=dict)
    _runs: dict[int, Run] = field(default_factory=dict)
    _errors: list[TrainingError] = field(default_factory=list)
    _ending: Ending | None = None  # of all trainings at once
    _lock: Any = field(default_factory=Lock)

    def best(self) -> Run:
        """The training to continue: of the only candidate, or the one with the lowest loss."""
        numbers, checkpoints = range(len(self.candidates)), self.job.checkpoints
        if len(numbers) == 1:
            return self._begin(0)
        workers = 1 if checkpoints is not None else min(self.job.workers, len(numbers))
        own = (torch.get_num_threads(),)
        with ThreadPoolExecutor(workers, initializer=set_own_threads, initargs=own) as pool:
            each = map if workers == 1 else pool.map
            try:  # Ctrl-C comes to this thread, and ends all
                list(each(self._screen, numbers))
            except KeyboardInterrupt:
                self._ending = "interrupted"
                self.stop.set()
        if not self._runs:
            raise KeyboardInterrupt if self._ending == "interrupted" else self._errors[0]
        best = min(self._runs, key=lambda number: (self.losses[number], number))
        if self._ending is not None:
            self._runs[best].ending = self._ending
        elif checkpoints is not None:
            for number in set(self._runs) - {best}:
                checkpoints.drop(number)
        return self._runs[best]

    def _begin(self, number: int) -> Run:
        """The training of a candidate, before its first step or where a checkpoint left it."""
        prepared, job, config = self.prepared, self.job, self.candidates[number]
        if self.start is None:
            seeds = range(job.seed, job.seed + self.n_banks)
            bank = first_banks(prepared.sample, self.objective, config, seeds)
        else:
            bank = self.start.bank.to(job.device, getattr(torch, config.dtype)).snapshot()
        rows, rank = prepared.rows, None if job.ranks.size == 1 else job.ranks.number
        if isinstance(rows, Rows):
            rows = replace(rows, y=self.objective.dense(rows.y, bank.inputs.dtype))
        step = BankStep(
            bank,
            config,
            self.objective,
            generator=noise_generator(job.seed, job.device),
            row_generator=None if rank is None else noise_generator(job.seed, job.device, rank),
            ranks=job.ranks,
            n_frozen=0 if self.start is None else self.start.n_frozen,
        )
        choice = None
        if prepared.n_full:
            n_batches = rows.n_batches(config.batch_size)
            choice = EpochChoice(step.trained, prepared.n_full, config.max_epochs, n_batches)
        run = Run(step, rows, validation=prepared.validation, choice=choice)
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
        checkpoints, prepared = self.job.checkpoints, self.prepared
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
            loss = min(loss, calibrated(run.step, prepared.judged, prepared.validation)[1])
            if checkpoints is not None:
                loss = checkpoints.screened(number, loss)
            if run.is_stopped:
                self._ending = self._ending or "stopped early"
        self.losses[number], self._runs[number] = loss, run

    def _observe(self, number: int, report: EpochReport) -> bool:
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


def calibrated(
    step: TrainingStep, judged: Rows | None, validation: AnyRows | None
) -> tuple[float, float]:
    """Temperature scaling by held-out rows: the factor of the outputs, and the loss with it."""
    # rows that are only watched change nothing
    watched = validation is not None and step.config.early_stopping is not True
    if judged is None or watched or not step.objective.are_odds:
        return 1.0, math.inf
    outputs = []
    for part, by_member in step.outputs(judged):
        if part.held is None:
            outputs.append(by_member.mean(0, keepdim=True))
        else:  # out-of-fold predictions
            holds = (part.held > 0).to(by_member.dtype)
            share = holds / holds.sum(0).clamp_min(1)
            outputs.append((by_member * share[:, None]).sum(0, keepdim=True))
    if judged.held is not None:
        weight = judged.held.sum(0)
    else:
        weight = judged.X.new_ones(len(judged)) if judged.weight is None else judged.weight[0]
    return step.objective.sharpness(torch.cat(outputs, dim=2), judged.y, weight)
