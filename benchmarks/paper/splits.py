"""Rows to choose on, and other rows to judge on.

The 6,000 rows on which recipes are chosen are those of every other study. The other 54,000 are
dealt into nine parts of 6,000; each split after the first holds out one of these, so no row that
judges a setting has been among those that chose it.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from benchmarks.tasks import OBJECTIVE, Arrays, load_task

PARTS = 9
QUICK_ROWS = 2_000


@dataclass(frozen=True, eq=False)
class SplitRows:
    """All training rows of a data set, and which of them each split holds out."""

    data: Arrays
    held_out: tuple[NDArray[np.int64], ...]

    @property
    def overlap(self) -> float:
        """Held-out rows over training rows, for the error of a mean over splits."""
        held = len(self.held_out[0])
        return held / (len(self.data.X) - held)

    def parts(self, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of rows to train on, and of those held out."""
        held = self.held_out[split]
        return np.setdiff1d(np.arange(len(self.data.X)), held), held


@cache
def load_rows(dataset: str, *, quick: bool = False) -> SplitRows:
    """The first split chooses, the others judge; ``quick`` keeps a few rows of each."""
    task = load_task(dataset)
    X, y = task.all_rows.X, task.all_rows.y.astype(np.int64)
    n = len(task.train.y)
    choosing = np.arange(n, len(y))
    folds = StratifiedKFold(PARTS, shuffle=True, random_state=0).split(X[:n], y[:n])
    held_out: list[NDArray[Any]] = [choosing, *(held for _, held in folds)]
    if quick:
        few = QUICK_ROWS // (PARTS + 1)
        rows = np.concatenate([held[:few] for held in held_out])
        held_out = [np.arange(few) + few * number for number in range(PARTS + 1)]
        X, y = X[rows], y[rows]
    return SplitRows(Arrays(X, y, OBJECTIVE), tuple(held_out))
