"""From prepared rows to trained banks: folds, screening of candidates, the full training."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any

import torch

from protopinv.bank import Bank
from protopinv.errors import TrainingError
from protopinv.features import FeatureMap, Front
from protopinv.kernels.building import consider, note_built
from protopinv.memory import Memory, begin_memory
from protopinv.network import Network, mean_network, solve_weights
from protopinv.objective import Objective
from protopinv.train.bank_step import BankStep, architecture_of
from protopinv.train.checkpoint import Checkpoints
from protopinv.train.config import TrainConfig
from protopinv.train.cross import EpochChoice
from protopinv.train.history import History, mean_history
from protopinv.train.interrupts import control_c
from protopinv.train.look import Tried, best_of
from protopinv.train.loop import Observer, Run, StopTraining
from protopinv.train.prepare import Prepared, first_banks, noise_generator
from protopinv.train.ranks import ALONE, Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.step import SOLVE_TOLERANCE, Step
from protopinv.train.survey import SAMPLE_ROWS


@dataclass(frozen=True)
class Start:
    """Where a training starts: banks, and the features they know.

    The first ``n_frozen`` prototypes of every bank stay where they are.
    """

    bank: Bank
    front: Front | None
    features: FeatureMap
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
    candidates: tuple[Tried, ...] = ()

    @property
    def was_interrupted(self) -> bool:
        """Whether Ctrl-C ended the training."""
        return self.history.ending == "interrupted"


def train(
    prepared: Prepared,
    objective: Objective,
    configs: Sequence[TrainConfig],
    job: Job,
    start: Start | None = None,
) -> Trained:
    """Screen the candidates, train the best of them to the end, and calibrate it.

    With early_stopping="cross" and nothing held out, four folds train beside the banks of all rows,
    and their out-of-fold loss selects the candidate and the number of epochs. Predictions are the
    mean of ``n_members`` banks; with folds up to four of these are theirs.
    """
    config = configs[0]
    n_full, n_members = config.n_members, config.n_members
    if prepared.cross is not None and start is None:
        n_beside = max(1, config.n_members - FOLDS)
        crossed = prepared.cross(n_beside)
        if crossed is not None:
            rows, sample, judged = crossed
            prepared = replace(prepared, rows=rows, sample=sample, judged=judged, cross=None)
            n_full, n_members = n_beside, n_beside + FOLDS
    rows, checkpoints = prepared.rows, job.checkpoints
    consider(job.device, _work(prepared, config, objective) * n_members)
    with control_c() if checkpoints is None else checkpoints.signals() as stop:
        begin = partial(
            _begin, prepared, objective, job, start, n_full=n_full, n_members=n_members, stop=stop
        )
        run, candidates = best_of(
            configs if rows.held is not None else [config],
            begin,
            partial(_screening_loss, prepared),
            job.observer,
            workers=job.workers,
            checkpoints=checkpoints,
            stop=stop,
        )
        run.advance(observer=job.observer)
    job.ranks.require_same(run.step.trained)
    note_built(job.device)
    return _finish(run, prepared, job, candidates)


def _begin(
    prepared: Prepared,
    objective: Objective,
    job: Job,
    start: Start | None,
    config: TrainConfig,
    *,
    n_full: int,
    n_members: int,
    stop: Event,
) -> Run:
    """The training of one candidate, before its first step."""
    rows = prepared.rows
    if start is None:
        seeds = [job.seed + number for number in range(n_members)]
        bank = first_banks(prepared.sample, objective, config, seeds)
    else:
        bank = start.bank.to(job.device, getattr(torch, config.dtype)).snapshot()
    if isinstance(rows, Rows):
        rows = replace(rows, y=objective.dense(rows.y, bank.inputs.dtype))
    several = job.ranks.size > 1
    step = BankStep(
        bank,
        [config] * n_members,
        objective,
        generator=noise_generator(job.seed, job.device),
        row_generator=noise_generator(job.seed, job.device, job.ranks.number) if several else None,
        ranks=job.ranks,
        n_frozen=0 if start is None else start.n_frozen,
    )
    choice = None
    if rows.held is not None:
        n_batches = rows.n_batches(config.batch_size)
        choice = EpochChoice(step.trained, n_full, config.max_epochs, n_batches)
    run = Run(step, rows, validation=prepared.validation, choice=choice)
    run.after_step = partial(_end_on, stop)
    return run


def _end_on(stop: Event, _: Run) -> None:
    """After a step, in whichever thread it was taken."""
    if stop.is_set():
        raise StopTraining


def _finish(run: Run, prepared: Prepared, job: Job, candidates: tuple[Tried, ...]) -> Trained:
    """The banks that are averaged, calibrated by held-out rows."""
    spent = 0.0 if job.checkpoints is None else job.checkpoints.spent
    histories = run.finish(seconds=lambda: job.seconds() + spent)
    step, config = run.step, run.step.config
    alive = [n for n, history in enumerate(histories) if history.skipped_steps < history.steps]
    members = (alive or [0])[: config.n_members]
    judged = _few(prepared.judged) if run.was_interrupted else prepared.judged
    calibration, _ = _calibrated(step, judged, prepared.validation)
    return Trained(
        config,
        step.state.to("cpu").members(members),
        mean_history([histories[n] for n in members]),
        constant_loss(step.objective, prepared),
        calibration,
        candidates,
    )


def _few(rows: Rows | None) -> Rows | None:
    """Rows from first to last, as many as are judged in no time."""
    if rows is None or len(rows) <= SAMPLE_ROWS:
        return rows
    return rows.taken(torch.linspace(0, len(rows) - 1, SAMPLE_ROWS, device=rows.X.device).long())


def _work(prepared: Prepared, config: TrainConfig, objective: Objective) -> float:
    """Multiplications of one bank in all its epochs: rows forward, errors back, and gradients."""
    sizes = (prepared.sample.X.shape[-1], *config.widths, objective.n_outputs)
    through = sum(a * b for a, b in pairwise(sizes))
    return 3.0 * prepared.rows.n_total * config.max_epochs * through


def constant_loss(objective: Objective, prepared: Prepared) -> float:
    """The loss of the best constant on all rows, or on a sample where not all are here."""
    rows = prepared.rows
    counted = rows if isinstance(rows, Rows) and rows.total is None else prepared.sample
    return objective.constant_loss(counted.y, None if counted.weight is None else counted.weight[0])


def _screening_loss(prepared: Prepared, run: Run) -> float:
    """The lowest out-of-fold loss of a candidate in its screening, at any epoch or calibrated.

    Smoothed labels make for timid probabilities, which do not say that a candidate is worse.
    """
    lowest = math.inf if run.folds is None else run.folds.choice.lowest_on_host()
    if run.was_interrupted:  # a pass over all rows takes a while
        return lowest
    return min(lowest, _calibrated(run.step, prepared.judged, prepared.validation)[1])


def _calibrated(
    step: Step[Any], judged: Rows | None, validation: AnyRows | None
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
    elif judged.weight is not None:
        weight = judged.weight[0]
    else:
        weight = judged.X.new_ones(len(judged))
    return step.objective.sharpness(torch.cat(outputs, dim=2), judged.y, weight)


def replay_memory(
    prepared: Prepared, objective: Objective, trained: Trained, limit: int | None, seed: int
) -> Memory | None:
    """A Gaussian mixture for each group of rows, for ``partial_fit``; None for a limit of 0.

    It is of a sample where not all rows are here, or Ctrl-C was pressed.
    """
    if limit == 0:
        return None
    rows, in_haste = prepared.rows, trained.was_interrupted
    all_here = isinstance(rows, Rows) and rows.total is None and not in_haste
    # copies of images come after all originals, and are no rows
    n_rows = rows.n_total // (1 + trained.config.image_copies)
    rows = rows if all_here and isinstance(rows, Rows) else prepared.sample
    rows = rows.taken(slice(0, n_rows)) if n_rows < len(rows) else rows
    memory = begin_memory(
        rows.X,
        objective.groups(rows.y).to(rows.X.device),
        rows.X.new_ones(len(rows)) if rows.weight is None else rows.weight[0],
        n_groups=objective.n_groups,
        limit=limit,
        generator=noise_generator(seed, torch.device("cpu")),
    )
    memory = memory if all_here else memory.weakened(n_rows / len(rows))
    if prepared.masses is None:
        return memory
    # weights have a mean of one, and a sample has more rows of rare groups than their share
    masses = memory.masses(objective.n_groups)
    return memory.reweighted(torch.where(masses > 0, prepared.masses / masses, 1.0))


def merged_network(
    bank: Bank,
    features: FeatureMap,
    objective: Objective,
    config: TrainConfig,
    calibration: float = 1.0,
) -> Network:
    """Solve once in float64 and back-project: a plain network on original features.

    Its outputs are the mean of those of all members, in the units that users know, and times
    ``calibration``.
    """
    exact = bank.to("cpu", torch.float64)
    architecture = architecture_of(config)
    solution = solve_weights(exact, architecture, form=config.solver)
    if not bool((solution.error < SOLVE_TOLERANCE).all()):
        solution = solve_weights(exact, architecture, form="svd")
    if not all(bool(W.isfinite().all()) for W in solution.weights):
        raise TrainingError(
            "The weights of a trained bank must be finite. They are not: its prototypes have grown "
            "too large. Lower lr, or raise ridge."
        )
    networks = []
    for member in range(bank.n_members):
        first, *inner, last = (W[member] for W in solution.weights)
        merged = (features.back_project(first), *inner, objective.fold(last) * calibration)
        # laid out as a file gives them back: products of other layouts round otherwise
        weights = tuple(W.contiguous() for W in merged)
        networks.append(Network(weights, config.activation, bank.n_prototypes))
    return mean_network(networks)
