"""Fits that write checkpoints, and fits that go on from them."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from protopinv.errors import ConfigError
from protopinv.estimators.door import Checked
from protopinv.objective import Objective
from protopinv.plain import plain
from protopinv.rows import RowSource
from protopinv.rows.arrays import digest
from protopinv.rows.source import Wanted
from protopinv.train.checkpoint import Checkpoints, Every
from protopinv.train.config import TrainConfig
from protopinv.train.ranks import Ranks

# Ranks compare the first targets of so many blocks, which lie evenly among all.
SOME_BLOCKS = 16
SOME_ROWS = 1024


@dataclass(frozen=True)
class Saving:
    """Where checkpoints of a fit go, how often, and whether to go on from the one there is."""

    path: str | Path | None = None
    every: int | str = "5min"
    resume: bool = False

    def checkpoints(
        self, ranks: Ranks, seed: int, *, is_given: bool
    ) -> tuple[Checkpoints | None, int]:
        """Where checkpoints go, if anywhere, and the seed: that of the training to go on with.

        A seed that a user has given stays.
        """
        seed = ranks.gather(seed)[0]
        if self.path is None:
            if self.resume:
                raise ConfigError(
                    "To resume needs a checkpoint to go on from. Got resume=True without one. Give "
                    "checkpoint=path too."
                )
            return None, seed
        started = time.perf_counter()
        checkpoints = Checkpoints(
            Path(self.path),
            Every.of(self.every),
            self.resume,
            ranks,
            lambda: time.perf_counter() - started,
        )
        known = checkpoints.saved_seed()
        return checkpoints, seed if known is None or is_given else known


def is_resumed(checkpoints: Checkpoints | None) -> bool:
    """Whether a checkpoint was there to go on from."""
    return checkpoints is not None and checkpoints.saved_seed() is not None


def array_fingerprint(checked: Checked) -> dict[str, Any]:
    """What tells these rows from others: all of their numbers."""
    parts = [checked.X, checked.y if checked.y.dtype.kind != "O" else checked.y.astype(str)]
    if checked.weight is not None:
        parts.append(checked.weight)
    return {
        "rows": len(checked.X),
        "features": int(checked.X.shape[1]),
        "numbers": digest(*(np.ascontiguousarray(part).tobytes() for part in parts)),
    }


def rows_fingerprint(source: RowSource) -> dict[str, Any]:
    """What tells the rows of a source from others, with targets from some of its blocks."""
    places = np.unique(np.linspace(0, len(source.blocks) - 1, SOME_BLOCKS).astype(np.int64))
    wanted = Wanted(SOME_ROWS, features=False)
    pieces = (next(source.read(source.blocks[place], wanted)) for place in places.tolist())
    targets = digest(*(np.asarray(piece.y)[:SOME_ROWS].astype(str).tobytes() for piece in pieces))
    return {**source.fingerprint(), "targets in some blocks": targets}


def alike(estimator: BaseEstimator, saving: Saving) -> dict[str, Any]:
    """Parameters in which all ranks of a job must agree, under the names users know."""
    own = {
        name: plain(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("device", "verbose") and not isinstance(value, np.random.RandomState)
    }
    every = None if saving.path is None else saving.every
    return {**own, "checkpoint_every": every, "resume": saving.resume}


def fingerprint(
    rows: dict[str, Any], configs: Sequence[TrainConfig], objective: Objective
) -> dict[str, Any]:
    """What a checkpoint must agree in with those who go on from it."""
    return {
        "rows": {**rows, "targets of": plain(objective.describe())},
        "configuration": {
            str(number): plain(asdict(config)) for number, config in enumerate(configs)
        },
    }
