"""Training below the estimators: many trainings as few populations, and single steps to time.

Trainings of one shape are the members of a population. Members share all that is drawn while
training, by the seed of the first: features, batches, noise. Their own seeds draw their first
banks.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from benchmarks.recipes import Parameters
from benchmarks.tasks import OBJECTIVE, Task, source_of
from protopinv.bank import Bank, population
from protopinv.errors import TrainingError
from protopinv.train.bank_step import BankStep
from protopinv.train.capture import WARM_UP, CapturedStep
from protopinv.train.config import FIELDS, TrainConfig, offered_default
from protopinv.train.history import History
from protopinv.train.loop import EpochReport, Observer
from protopinv.train.model import Model, train_population
from protopinv.train.population import OWN
from protopinv.train.prepare import first_banks, noise_generator, prepare
from protopinv.train.rows import Rows
from protopinv.train.settle import settle
from protopinv.train.source import Source, piece_rows, seen_by_network
from protopinv.train.step import Step

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


def settled(parameters: Parameters, source: Source, device: str) -> TrainConfig:
    """The configuration that an estimator with these parameters trains with."""
    offered = {name: offered_default(name) for name in FIELDS}
    return settle({**offered, **parameters}, source.shape(torch.device(device)))


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
    source: Source,
    jobs: Sequence[Job],
    device: str,
    held_out: NDArray[np.integer[Any]] | None = None,
) -> Iterator[tuple[int, Model | TrainingError]]:
    """The place of each job with its model, or with the error of its training."""
    for places in batches_of(jobs):
        chosen = [jobs[place] for place in places]
        try:
            models = train_population(
                source,
                [job.config for job in chosen],
                [job.seed for job in chosen],
                device=torch.device(device),
                clock=time.perf_counter,
                held_out=held_out,
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


def outputs_of(model: Model, X: NDArray[Any], device: str) -> Tensor:
    """Raw outputs of the folded network in float64, on the host."""
    place = torch.device(device)
    network, front = model.network.to(place), model.front
    front = None if front is None else front.to(place)
    size = piece_rows(max(network.sizes), front, place)
    pieces = (np.array(X[start : start + size]) for start in range(0, len(X), size))
    moved = (torch.from_numpy(piece).to(place) for piece in pieces)
    return torch.cat([network(seen_by_network(rows, front)).cpu() for rows in moved])


def accuracy_of(model: Model, X: NDArray[Any], y: NDArray[Any], device: str) -> float:
    """The share of rows whose largest output is that of their class, classes being 0, 1, ..."""
    return float((outputs_of(model, X, device).argmax(1).numpy() == y).mean())


def sizes_of(model: Model) -> tuple[int, int]:
    """Trainable parameters, and parameters that must be stored to predict."""
    front = 0 if model.front is None else model.front.n_numbers
    return model.bank.n_trained, model.network.n_shipped + front


def projected_rows(task: Task, config: TrainConfig, *, seed: int, device: str) -> tuple[Rows, Rows]:
    """Rows to train on and those held out, as the network sees them."""
    held_out = np.arange(len(task.train.y), len(task.all_rows.y))
    source = source_of(task.all_rows)
    prepared = prepare(source, config, torch.device(device), seed=seed, held_out=held_out)
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
    configs = [config] * len(seeds)
    first = first_banks(rows, OBJECTIVE, configs, seeds)
    banks = [
        start(first.member(number), rows, Generator().manual_seed(seed))
        for number, seed in enumerate(seeds)
    ]
    generator = noise_generator(seeds[0], rows.X.device)
    return BankStep(population(banks), configs, OBJECTIVE, generator=generator)


def ready_step(step: Step[Any], rows: Rows) -> Callable[[], object]:
    """A step on these rows that ran before: captured on a GPU, warm on a CPU."""
    ready = CapturedStep(step, rows) if rows.X.is_cuda else step
    for _ in range(WARM_UP + 1):  # on a GPU the last of these is captured
        ready(rows, SOME_RATE)
    return lambda: ready(rows, SOME_RATE)
