"""From rows to a model: prepare, train, fold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.bank import Bank
from protopinv.errors import ConfigError, TrainingError
from protopinv.features import FeatureMap, Front
from protopinv.network import Network, mean_network, solve_weights
from protopinv.objective import Objective
from protopinv.train.bank_step import BankStep, architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.cross import EpochChoice, crossed, deal_folds
from protopinv.train.history import History, mean_history
from protopinv.train.look import Tried, best_of
from protopinv.train.loop import Observer, Run, train
from protopinv.train.prepare import Prepared, first_banks, noise_generator, prepare
from protopinv.train.rows import Rows
from protopinv.train.settle import FOLDS
from protopinv.train.source import Source
from protopinv.train.step import SOLVE_TOLERANCE, Step


@dataclass(frozen=True)
class Model:
    """Trained banks, the map before them, and the plain network all of it folds into.

    A front stands before the network and does not fold. ``constant_loss`` is that of the best
    constant on the training rows. ``tried`` holds what was looked at, where there was a choice.
    """

    config: TrainConfig
    bank: Bank
    front: Front | None
    features: FeatureMap
    network: Network
    history: History
    constant_loss: float
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Start:
    """Where to go on from: banks, and the features they know."""

    bank: Bank
    front: Front | None
    features: FeatureMap


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
) -> Model:
    """Train on all rows but ``held_out``, the row numbers to validate on.

    With early_stopping="cross" and nothing held out, four folds train beside the bank of all rows,
    and say after how many epochs the loss on rows not seen is lowest. What is predicted is the mean
    of ``n_members`` banks; with folds up to four of these are theirs.

    Of several candidates, which share all that prepares rows, each is trained for a while, as many
    at once as there are ``workers``; that whose folds have the lowest loss is trained to the end.
    """
    started = clock()
    config = candidates[0]
    fitted = None if start is None else (start.front, start.features)
    prepared = prepare(source, config, device, seed=seed, held_out=held_out, fitted=fitted)
    rows, n_full, n_members = prepared.rows, config.n_members, config.n_members
    if config.early_stopping == "cross" and held_out is None and start is None:
        fold = deal_folds(source.groups(), FOLDS, seed)
        if fold.max() == FOLDS - 1:  # else no group has rows enough
            n_full = max(1, config.n_members - FOLDS)
            rows = _crossed(prepared.rows, fold, n_full, config)
            n_members = n_full + FOLDS
    objective = source.objective

    def begun(config: TrainConfig) -> Run:
        configs = [config] * n_members
        if start is None:
            seeds = [seed + number for number in range(n_members)]
            bank = first_banks(rows, objective, configs, seeds)
        else:
            bank = start.bank.to(device, getattr(torch, config.dtype)).snapshot()
        judged = replace(rows, y=objective.dense(rows.y, bank.inputs.dtype))
        step = BankStep(bank, configs, objective, generator=noise_generator(seed, device))
        choice = None
        if rows.held is not None:
            choice = EpochChoice(
                step.trained, n_full, config.max_epochs, rows.n_batches(config.batch_size)
            )
        return Run(step, judged, validation=prepared.validation, choice=choice)

    run, tried = best_of(
        candidates if rows.held is not None else [config], begun, observer, workers=workers
    )
    run.advance(observer=observer)
    histories = run.finish(seconds=lambda: clock() - started)
    step, config = run.step, run.step.config
    alive = [n for n, history in enumerate(histories) if history.skipped_steps < history.steps]
    kept = (alive or [0])[: config.n_members]
    loss = step.objective.constant_loss(rows.y, None if rows.weight is None else rows.weight[0])
    sharpness = _sharpness(step, rows, prepared.validation)
    bank = step.state.to("cpu").members(kept)
    model = _folded(
        bank, prepared, objective, config, [histories[n] for n in kept], loss, sharpness
    )
    return replace(model, tried=tried)


def _sharpness(step: Step[Any], rows: Rows, validation: Rows | None) -> float:
    """How much surer, or less sure, answers should be, by rows that were held out."""
    judged = rows if rows.held is not None else validation
    # rows that are only watched change nothing
    watched = rows.held is None and step.config.early_stopping is not True
    if judged is None or watched or not step.objective.are_odds:
        return 1.0
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
    bank = first_banks(rows, objective, configs, seeds)
    step = BankStep(bank, configs, objective, generator=noise_generator(seeds[0], device))
    histories = train(step, rows, clock=clock, validation=prepared.validation, observer=observer)
    banks = step.state.to("cpu")
    weight = None if rows.weight is None else rows.weight[0]
    loss = objective.constant_loss(rows.y, weight)
    return [
        _folded(banks.members([number]), prepared, objective, configs[number], [history], loss)
        if history.skipped_steps < history.steps
        else None
        for number, history in enumerate(histories)
    ]


def _crossed(rows: Rows, fold: NDArray[np.int64], n_full: int, config: TrainConfig) -> Rows:
    """Rows for folds; distorted copies stay in the fold of their original."""
    repeated = torch.from_numpy(fold).repeat(1 + config.image_copies).to(rows.X.device)
    return crossed(rows, repeated, n_full, len(fold))


def _folded(
    bank: Bank,
    prepared: Prepared,
    objective: Objective,
    config: TrainConfig,
    histories: list[History],
    constant_loss: float,
    sharpness: float = 1.0,
) -> Model:
    features = prepared.features.to("cpu")
    front = None if prepared.front is None else prepared.front.to("cpu")
    network = fold(bank, features, objective, config, sharpness)
    history = mean_history(histories)
    return Model(config, bank, front, features, network, history, constant_loss)


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
        networks.append(Network(tuple(W.contiguous() for W in folded), config.activation))
    return mean_network(networks)
