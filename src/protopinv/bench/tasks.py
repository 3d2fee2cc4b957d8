"""What is measured on: the official splits, with 6,000 training rows held out once and for all."""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from protopinv.data import load_data

DATASETS = ("mnist", "fashion-mnist")
CLASSES = 10
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
    """The same stratified split every time; ``quick`` keeps a few thousand rows of it."""
    data, test = load_data(name, split="train"), load_data(name, split="test")
    kept, held_out = train_test_split(
        np.arange(len(data.X)), test_size=HELD_OUT, random_state=0, stratify=data.y
    )
    if quick:
        kept, held_out = kept[:QUICK_ROWS], held_out[: QUICK_ROWS // 5]
    return Task(
        name,
        Rows(data.X[kept], data.y[kept]),
        Rows(data.X[held_out], data.y[held_out]),
        Rows(test.X, test.y),
    )
