"""From rows to a model: prepare, train, fold."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import prod
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.bank import Bank
from protopinv.errors import ConfigError, TrainingError
from protopinv.features import FeatureMap, Front
from protopinv.kernels.building import consider, note_built
from protopinv.memory import Memory, begin_memory, least_limit, require_room
from protopinv.network import Network, mean_network, solve_weights
from protopinv.objective import Objective
from protopinv.train.bank_step import BankStep, architecture_of
from protopinv.train.checkpoint import Checkpoints
from protopinv.train.config import TrainConfig
from protopinv.train.cross import EpochChoice
from protopinv.train.history import History, mean_history
from protopinv.train.interrupts import control_c
from protopinv.train.look import Tried, best_of
from protopinv.train.loop import Observer, Run, StopTraining, train
from protopinv.train.prepare import Prepared, first_banks, noise_generator, prepare
from protopinv.train.ranks import ALONE, Ranks
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.settle import FOLDS
from protopinv.train.source import Source
from protopinv.train.step import SOLVE_TOLERANCE, Step
from protopinv.train.survey import SAMPLE_ROWS


@dataclass(frozen=True)
class Model:
    """Trained banks, the map before them, and the plain network all of it folds into.

    A front stands before the network and does not fold. ``constant_loss`` is that of the best
    constant on the training rows. Held-out rows have said how sure answers should be:
    ``sharpness`` is the factor of the network's outputs. ``tried`` holds what was looked at, where
    there was a choice, and ``memory`` what is known of the rows once they are gone, if that is
    wanted.
    """

    config: TrainConfig
    bank: Bank
    front: Front | None
    features: FeatureMap
    network: Network
    history: History
    constant_loss: float
    sharpness: float = 1.0
    tried: tuple[Tried, ...] = ()
    memory: Memory | None = None


@dataclass(frozen=True)
class Start:
    """Where to go on from: banks, and the features they know.

    The first ``n_frozen`` prototypes of every bank stay where they are.
    """

    bank: Bank
    front: Front | None
    features: FeatureMap
    n_frozen: int = 0


def train_model(
    source: Source,
    candidates: Sequence[TrainConfig],
    *,
    seed: int,
    device: torch.device,
    clock: Callable[[], float],
    held_out: NDArray[np.integer[Any]] | None = None,
    observer: Observer | None = None,
    start: Start | None = None,
    workers: int = 1,
    checkpoints: Checkpoints | None = None,
    memory: int | None = 0,
) -> Model:
    """Train on all rows but ``held_out``, the row numbers to validate on.

    With early_stopping="cross" and nothing held out, four folds train beside the bank of all rows,
    and say after how many epochs the loss on rows not seen is lowest. What is predicted is the mean
    of ``n_members`` banks; with folds up to four of these are theirs.

    Of several candidates, which share all that prepares rows, each is trained for a while, as many
    at once as there are ``workers``; that whose folds have the lowest loss is trained to the end.
    With ``checkpoints`` what is known so far goes to a file now and then. ``memory`` is how many
    numbers may be kept of the rows: none for 0, and as many as seems right for None.
    """
    fitted = None if start is None else (start.front, start.features)
    config = candidates[0]
    started = clock()
    prepared = prepare(source, config, device, seed=seed, held_out=held_out, fitted=fitted)
    training = Training(
        source.objective,
        seed,
        device,
        lambda: clock() - started,
        start=start,
        checkpoints=checkpoints,
        memory=memory,
    )
    return training(prepared, candidates, observer, workers=workers)


@dataclass(frozen=True)
class Trained:
    """What training leaves, before the banks are merged into a network."""

    config: TrainConfig
    bank: Bank
    history: History
    constant_loss: float
    sharpness: float
    tried: tuple[Tried, ...]
    was_interrupted: bool


@dataclass(frozen=True)
class Training:
    """What training needs beside rows and candidates."""

    objective: Objective
    seed: int
    device: torch.device
    seconds: Callable[[], float]
    ranks: Ranks = ALONE
    start: Start | None = None
    checkpoints: Checkpoints | None = None
    memory: int | None = 0

    def __call__(
        self,
        prepared: Prepared,
        candidates: Sequence[TrainConfig],
        observer: Observer | None,
        *,
        workers: int = 1,
    ) -> Model:
        """Train the candidates for a while, and the best of them to the end; then merge them."""
        n_components, n_groups = prepared.features.n_components, self.objective.n_groups
        if self.memory:
            require_room(self.memory, least_limit(n_components, n_groups))
        trained = self.trained(prepared, candidates, observer, workers=workers)
        model = _folded(
            trained.bank,
            prepared,
            self.objective,
            trained.config,
            trained.history,
            trained.constant_loss,
            trained.sharpness,
        )
        memory = self._remembered(prepared, trained)
        return replace(model, tried=trained.tried, memory=memory)

    def trained(
        self,
        prepared: Prepared,
        candidates: Sequence[TrainConfig],
        observer: Observer | None,
        *,
        workers: int = 1,
    ) -> Trained:
        """The banks of the best candidate, as they are after training."""
        config = candidates[0]
        n_full, n_members = config.n_members, config.n_members
        if config.early_stopping == "cross" and prepared.cross is not None and self.start is None:
            in_folds = prepared.cross(max(1, config.n_members - FOLDS))
            if in_folds is not None:
                prepared, n_full = in_folds, max(1, config.n_members - FOLDS)
                n_members = n_full + FOLDS
        rows = prepared.rows
        consider(self.device, _work(prepared, config, self.objective) * n_members)
        several = candidates if rows.held is not None else [config]
        with control_c() if self.checkpoints is None else self.checkpoints.signals() as stop:
            begun = partial(self._begun, prepared, n_full=n_full, n_members=n_members, stop=stop)
            run, tried = best_of(
                several,
                begun,
                partial(_look_loss, prepared),
                observer,
                workers=workers,
                checkpoints=self.checkpoints,
                stop=stop,
            )
            run.advance(observer=observer)
        self.ranks.require_same(run.step.trained)
        note_built(self.device)
        spent = 0.0 if self.checkpoints is None else self.checkpoints.spent
        histories = run.finish(seconds=lambda: self.seconds() + spent)
        step, config = run.step, run.step.config
        alive = [n for n, history in enumerate(histories) if history.skipped_steps < history.steps]
        kept = (alive or [0])[: config.n_members]
        judged = _few(prepared.judged) if run.was_interrupted else prepared.judged
        sharpness, _ = _sharpness(step, judged, prepared.validation)
        return Trained(
            config,
            step.state.to("cpu").members(kept),
            mean_history([histories[n] for n in kept]),
            _constant_loss(step.objective, prepared),
            sharpness,
            tried,
            run.was_interrupted,
        )

    def _remembered(self, prepared: Prepared, trained: Trained) -> Memory | None:
        """What is kept of the rows, or of some of them: not all are here, or Ctrl-C was pressed."""
        if self.memory == 0:
            return None
        in_haste = trained.was_interrupted
        all_here = isinstance(prepared.rows, Rows) and prepared.rows.total is None and not in_haste
        rows = prepared.rows if all_here and isinstance(prepared.rows, Rows) else prepared.sample
        # copies of images come after all originals, and are no rows
        n_rows = prepared.rows.n_total // (1 + trained.config.image_copies)
        rows = rows.taken(slice(0, n_rows)) if n_rows < len(rows) else rows
        weight = rows.X.new_ones(len(rows)) if rows.weight is None else rows.weight[0]
        memory = begin_memory(
            rows.X,
            self.objective.groups(rows.y).to(rows.X.device),
            weight,
            n_groups=self.objective.n_groups,
            limit=self.memory,
            generator=noise_generator(self.seed, torch.device("cpu")),
        )
        memory = memory if all_here else memory.weakened(n_rows / len(rows))
        if prepared.masses is None:
            return memory
        # weights have a mean of one, and a sample has more rows of rare groups than their share
        known = memory.masses(self.objective.n_groups)
        return memory.reweighted(torch.where(known > 0, prepared.masses / known, 1.0))

    def _begun(
        self, prepared: Prepared, config: TrainConfig, *, n_full: int, n_members: int, stop: Event
    ) -> Run:
        """The training of one candidate, before its first step."""
        configs = [config] * n_members
        rows, objective = prepared.rows, self.objective
        if self.start is None:
            seeds = [self.seed + number for number in range(n_members)]
            bank = first_banks(prepared.sample, objective, configs, seeds)
        else:
            bank = self.start.bank.to(self.device, getattr(torch, config.dtype)).snapshot()
        if isinstance(rows, Rows):
            rows = replace(rows, y=objective.dense(rows.y, bank.inputs.dtype))
        generator = noise_generator(self.seed, self.device)
        own = None
        if self.ranks.size > 1:
            own = noise_generator(self.seed, self.device, self.ranks.number)
        step = BankStep(
            bank,
            configs,
            objective,
            generator=generator,
            row_generator=own,
            ranks=self.ranks,
            n_frozen=0 if self.start is None else self.start.n_frozen,
        )
        choice = None
        if rows.held is not None:
            choice = EpochChoice(
                step.trained, n_full, config.max_epochs, rows.n_batches(config.batch_size)
            )
        run = Run(step, rows, validation=prepared.validation, choice=choice)
        run.after_step = partial(_end_on, stop)
        return run


def _end_on(stop: Event, _: Run) -> None:
    """After a step, in whichever thread it was taken."""
    if stop.is_set():
        raise StopTraining


def _few(rows: Rows | None) -> Rows | None:
    """Some rows from first to last, as many as are judged in no time."""
    if rows is None or len(rows) <= SAMPLE_ROWS:
        return rows
    return rows.taken(torch.linspace(0, len(rows) - 1, SAMPLE_ROWS, device=rows.X.device).long())


def _work(prepared: Prepared, config: TrainConfig, objective: Objective) -> float:
    """Multiplications of one bank in all its epochs: rows forward, errors back, and gradients."""
    sizes = (prepared.sample.X.shape[-1], *config.widths, objective.n_outputs)
    return 3.0 * prepared.rows.n_total * config.max_epochs * sum(map(prod, pairwise(sizes)))


def _constant_loss(objective: Objective, prepared: Prepared) -> float:
    """That of the best constant on all rows, or on some of them where not all are here."""
    rows = prepared.rows
    counted = rows if isinstance(rows, Rows) and rows.total is None else prepared.sample
    return objective.constant_loss(counted.y, None if counted.weight is None else counted.weight[0])


def _look_loss(prepared: Prepared, run: Run) -> float:
    """The lowest loss of the folds in a look, at any epoch, or with answers as sure as is best.

    Smoothed labels make for shy answers, which do not say that a candidate is worse.
    """
    lowest = math.inf if run.folds is None else run.folds.choice.lowest_on_host()
    if run.was_interrupted:  # a pass over all rows takes a while
        return lowest
    return min(lowest, _sharpness(run.step, prepared.judged, prepared.validation)[1])


def _sharpness(
    step: Step[Any], judged: Rows | None, validation: AnyRows | None
) -> tuple[float, float]:
    """How much surer, or less sure, answers should be, by rows that were held out; their loss."""
    # rows that are only watched change nothing
    watched = validation is not None and step.config.early_stopping is not True
    if judged is None or watched or not step.objective.are_odds:
        return 1.0, math.inf
    answers = []
    for part, outputs in step.outputs(judged):
        if part.held is None:
            answers.append(outputs.mean(0, keepdim=True))
        else:  # each row is answered by those who left it out
            holds = (part.held > 0).to(outputs.dtype)
            share = holds / holds.sum(0).clamp_min(1)
            answers.append((outputs * share[:, None]).sum(0, keepdim=True))
    if judged.held is not None:
        weight = judged.held.sum(0)
    elif judged.weight is not None:
        weight = judged.weight[0]
    else:
        weight = judged.X.new_ones(len(judged))
    return step.objective.sharpness(torch.cat(answers, dim=2), judged.y, weight)


def train_population(
    source: Source,
    configs: Sequence[TrainConfig],
    seeds: Sequence[int],
    *,
    device: torch.device,
    clock: Callable[[], float],
    held_out: NDArray[np.integer[Any]] | None = None,
    observer: Observer | None = None,
) -> list[Model | None]:
    """Several models in one batch, of a configuration and a seed each; None if no step was taken.

    Seeds draw the first banks. All else that is drawn is the same for all, by the first seed: the
    features, the order of batches, noise and dropout. So is the form of the solves. Epochs are not
    chosen in folds here, and each model has one bank.
    """
    config = configs[0]
    if config.early_stopping == "cross" or config.n_members != 1:
        raise ConfigError(
            "Models of a population have one bank each and no folds. Got early_stopping="
            f"{config.early_stopping!r} with n_members={config.n_members}. Train them apart."
        )
    objective = source.objective
    prepared = prepare(source, config, device, seed=seeds[0], held_out=held_out)
    rows = prepared.rows
    bank = first_banks(prepared.sample, objective, configs, seeds)
    step = BankStep(bank, configs, objective, generator=noise_generator(seeds[0], device))
    histories = train(step, rows, clock=clock, validation=prepared.validation, observer=observer)
    banks = step.state.to("cpu")
    loss = _constant_loss(objective, prepared)
    return [
        _folded(banks.members([number]), prepared, objective, configs[number], history, loss)
        if history.skipped_steps < history.steps
        else None
        for number, history in enumerate(histories)
    ]


def _folded(
    bank: Bank,
    prepared: Prepared,
    objective: Objective,
    config: TrainConfig,
    history: History,
    constant_loss: float,
    sharpness: float = 1.0,
) -> Model:
    features = prepared.features.to("cpu")
    front = None if prepared.front is None else prepared.front.to("cpu")
    network = fold(bank, features, objective, config, sharpness)
    return Model(config, bank, front, features, network, history, constant_loss, sharpness)


def fold(
    bank: Bank,
    features: FeatureMap,
    objective: Objective,
    config: TrainConfig,
    sharpness: float = 1.0,
) -> Network:
    """Solve once in float64 and back-project: a plain network on original features.

    Its outputs are the mean of those of all members, in the units that users know, and times
    ``sharpness``.
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
        folded = (features.back_project(first), *inner, objective.fold(last) * sharpness)
        # laid out as a file gives them back: products of other layouts round otherwise
        weights = tuple(W.contiguous() for W in folded)
        networks.append(Network(weights, config.activation, bank.n_prototypes))
    return mean_network(networks)
