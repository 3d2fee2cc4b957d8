"""Training below the estimators: many trainings as few populations, and single steps to time.

Trainings of one shape are the members of a population. Members share all that is drawn while
training, by the seed of the first: features, batches, noise. Their own seeds draw their first
banks.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from benchmarks.population import OWN, PopulationStep, member_banks, run_to_end
from benchmarks.recipes import Parameters
from benchmarks.tasks import OBJECTIVE, Arrays, Task, arrays_of
from protopinv.bank import Bank, population
from protopinv.errors import ConfigError, TrainingError
from protopinv.fitting import shape_of
from protopinv.model import Model, merged_network
from protopinv.train.config import TrainConfig
from protopinv.train.history import EpochReport, History, Observer
from protopinv.train.prepare import first_banks, noise_generator, prepare
from protopinv.train.resolve import have_one_unit, resolved
from protopinv.train.rows import Rows
from protopinv.train.step import WARM_UP, BankStep, CapturedStep, TrainingStep

# More would leave little of a GPU's memory for chunks of rows, and lose more when interrupted.
MOST_TOGETHER = 10
# A share of the peak learning rate, for steps of which only the time counts.
SOME_RATE = 0.1


@dataclass(frozen=True)
class Job:
    """One training of one bank, and its observer."""

    config: TrainConfig
    seed: int
    observer: Observer | None = None


def config_of(parameters: Parameters, data: Arrays, device: str) -> TrainConfig:
    """The configuration that an estimator with these parameters trains with."""
    (n, d), n_groups = data.X.shape, data.objective.n_groups
    shape = shape_of(n, d, n_groups, torch.device(device), have_one_unit(data.X))
    return resolved(TrainConfig(**parameters), shape)


def batches_of(jobs: Sequence[Job]) -> list[list[int]]:
    """Places of jobs that can be trained at once, in the order of the first of each."""
    groups: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        groups.setdefault(_shape(job.config), []).append(place)
    return [
        group[start : start + MOST_TOGETHER]
        for group in groups.values()
        for start in range(0, len(group), MOST_TOGETHER)
    ]


def _shape(config: TrainConfig) -> str:
    """All that members must agree in."""
    names = [item.name for item in fields(TrainConfig) if item.name not in OWN]
    return repr([(name, getattr(config, name)) for name in names])


def train_together(
    data: Arrays,
    jobs: Sequence[Job],
    device: str,
    held_out: NDArray[np.integer[Any]] | None = None,
) -> Iterator[tuple[int, Model | TrainingError]]:
    """The place of each job with its model, or with the error of its training."""
    data = replace(data, held_out=held_out)
    for places in batches_of(jobs):
        chosen = [jobs[place] for place in places]
        try:
            models = train_population(
                data,
                [job.config for job in chosen],
                [job.seed for job in chosen],
                device=torch.device(device),
                observer=partial(_show, chosen) if any(j.observer for j in chosen) else None,
            )
        except TrainingError as error:
            yield from ((place, error) for place in places)
            continue
        for place, model in zip(places, models, strict=True):
            if model is None:
                yield place, TrainingError("No step of this configuration could be taken.")
                continue
            raise_if_interrupted(model.history)
            yield place, model


def train_population(
    data: Arrays,
    configs: Sequence[TrainConfig],
    seeds: Sequence[int],
    *,
    device: torch.device,
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
    objective, generator = data.objective, noise_generator(seeds[0], device)
    prepared = prepare(replace(data, seed=seeds[0]).data, config, device, seed=seeds[0])
    banks = member_banks(prepared.sample, objective, configs, seeds)
    step = PopulationStep(banks, configs, objective, generator=generator)
    histories = run_to_end(
        step,
        prepared.rows,
        clock=time.perf_counter,
        validation=prepared.validation,
        observer=observer,
    )
    features = prepared.features.to("cpu")
    front = None if prepared.front is None else prepared.front.to("cpu")

    def model_of(member: int) -> Model | None:
        history, config = histories[member], configs[member]
        if history.skipped_steps == history.steps:
            return None
        bank = step.state.members([member]).to("cpu")
        return Model(
            objective=objective,
            network=merged_network(bank, features, objective, config),
            features=features,
            config=config,
            history=history,
            n_columns=data.X.shape[1],
            front=front,
            bank=bank,
        )

    return [model_of(member) for member in range(len(configs))]


def raise_if_interrupted(history: History) -> None:
    """Raise after Ctrl-C: training returns the best bank so far, which is no result here."""
    if history.ending == "interrupted":
        raise KeyboardInterrupt


def _show(jobs: Sequence[Job], report: EpochReport) -> None:
    """Show each observer its own member, as a population of one."""
    for number, job in enumerate(jobs):
        if job.observer is None:
            continue
        only = slice(number, number + 1)
        score, loss = (
            None if numbers is None else numbers[only]
            for numbers in (report.validation_score, report.validation_loss)
        )
        job.observer(
            EpochReport(
                report.epoch,
                report.n_epochs,
                report.loss[only],
                score,
                loss,
                report.state.members([number]),
                config=job.config,
            )
        )


def accuracy_of(model: Model, X: NDArray[Any], y: NDArray[Any], device: str) -> float:
    """The share of rows whose largest output is that of their class, classes being 0, 1, ..."""
    return float((model.outputs(X, torch.device(device)).argmax(1).numpy() == y).mean())


def sizes_of(model: Model) -> tuple[int, int]:
    """Trainable parameters, and parameters that must be stored to predict."""
    return model.prototypes.n_trained, model.size


def projected_rows(task: Task, config: TrainConfig, *, seed: int, device: str) -> tuple[Rows, Rows]:
    """Rows to train on and those held out, as the network sees them."""
    held_out = np.arange(len(task.train.y), len(task.all_rows.y))
    arrays = replace(arrays_of(task.all_rows), held_out=held_out, seed=seed)
    prepared = prepare(arrays.data, config, torch.device(device), seed=seed)
    rows, validation = prepared.rows, prepared.validation
    if not (isinstance(rows, Rows) and isinstance(validation, Rows)):
        raise AssertionError("rows in memory were held out")
    return rows, validation


def first_step(
    rows: Rows,
    config: TrainConfig,
    *,
    seeds: Sequence[int],
    start: Callable[[Bank, Rows, Generator], Bank] = lambda bank, _, __: bank,
) -> BankStep:
    """The step of a bank for each seed, all trained at once; noise is drawn by the first seed.

    ``start`` may change how each bank begins.
    """
    first = first_banks(rows, OBJECTIVE, config, seeds)
    banks = [
        start(first.member(number), rows, Generator().manual_seed(seed))
        for number, seed in enumerate(seeds)
    ]
    generator = noise_generator(seeds[0], rows.X.device)
    return BankStep(population(banks), config, OBJECTIVE, generator=generator)


def ready_step(step: TrainingStep, rows: Rows) -> Callable[[], object]:
    """A step on these rows that ran before: captured on a GPU, warm on a CPU."""
    ready = CapturedStep(step, rows) if rows.X.is_cuda else step
    for _ in range(WARM_UP + 1):  # on a GPU the last of these is captured
        ready(rows, SOME_RATE)
    return lambda: ready(rows, SOME_RATE)
