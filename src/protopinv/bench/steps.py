"""From a task to a step that can be trained or timed, as ``fit`` makes it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from protopinv.bank import Bank, population
from protopinv.bench import tasks
from protopinv.bench.tasks import CLASSES, Task
from protopinv.objective import Classes
from protopinv.train.bank_step import BankStep
from protopinv.train.capture import WARM_UP, CapturedStep
from protopinv.train.config import TrainConfig
from protopinv.train.prepare import first_banks, noise_generator, prepare
from protopinv.train.rows import Rows
from protopinv.train.source import Source
from protopinv.train.step import Step

# A share of the peak learning rate, for steps of which only the time counts.
SOME_RATE = 0.1
OBJECTIVE = Classes(np.arange(CLASSES))


def labelled_rows(task: Task) -> tuple[Source, NDArray[np.int64]]:
    """All rows of a task but the test's, and the numbers of those held out."""
    rows = task.all_rows
    held_out = np.arange(len(task.train.y), len(rows.y))
    return Source(rows.X, rows.y.astype(np.int64), OBJECTIVE), held_out


def source_of(rows: tasks.Rows) -> Source:
    """Rows of a task to train on."""
    return Source(rows.X, rows.y.astype(np.int64), OBJECTIVE)


def projected_rows(task: Task, config: TrainConfig, *, seed: int, device: str) -> tuple[Rows, Rows]:
    """Rows to train on and those held out, as the network sees them."""
    source, held_out = labelled_rows(task)
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
    """A step on these rows that has been taken before: captured on a GPU, warm on a CPU."""
    taken = CapturedStep(step, rows) if rows.X.is_cuda else step
    for _ in range(WARM_UP + 1):  # on a GPU the last of these is captured
        taken(rows, SOME_RATE)
    return lambda: taken(rows, SOME_RATE)
