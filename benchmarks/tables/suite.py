"""Public tables for every task, of 100 to 100,000 rows, from the package index.

Some are in wheels that are read as the archives they are, others in packages of the study extra.
Every table says from which source it was cut. Sources are dealt into two halves by a hash of their
name: rules are chosen on the development half, and the confirmation half is scored at the end.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import packaged, wheels

Task = Literal["classification", "regression", "multi-label"]
Half = Literal["development", "confirmation"]
HALVES: tuple[Half, ...] = ("development", "confirmation")
IMBALANCED = "imbalanced/"  # before the names of tables made to be so: a rare class against others
# Tables of one source under several names.
SAME = {
    "wdbc": "breast",
    "wisconsin": "breast",
    "cleveland": "heart",
    "optdigits": "digits",
    "newthyroid": "new",
    "hypothyroid": "new",
    "insurance": "medical",
    "kr": "chess",
    "splice": "dna",
    "mortgage": "treasury",  # the same rows, another column is asked for
    "ada": "adult",
    "australian": "crx",
}


@dataclass(frozen=True)
class Table:
    """Rows, and what to predict from them.

    ``X`` is a frame as it came, or numbers: then text has become a column for each of its values.
    """

    name: str
    task: Task
    X: Any
    y: NDArray[Any]

    def rows(self, rows: Any) -> Any:
        """Some rows of ``X``, by number, slice or mask."""
        return self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows]


@dataclass(frozen=True)
class Loader:
    """Loads a table when it is called; its task is known before."""

    name: str
    task: Task
    load: Callable[[], tuple[Any, Any]]

    def __call__(self) -> Table:
        """The table."""
        X, y = self.load()
        X = np.ascontiguousarray(X, dtype=np.float64)
        return Table(self.name, self.task, X, np.asarray(y))


Loaders = dict[str, Loader]


def suite(folder: Path | None, *, with_packages: bool = False) -> Loaders:
    """How to load each table, by name.

    Without a folder of wheels only scikit-learn's own; ``with_packages`` adds those of packages
    that must be installed. Tables made to be imbalanced come last.
    """
    loaders: Loaders = {
        name: Loader(name, "classification", load)
        for name, load in packaged.BUNDLED_CLASSES.items()
    }
    loaders["diabetes"] = Loader("diabetes", "regression", packaged.diabetes)
    if folder is not None:
        for name, (task, load) in wheels.tables(folder).items():
            loaders[name] = Loader(name, task, load)
    if with_packages:
        for name, (task, load) in packaged.tables().items():
            loaders.setdefault(name, Loader(name, task, load))
    if folder is not None:
        for name, load in wheels.imbalanced(folder).items():
            loaders[IMBALANCED + name] = Loader(name, "classification", load)
    return loaders


def source_of(name: str) -> str:
    """The table that a table was cut from: tables of one source begin with the same word."""
    start = re.match(r"[a-z]+", name.removeprefix(IMBALANCED).lower())
    word = start.group() if start else name
    return SAME.get(word, word)


def half_of(name: str) -> Half:
    """Where a table belongs: decided by its source alone, for ever."""
    return HALVES[hashlib.sha256(source_of(name).encode()).digest()[0] % 2]
