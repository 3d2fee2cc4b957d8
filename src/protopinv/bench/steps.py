"""From a task to a step that can be trained or timed, as ``fit`` makes it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from protopinv.bank import Bank
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


def projected_rows(task: Task, config: TrainConfig, *, seed: int, device: str) -> tuple[Rows, Rows]:
    """Rows to train on and those held out, as the network sees them."""
    source, held_out = labelled_rows(task)
    prepared = prepare(source, config, torch.device(device), seed=seed, held_out=held_out)
    if prepared.validation is None:
        raise AssertionError("rows were held out")
    return prepared.rows, prepared.validation


def first_step(
    rows: Rows,
    config: TrainConfig,
    *,
    seed: int,
    members: int = 1,
    start: Callable[[Bank, Rows, Generator], Bank] = lambda bank, _, __: bank,
) -> BankStep:
    """The step of banks that begin with these rows; ``start`` may change how they begin."""
    configs, seeds = [config] * members, range(seed, seed + members)
    generator = Generator().manual_seed(seed)
    bank = start(first_banks(rows, OBJECTIVE, configs, seeds), rows, generator)
    return BankStep(bank, configs, OBJECTIVE, generator=noise_generator(seed, rows.X.device))


def ready_step(step: Step[Any], rows: Rows) -> Callable[[], object]:
    """A step on these rows that has been taken before: captured on a GPU, warm on a CPU."""
    taken = CapturedStep(step, rows) if rows.X.is_cuda else step
    for _ in range(WARM_UP + 1):  # on a GPU the last of these is captured
        taken(rows, SOME_RATE)
    return lambda: taken(rows, SOME_RATE)
