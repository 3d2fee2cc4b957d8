"""Fits that write checkpoints, fits that resume from them, and what several ranks agree in."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protopinv.errors import ConfigError
from protopinv.objective import Objective
from protopinv.plain import plain
from protopinv.rows import RowSource, digest
from protopinv.train.checkpoint import Checkpoints, Every
from protopinv.train.config import TrainConfig
from protopinv.train.ranks import Ranks

# Ranks compare the first targets of so many blocks, which lie evenly among all.
SOME_BLOCKS = 16
SOME_ROWS = 1024


@dataclass(frozen=True)
class Saving:
    """Where checkpoints of a fit go, how often, and whether to resume from the one there is."""

    path: str | Path | None = None
    every: int | str = "5min"
    resume: bool = False

    def checkpoints(
        self, ranks: Ranks, seed: int, *, is_fixed: bool
    ) -> tuple[Checkpoints | None, int]:
        """Where checkpoints go, if anywhere, and the seed: that of the training to resume.

        A seed that a user has fixed stays.
        """
        seed = ranks.gather(seed)[0]
        if self.path is None:
            if self.resume:
                raise ConfigError(
                    "To resume needs a checkpoint to resume from. Got resume=True without one. "
                    "Give checkpoint=path too."
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
        saved = checkpoints.saved_seed()
        return checkpoints, seed if saved is None or is_fixed else saved


def is_resumed(checkpoints: Checkpoints | None) -> bool:
    """Whether a checkpoint was there to resume from."""
    return checkpoints is not None and checkpoints.saved_seed() is not None


def require_alike(
    ranks: Ranks, rows: RowSource, parameters: Mapping[str, Any], saving: Saving
) -> None:
    """Raise RankError unless all ranks have the same rows, parameters and plan for checkpoints."""
    if ranks.size == 1:
        return
    places = np.unique(np.linspace(0, len(rows.blocks) - 1, SOME_BLOCKS).astype(np.int64))
    blocks = [rows.blocks[place] for place in places.tolist()]
    pieces = (next(rows.read(block, SOME_ROWS, features=False)) for block in blocks)
    targets = digest(*(np.asarray(piece.y)[:SOME_ROWS].astype(str).tobytes() for piece in pieces))
    own = {name: plain(value) for name, value in parameters.items()}
    every = None if saving.path is None else saving.every
    facts = {**rows.fingerprint(), "targets in some blocks": targets}
    ranks.require_alike({**own, "checkpoint_every": every, "resume": saving.resume, "rows": facts})


def fingerprint(
    rows: RowSource, configs: Sequence[TrainConfig], objective: Objective
) -> dict[str, Any]:
    """What a checkpoint must agree in with the training that resumes from it."""
    return {
        "rows": {**rows.fingerprint(), "targets of": plain(objective.describe())},
        "configuration": {
            str(number): plain(asdict(config)) for number, config in enumerate(configs)
        },
    }
