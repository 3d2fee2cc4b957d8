"""How rows as they came become what the network sees."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from protopinv.features import FeatureMap, Front, Stem
from protopinv.objective import Objective
from protopinv.rows import Piece

# Rows are converted to float64 a piece at a time, about this many numbers; larger pieces are not
# faster, and leave memory behind.
PIECE_NUMBERS = 2**18
GPU_PIECE_NUMBERS = 2**23
# All rows are moved to a GPU, once for a training, if they take at most this share of its memory.
MOST_OF_FREE = 0.25
# Pieces for the maps of a stem.
STEM_NUMBERS = 2**21
GPU_STEM_NUMBERS = 2**28


@dataclass(frozen=True)
class View:
    """How rows as they came become what the network sees."""

    front: Front | None
    features: FeatureMap
    objective: Objective
    dtype: torch.dtype
    device: torch.device

    @property
    def exact(self) -> torch.dtype:
        """The number type of targets and weights."""
        return torch.float32 if self.dtype == torch.bfloat16 else self.dtype

    def inputs(self, X: NDArray[Any] | Tensor) -> Float[Tensor, "n d"]:
        """Projected rows, made in pieces that stay in cache."""
        n, d = len(X), self.features.n_components
        Z = torch.empty(n, d, dtype=self.dtype, device=self.device)
        size = piece_rows(X.shape[1], self.front, self.device)
        for start in range(0, n, size):
            rows = X[start : start + size]
            rows = rows if isinstance(rows, Tensor) else self.placed(rows)
            Z[start : start + size] = self.features.project(seen_by_network(rows, self.front))
        return Z

    def fetched(self, piece: Piece) -> Piece:
        """A piece on the GPU, with targets encoded: copied by the thread that reads.

        What the thread waits for does not keep the GPU from its work on earlier pieces.
        """
        stream = fetching(self.device)
        with torch.cuda.stream(stream):
            X, y = self.placed(piece.X), self.targets(np.asarray(piece.y))
        stream.synchronize()
        return Piece(X, y, piece.weight, piece.first)

    def targets(self, y: NDArray[Any] | Tensor) -> Tensor:
        """Encoded, in the type they are judged in."""
        if isinstance(y, Tensor):
            return y
        targets = torch.from_numpy(np.ascontiguousarray(self.objective.encode(y)))
        targets = targets.to(self.exact) if targets.is_floating_point() else targets
        return targets.to(self.device)

    def placed(self, X: NDArray[Any]) -> Tensor:
        """Numbers on the device; a GPU fetches them beside its work."""
        if self.device.type == "cpu":
            return as_tensor(X)
        # torch cannot pick rows of long unsigned integers there
        long = X.dtype.kind == "u" and X.dtype.itemsize > 1
        rows = as_tensor(X.astype(np.float64) if long else X)
        pinned = rows if rows.is_pinned() else rows.pin_memory()
        return pinned.to(self.device, non_blocking=True)


@lru_cache(maxsize=8)
def fetching(device: torch.device) -> torch.cuda.Stream:
    """The stream on which rows come to a GPU."""
    return torch.cuda.Stream(device)


def as_tensor(X: NDArray[Any]) -> Tensor:
    """Numbers of a type that torch knows, in memory that it may write to."""
    native = X.dtype.isnative and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8
    return torch.from_numpy(np.require(X if native else X.astype(np.float64), None, ["C", "W"]))


def moved_to(device: torch.device, X: NDArray[Any]) -> Tensor | None:
    """All rows on a GPU, in the type they came in; None where it has no room to spare for them."""
    # torch cannot pick rows of long unsigned integers there
    if device.type != "cuda" or (X.dtype.kind == "u" and X.dtype.itemsize > 1):
        return None
    if X.nbytes > MOST_OF_FREE * torch.cuda.mem_get_info(device)[0]:
        return None
    moved = torch.from_numpy(np.empty(0, X.dtype)).new_empty(X.shape, device=device)
    size = max(1, GPU_PIECE_NUMBERS // X.shape[1])
    for start in range(0, len(X), size):
        # torch takes neither reversed nor read-only arrays as they are
        piece = np.require(X[start : start + size], requirements=["C", "W"])
        moved[start : start + size] = torch.from_numpy(piece)
    return moved


def piece_rows(width: int, front: Front | None, device: torch.device | str) -> int:
    """Rows to take at a time; the maps of a stem get more room, or convolutions would crawl."""
    on_cpu = torch.device(device).type == "cpu"
    if not isinstance(front, Stem):
        return max(1, (PIECE_NUMBERS if on_cpu else GPU_PIECE_NUMBERS) // width)
    room = STEM_NUMBERS if on_cpu else GPU_STEM_NUMBERS
    return max(1, room // max(front.widest, width))


def seen_by_network(X: Tensor, front: Front | None) -> Float[Tensor, "n d"]:
    """Rows in float64, behind the front if there is one."""
    return X.double() if front is None else front.features(X)
