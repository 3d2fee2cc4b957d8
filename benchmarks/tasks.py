"""Image sets to measure on: the official splits, with 6,000 training rows held out for choices."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from protopinv.data import load_data
from protopinv.objective import Classes, Objective
from protopinv.rows import MemoryRows
from protopinv.train.data import Data, data_in_memory

# How the data sets are called in tables.
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion"}
DATASETS = tuple(NAMES)
CLASSES = 10
SIDE = 28  # pixels
OBJECTIVE = Classes(np.arange(CLASSES))
HELD_OUT = 6_000
QUICK_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Images as rows of pixels, and their labels."""

    X: NDArray[Any]
    y: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to train on, rows to choose on, and rows that are scored once for each number."""

    name: str
    train: Rows
    held_out: Rows
    test: Rows

    @cached_property
    def all_rows(self) -> Rows:
        """Rows to train on, then those to choose on."""
        parts = (self.train, self.held_out)
        return Rows(np.concatenate([p.X for p in parts]), np.concatenate([p.y for p in parts]))


@cache
def load_task(name: str, *, quick: bool = False) -> Task:
    """The same stratified split every time; ``quick`` returns a few thousand rows of it."""
    data, test = load_data(name, split="train"), load_data(name, split="test")
    train, held_out = train_test_split(
        np.arange(len(data.X)), test_size=HELD_OUT, random_state=0, stratify=data.y
    )
    if quick:
        train, held_out = train[:QUICK_ROWS], held_out[: QUICK_ROWS // 5]
    return Task(
        name,
        Rows(data.X[train], data.y[train]),
        Rows(data.X[held_out], data.y[held_out]),
        Rows(test.X, test.y),
    )


def as_images(rows: Rows) -> Rows:
    """Rows of pixels as images."""
    return Rows(rows.X.reshape(-1, SIDE, SIDE), rows.y)


@dataclass(frozen=True, eq=False)
class Arrays:
    """Rows and targets, the seed of what is drawn from them, and numbers of held-out rows."""

    X: NDArray[Any]
    y: NDArray[Any]
    objective: Objective
    seed: int = 0
    held_out: NDArray[np.integer[Any]] | None = None

    @property
    def data(self) -> Data:
        """What training takes."""
        rows = MemoryRows(self.X, self.y)
        return data_in_memory(rows, self.objective, self.seed, held_out=self.held_out)


def arrays_of(rows: Rows) -> Arrays:
    """Rows of an image set to train on."""
    return Arrays(rows.X, rows.y.astype(np.int64), OBJECTIVE)
