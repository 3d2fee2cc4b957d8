"""Rows on the host as they came, converted and moved a piece at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from protopinv.features import Distortion, FeatureMap, Front, Stem
from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.objective import Objective
from protopinv.train.rows import Rows
from protopinv.train.settle import FEW_COLUMNS, DataShape

# Rows are converted to float64 a piece at a time, about this many numbers; larger pieces are not
# faster, and leave memory behind.
PIECE_NUMBERS = 2**18
GPU_PIECE_NUMBERS = 2**23
# All rows are moved to a GPU, once for a training, if they take at most this share of its memory.
MOST_OF_FREE = 0.25
# Columns have one unit if half of those that vary span nearly the range of all together.
UNIT_ROWS, UNIT_COLUMNS, UNIT_RANGE = 1_000, 0.5, 0.9
# Pieces for the maps of a stem.
STEM_NUMBERS = 2**21
GPU_STEM_NUMBERS = 2**28


@dataclass(frozen=True)
class Piece:
    """Some rows in float64, behind the front if there is one, with their targets and weights."""

    X: Float[Tensor, "n d"]
    y: Tensor
    weight: Float[Tensor, " n"] | None


@dataclass(frozen=True)
class Source:
    """Rows on the host in the type they came in; only a piece at a time is converted.

    ``targets`` are encoded as the objective has them. ``weight`` says what each row counts; None
    for once each, in a ``unit`` that matters only where rows are remembered. ``moved`` holds all
    rows on a GPU, where that is not too much; else pieces are moved as well.
    """

    X: NDArray[Any]
    targets: NDArray[Any]
    objective: Objective
    weight: NDArray[np.float64] | None = None
    front: Front | None = None
    moved: Tensor | None = None
    unit: float = 1.0

    def shape(self, device: torch.device) -> DataShape:
        """What the rules for "auto" look at."""
        n, d = self.X.shape
        return DataShape(
            n,
            d,
            self.objective.n_groups,
            fast_bfloat16=fast_bfloat16(device),
            on_gpu=device.type == "cuda",
            one_unit=have_one_unit(self.X),
        )

    @property
    def n_features(self) -> int:
        """Features a row has, behind the front if there is one."""
        return self.X.shape[1] if self.front is None else self.front.n_outputs

    def groups(self) -> NDArray[np.int64]:
        """The kind of each row, for folds and a hold-out."""
        groups: NDArray[np.int64] = self.objective.groups(torch.from_numpy(self.targets)).numpy()
        return groups

    def placed(self, device: torch.device) -> "Source":
        """The same with all rows on the device, where there is room for them."""
        return replace(self, moved=moved_to(device, self.X))

    def pieces(
        self,
        chosen: NDArray[np.integer[Any]],
        device: torch.device,
        width: int,
        distortion: Distortion | None = None,
    ) -> Iterator[Piece]:
        """The chosen row numbers; ``width`` numbers a row are used.

        A ``distortion`` comes before anything else.
        """
        size, done = piece_rows(width, self.front, device), 0
        for numbers in np.array_split(chosen, max(1, -(-len(chosen) // size))):
            rows = self._taken(numbers, device)
            if distortion is not None:
                rows = distortion(rows, done)
            done += len(rows)
            yield Piece(
                seen_by_network(rows, self.front),
                torch.from_numpy(self.targets[numbers]).to(device),
                self.weights_of(numbers, device),
            )

    def weights_of(
        self, chosen: NDArray[np.integer[Any]], device: torch.device
    ) -> Float[Tensor, " n"] | None:
        """What the chosen rows count, in float64."""
        return None if self.weight is None else torch.from_numpy(self.weight[chosen]).to(device)

    def masses(self, chosen: NDArray[np.integer[Any]]) -> Float[Tensor, " g"]:
        """What the chosen rows of every group count together."""
        weight = None if self.weight is None else self.weight[chosen] * self.unit
        sums = np.bincount(self.groups()[chosen], weight, self.objective.n_groups)
        return torch.from_numpy(sums.astype(np.float64))

    def projected(
        self,
        chosen: NDArray[np.integer[Any]],
        features: FeatureMap,
        dtype: torch.dtype,
        device: torch.device,
        distortions: Sequence[Distortion] = (),
    ) -> Rows:
        """The chosen rows as the network sees them, and after them a copy for each distortion."""
        times = 1 + len(distortions)
        Z = torch.empty(len(chosen) * times, features.n_components, dtype=dtype, device=device)
        done = 0
        for distortion in (None, *distortions):
            for piece in self.pieces(chosen, device, self.n_features, distortion):
                Z[done : done + len(piece.X)] = features.project(piece.X)
                done += len(piece.X)
        y = torch.from_numpy(self.targets[chosen])
        exact = torch.float32 if dtype == torch.bfloat16 else dtype
        y = y.to(device, exact if y.is_floating_point() else None)
        y = y.repeat(times, *[1] * (y.ndim - 1))
        weight = self.weights_of(chosen, device)
        if weight is None:
            return Rows(Z, y)
        return Rows(Z, y, (weight / weight.mean()).to(exact).repeat(times)[None])

    def _taken(self, numbers: NDArray[np.integer[Any]], device: torch.device) -> Tensor:
        if self.moved is None:
            return torch.from_numpy(self.X[numbers]).to(device)
        return self.moved[torch.from_numpy(numbers).to(device)]


def have_one_unit(X: NDArray[Any]) -> bool:
    """Whether columns are many and most span one range, as pixels do, by some of the rows.

    Then one scale for all of them keeps what varies little small: pixels at the edge are mostly
    noise. Columns of 0 and 1 alone are answers to different questions, and have no unit.
    """
    if X.shape[1] <= FEW_COLUMNS:
        return False
    some = np.ascontiguousarray(X[:: max(1, len(X) // UNIT_ROWS)])
    first, last = some.min(0), some.max(0)
    low, high = first.astype(np.float64), last.astype(np.float64)
    least, most = low.min(), high.max()
    near = (1 - UNIT_RANGE) * (most - least)
    spans = (low <= least + near) & (high >= most - near)
    if spans.sum() < UNIT_COLUMNS * max(1, (high > low).sum()):
        return False
    has_more = ((some > first) & (some < last)).any(0)
    return bool((spans & has_more).sum() >= UNIT_COLUMNS * max(1, (high > low).sum()))


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
