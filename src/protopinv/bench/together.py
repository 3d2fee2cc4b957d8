"""Many trainings as few: those of one shape are the members of a population.

Members share all that is drawn while training, by the seed of the first: features, batches, noise.
Their own seeds draw their first banks.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.bench.shape import Parameters
from protopinv.errors import TrainingError
from protopinv.train.config import FIELDS, TrainConfig, offered_default
from protopinv.train.loop import EpochReport, Observer
from protopinv.train.model import Model, train_population
from protopinv.train.population import OWN
from protopinv.train.settle import settle
from protopinv.train.source import Source, piece_rows, seen_by_network

# More would leave little of a GPU's memory for chunks of rows, and lose more when interrupted.
MOST_TOGETHER = 10


@dataclass(frozen=True)
class Job:
    """One training, and who looks at its only bank."""

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
    """The place of each job with its model, or with what is wrong with it.

    Training keeps the best so far after Ctrl-C; a benchmark must not take that for a result, so
    KeyboardInterrupt is raised.
    """
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
            if model.history.ending == "interrupted":
                raise KeyboardInterrupt
            yield place, model


def _show(jobs: Sequence[Job], report: EpochReport) -> None:
    """To each observer its own member, as a population of one."""
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


def numbers_of(model: Model) -> tuple[int, int]:
    """Numbers trained, and numbers that must be stored to predict."""
    front = 0 if model.front is None else model.front.n_numbers
    return model.bank.n_trained, model.network.n_shipped + front
