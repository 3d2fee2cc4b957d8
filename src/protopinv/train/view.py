"""How rows as they came become what the network sees, and what each of them counts."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from protopinv.features import FeatureMap, Front
from protopinv.objective import Objective
from protopinv.rows import Piece
from protopinv.train.source import piece_rows, seen_by_network
from protopinv.train.survey import as_tensor


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
            seen = seen_by_network(rows, self.front)
            Z[start : start + size] = self.features.project(seen)
        return Z

    def fetched(self, piece: Piece) -> Piece:
        """The same on the GPU, with targets encoded: copied by the thread that reads.

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


@dataclass(frozen=True)
class Counting:
    """What rows count: once each, by their weights, and by the members that leave them out.

    ``mean`` is that of the weights of all rows; None counts each once. With folds ``n_full``
    members see all rows, and ``fold_mass`` is what the rows of each fold count together.
    """

    n: int
    mean: float | None = None
    n_full: int = 0
    fold_mass: tuple[float, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether any row counts other than once."""
        return self.mean is not None or len(self.fold_mass) > 0

    def weights(
        self, mass: NDArray[np.float64], fold: NDArray[np.int64], dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """What rows count to train on, and to judge those who leave them out."""
        if not self.is_needed:
            return None, None
        weight = torch.from_numpy(mass / (self.mean or 1.0))[None]
        if not self.fold_mass:
            return weight.to(dtype), None
        # in units in which all rows count ``n`` together
        folds = torch.tensor(self.fold_mass, dtype=torch.float64)[:, None] / (self.mean or 1.0)
        left_out = torch.from_numpy(fold) == torch.arange(len(folds))[:, None]
        seen = weight * ~left_out * (self.n / (self.n - folds))
        held = weight * left_out / folds
        full = weight.expand(self.n_full, -1)
        nothing = torch.zeros_like(full)
        return torch.cat([full, seen]).to(dtype), torch.cat([nothing, held]).to(dtype)


@lru_cache(maxsize=8)
def fetching(device: torch.device) -> torch.cuda.Stream:
    """The stream on which rows come to a GPU."""
    return torch.cuda.Stream(device)
