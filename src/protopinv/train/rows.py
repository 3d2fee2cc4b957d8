"""Rows as the network sees them: how they are made, walked in chunks or batches, and augmented."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.features import Distortion, FeatureMap, Front, Stem, Steps
from protopinv.objective import Objective
from protopinv.rows import Piece
from protopinv.train.state import Resumable

# Rows are converted to float64 a piece at a time, about this many numbers; larger pieces are not
# faster, and leave memory behind. The maps of a stem get more room, or convolutions would crawl.
PIECE_NUMBERS, STEM_NUMBERS = 2**18, 2**21
GPU_PIECE_NUMBERS, GPU_STEM_NUMBERS = 2**23, 2**28
# A chunk's widest activation should stay in cache, about this many bytes; measured at
# 54,000 x 400 -> 512, chunks of 1,024 to 4,096 rows were about equally fast, others slower.
CPU_CHUNK_BYTES = 3 * 2**20
GPU_CHUNK_BYTES = 2**30
CPU_CHUNK_MOST = 2**13
# On a CPU normal draws cost half an epoch, so noise comes from a pool of this many rows, of which
# one is drawn anew for every REUSE that are used.
POOL_ROWS = 8192
REUSE = 8


@dataclass(frozen=True)
class View:
    """How rows as they came become what the network sees.

    A ``distortion`` of images comes first, then the ``front``, then the affine map of ``features``,
    then the ``steps`` of its numbers.
    """

    front: Front | None
    features: FeatureMap
    objective: Objective
    dtype: torch.dtype
    device: torch.device
    distortion: Distortion | None = None
    steps: Steps | None = None

    @property
    def exact(self) -> torch.dtype:
        """The number type of targets and weights."""
        return torch.float32 if self.dtype == torch.bfloat16 else self.dtype

    @property
    def width(self) -> int:
        """The number of features the network sees."""
        return self.features.n_components if self.steps is None else self.steps.n_outputs

    def inputs(self, X: Any, chosen: NDArray[np.int64] | None = None) -> Float[Tensor, "n d"]:
        """Projected rows, those ``chosen`` by number or all, made in pieces that stay in cache."""
        n = len(X) if chosen is None else len(chosen)
        Z = torch.empty(n, self.width, dtype=self.dtype, device=self.device)
        size = piece_rows(max(X.shape[1], self.width), self.front, self.device)
        for start in range(0, n, size):
            here = slice(start, start + size)
            rows = self.placed(rows_at(X, here if chosen is None else chosen[here]))
            if self.distortion is not None:
                rows = self.distortion(rows, start)
            seen = self.features.project(behind_front(rows, self.front))
            Z[here] = seen if self.steps is None else self.steps(seen)
        return Z

    def targets(self, y: Any, chosen: NDArray[np.int64] | None = None) -> Tensor:
        """Encoded targets, in the type they are judged in."""
        y = y if chosen is None else rows_at(y, chosen)
        if isinstance(y, Tensor):  # encoded by the thread that fetched them
            return y
        targets = torch.from_numpy(np.ascontiguousarray(self.objective.encode(np.asarray(y))))
        return targets.to(self.device, self.exact if targets.is_floating_point() else None)

    def fetched(self, piece: Piece) -> Piece:
        """A piece on the GPU, with targets encoded: copied by the thread that reads.

        What the thread waits for does not keep the GPU from its work on earlier pieces.
        """
        stream = _fetching(self.device)
        with torch.cuda.stream(stream):
            X, y = self.placed(piece.X), self.targets(piece.y)
        stream.synchronize()
        return piece._replace(X=X, y=y)

    def placed(self, X: NDArray[Any] | Tensor) -> Tensor:
        """Numbers on the device; a GPU fetches them beside its work."""
        if isinstance(X, Tensor):
            return X
        if self.device.type == "cpu":
            return as_tensor(X)
        rows = as_tensor(X.astype(np.float64) if is_long_unsigned(X) else X)
        pinned = rows if rows.is_pinned() else rows.pin_memory()
        return pinned.to(self.device, non_blocking=True)


@lru_cache(maxsize=8)
def _fetching(device: torch.device) -> torch.cuda.Stream:
    """The stream on which rows come to a GPU."""
    return torch.cuda.Stream(device)


def as_tensor(X: NDArray[Any]) -> Tensor:
    """Numbers of a type that torch knows, in memory that it may write to."""
    return torch.from_numpy(np.require(torch_ready(X), None, ["C", "W"]))


def torch_ready(X: Any) -> Any:
    """An array, or a sparse matrix, itself; or a float64 copy where torch has no such type."""
    native = X.dtype.isnative and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8
    return X if native else X.astype(np.float64)


def is_long_unsigned(X: NDArray[Any]) -> bool:
    """Whether these are numbers of which torch cannot pick rows on a GPU."""
    return X.dtype.kind == "u" and X.dtype.itemsize > 1


def rows_at(X: Any, chosen: Any) -> Any:
    """Some rows of an array, or of a tensor on a GPU, by a slice or by their numbers."""
    if isinstance(X, Tensor) and not isinstance(chosen, slice):
        return X[torch.from_numpy(chosen).to(X.device)]
    return X[chosen] if isinstance(X, Tensor) else np.asarray(X)[chosen]


def piece_rows(width: int, front: Front | None, device: torch.device | str) -> int:
    """Rows to convert at a time."""
    on_cpu = torch.device(device).type == "cpu"
    if not isinstance(front, Stem):
        return max(1, (PIECE_NUMBERS if on_cpu else GPU_PIECE_NUMBERS) // width)
    return max(1, (STEM_NUMBERS if on_cpu else GPU_STEM_NUMBERS) // max(front.widest, width))


def behind_front(X: Tensor, front: Front | None) -> Float[Tensor, "n d"]:
    """Rows in float64, behind the front if there is one."""
    return X.double() if front is None else front.features(X)


class AnyRows(ABC):
    """What is trained on: rows in memory, or rows that are read for every pass over them."""

    @property
    @abstractmethod
    def n_total(self) -> int:
        """Rows that a mean is over: all there are, wherever they are."""

    @property
    def bytes_read(self) -> int:
        """Bytes read from files, by this rank so far."""
        return 0

    @abstractmethod
    def without_held(self) -> "AnyRows":
        """Rows for a pass that does not judge held-out rows."""

    @abstractmethod
    def by_holders(self) -> "AnyRows":
        """Rows that count as the members that hold them out count them."""

    @abstractmethod
    def chunks(self, size: int) -> Iterator["Rows"]:
        """Pieces of at most ``size`` rows."""

    @abstractmethod
    def _shuffled(self, size: int, generator: Generator, skip: int) -> Iterator["Rows"]:
        """Every row once in mini-batches of at most ``size``, without the first ``skip``."""

    def n_batches(self, size: int | None) -> int:
        """How many batches of at most this size there are."""
        return 1 if size is None else -(-self.n_total // size)

    def _bounds(self, size: int) -> list[int]:
        """Where batches begin, and where the last one ends."""
        least, more = divmod(self.n_total, n := self.n_batches(size))
        return list(accumulate([least + (number < more) for number in range(n)], initial=0))

    def batches(
        self, size: int | None, generator: Generator, *, skip: int = 0
    ) -> "Iterator[AnyRows]":
        """All rows at once for ``None``, else every row once in shuffled mini-batches.

        These are as even as can be: a step by a few rows that were left over would undo others.
        The first ``skip`` of them are left out; what is drawn does not depend on that.
        """
        if size is None or size >= self.n_total:
            yield self
        else:
            yield from self._shuffled(size, generator, skip)


@dataclass(frozen=True)
class Rows(AnyRows):
    """Features as the network sees them, one target a row, and what each row counts.

    ``weight`` has one row for all members of a population or one each, and a mean of one over all
    rows there are; None counts every row once. ``held`` says, for members that leave rows out, what
    these count when the member is judged by them; it sums to one. ``fold`` is the number of the
    fold that a row is in: rows of different folds must not be mixed with one another.

    ``X`` has a leading axis where members see different rows. Where others hold rows too, as the
    ranks of a job do, ``total`` counts all there are, and ``places`` says which of these are here.
    """

    X: Float[Tensor, "*members n d"]
    y: Shaped[Tensor, "n *target"]
    weight: Float[Tensor, "_ n"] | None = None
    held: Float[Tensor, "_ n"] | None = None
    fold: Int[Tensor, " n"] | None = None
    total: int | None = None
    places: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_total(self) -> int:
        """All rows there are, wherever they are."""
        return len(self.y) if self.total is None else self.total

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All there are, under their names."""
        return {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}

    def without_held(self) -> "Rows":
        """Rows for a pass that does not judge held-out rows."""
        return replace(self, held=None)

    def by_holders(self) -> "Rows":
        """Rows that count as the members that hold them out count them."""
        held = self.X.new_zeros(1, len(self)) if self.held is None else self.held
        return Rows(self.X, self.y, held * self.n_total, total=self.total)

    def chunks(self, size: int) -> Iterator["Rows"]:
        """Consecutive pieces of at most ``size`` rows, without copying."""
        if len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self.taken(slice(start, start + size))

    def _shuffled(self, size: int, generator: Generator, skip: int) -> Iterator["Rows"]:
        order = torch.randperm(self.n_total, generator=generator, device=generator.device)
        yield from self.dealt(order, self._bounds(size)[skip:])

    def dealt(self, order: Int[Tensor, " total"], bounds: Sequence[int]) -> Iterator["Rows"]:
        """Batches between these bounds of an order of all rows, as far as they are here."""
        order = order.to(self.X.device)
        if self.places is not None:
            here = torch.full_like(order, -1)
            here[self.places] = torch.arange(len(self), device=order.device)
            order = here[order]
        for first, last in pairwise(bounds):
            batch = order[first:last]
            if self.places is None:  # to look for rows that are here would make a GPU's host wait
                yield self.taken(batch)
            else:
                yield replace(self.taken(batch[batch >= 0]), total=last - first)

    def each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        """Rows whose tensors are changed, all in one way."""
        changed: dict[str, Any] = {name: change(part) for name, part in self.tensors.items()}
        return replace(self, **changed)

    def taken(self, chosen: slice | Tensor) -> "Rows":
        """Some of them, by number."""
        weight, held = (
            None if by_member is None else by_member[:, chosen]
            for by_member in (self.weight, self.held)
        )
        fold = None if self.fold is None else self.fold[chosen]
        return Rows(self.X[..., chosen, :], self.y[chosen], weight, held, fold)


def joined_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of all parts, which are weighted, held out and in folds alike."""
    if len(parts) == 1:
        return parts[0]
    columns = {"weight": 1, "held": 1}
    joined: dict[str, Any] = {
        name: torch.cat([part.tensors[name] for part in parts], columns.get(name, 0))
        for name in parts[0].tensors
    }
    return Rows(**joined)


def chunk_rows(widest: int, dtype: torch.dtype, device: torch.device) -> int:
    """Rows a chunk, such that its widest activation fits the budget of the device.

    On a CPU a power of two, so that the shares of several ranks can begin where chunks do.
    """
    if device.type != "cpu":
        return max(256, GPU_CHUNK_BYTES // (widest * dtype.itemsize))
    fitting = CPU_CHUNK_BYTES / (widest * dtype.itemsize)
    return int(2 ** round(math.log2(min(max(256, fitting), CPU_CHUNK_MOST))))


class Augment(Resumable):
    """Mixup, then Gaussian noise, for copies of rows; all members see the same draws."""

    state_names = ("_generator", "_pool", "_used", "_next")

    def __init__(
        self, mixup: float, noise: float, objective: Objective, generator: Generator
    ) -> None:
        self._mixup, self._noise = mixup, noise
        self._objective = objective
        self._generator = generator
        # Normal draws, handed out from random places and renewed little by little.
        self._pool: Tensor | None = None
        self._used = self._next = 0

    def __call__(self, rows: Rows) -> Rows:
        """The rows to train on in their place; mixed targets are shares of both."""
        X, y = rows.X, rows.y
        if self._mixup > 0:
            X, y = self._mixed(rows)
        if self._noise > 0:
            X = torch.add(X, self._normal(X), alpha=self._noise)
        return Rows(X, y, rows.weight, rows.held, rows.fold)

    def _mixed(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """(1 - s) x + s x' with a random other row of the same chunk, s uniform up to ``mixup``."""
        X, n, generator = rows.X, len(rows), self._generator
        draws = torch.rand(n, generator=generator, dtype=torch.float32, device=X.device)
        partner = _partners(rows, draws)
        share = torch.rand(n, 1, generator=generator, dtype=torch.float32, device=X.device)
        share = (share * self._mixup).to(X.dtype)
        mixed = self._objective.mixed(rows.y, rows.y[partner], share)
        return X.lerp(X[partner], share), mixed

    def _normal(self, like: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Normal draws, to be read and not kept."""
        (n, d), dtype, generator = like.shape, like.dtype, self._generator
        if like.is_cuda:
            return torch.randn(n, d, generator=generator, dtype=dtype, device=like.device)
        if self._pool is None:
            self._pool = torch.randn(POOL_ROWS, d, dtype=dtype, generator=generator)
        self._used += n
        due = min(self._used // REUSE, POOL_ROWS - self._next)
        if due > 0:
            self._pool[self._next : self._next + due].normal_(generator=generator)
            self._next = (self._next + due) % POOL_ROWS
            self._used -= due * REUSE
        if n > POOL_ROWS:
            return self._pool.repeat(-(-n // POOL_ROWS), 1)[:n]
        start = int(torch.randint(POOL_ROWS - n + 1, (), generator=generator))
        return self._pool[start : start + n]


def _partners(rows: Rows, draws: Float[Tensor, " n"]) -> Int[Tensor, " n"]:
    """For each row another of its fold, as likely as its weight says."""
    n = len(rows)
    if rows.weight is None and rows.fold is None:
        return (draws * n).long().clamp_max(n - 1)
    # What a row counts for those members that train on it: the most it counts for any.
    mass = draws.new_ones(n) if rows.weight is None else rows.weight.amax(0).to(draws)
    fold = torch.zeros_like(draws, dtype=torch.long) if rows.fold is None else rows.fold
    order = fold.argsort(stable=True)
    upto = mass[order].double().cumsum(0)
    last = torch.searchsorted(fold[order], fold, right=True) - 1
    first = torch.searchsorted(fold[order], fold)
    below = torch.where(first > 0, upto[(first - 1).clamp_min(0)], 0.0)
    place = torch.searchsorted(upto, below + draws.double() * (upto[last] - below), right=True)
    return order[torch.minimum(place, last)]
