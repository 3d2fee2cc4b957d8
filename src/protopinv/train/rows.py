"""Training rows on the device, walked in chunks or in shuffled mini-batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

# A chunk's widest activation should stay in cache, about this many bytes; measured at
# 54,000 x 400 -> 512, chunks of 1,024 to 4,096 rows were about equally fast, others slower.
CPU_CHUNK_BYTES = 3 * 2**20
GPU_CHUNK_BYTES = 2**30
CPU_CHUNK_MOST = 2**13


@runtime_checkable
class AnyRows(Protocol):
    """What is trained on: rows in memory, or rows that are read for every pass over them."""

    @property
    def n_total(self) -> int:
        """Rows that a mean is over."""

    def batches_on_gpu(self, size: int | None) -> bool:
        """Whether batches of this size lie there whole, so that a graph can hold a step."""

    @property
    def bytes_read(self) -> int:
        """From files, by this rank so far."""

    @property
    def holds(self) -> list[bool]:
        """Which members leave rows out."""

    @property
    def held(self) -> Any:
        """None if none does."""

    def without_held(self) -> "AnyRows":
        """Rows for a pass that does not judge held-out rows."""

    def by_holders(self) -> "AnyRows":
        """Rows that count as the members that hold them out count them."""

    def chunks(self, size: int) -> Iterator["Rows"]:
        """Pieces of at most ``size`` rows."""

    def n_batches(self, size: int | None) -> int:
        """How many batches of at most this size there are."""

    def batches(
        self, size: int | None, generator: Generator, *, skip: int = 0
    ) -> Iterator["AnyRows"]:
        """All rows at once for ``None``, else every row once in shuffled mini-batches.

        The first ``skip`` batches are left out; what is drawn does not depend on that.
        """


@dataclass(frozen=True)
class Rows:
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

    @property
    def n_total(self) -> int:
        """Rows that a mean is over: all there are, wherever they are."""
        return len(self) if self.total is None else self.total

    bytes_read = 0

    def batches_on_gpu(self, size: int | None) -> bool:  # noqa: ARG002
        """Whether all of them lie there, and nowhere else, so that a graph can hold a step."""
        return self.X.is_cuda and self.total is None

    @property
    def holds(self) -> list[bool]:
        """Which members leave rows out."""
        return [False] if self.held is None else (self.held.sum(1) > 0).tolist()

    def without_held(self) -> "Rows":
        """Rows for a pass that does not judge held-out rows."""
        return replace(self, held=None)

    def by_holders(self) -> "Rows":
        """Rows that count as the members that hold them out count them."""
        held = self.X.new_zeros(1, len(self)) if self.held is None else self.held
        return Rows(self.X, self.y, held * self.n_total, total=self.total)

    def __len__(self) -> int:
        return len(self.y)

    def chunks(self, size: int) -> Iterator["Rows"]:
        """Consecutive pieces of at most ``size`` rows, without copying."""
        if len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self.taken(slice(start, start + size))

    def n_batches(self, size: int | None) -> int:
        """How many batches of at most this size there are."""
        return 1 if size is None else -(-self.n_total // size)

    def batches(self, size: int | None, generator: Generator, *, skip: int = 0) -> Iterator["Rows"]:
        """All rows at once for ``None``, else every row once in shuffled mini-batches.

        These are as even as can be: a step by a few rows that were left over would undo others.
        The first ``skip`` of them are left out; what is drawn does not depend on that.
        """
        if size is None or size >= self.n_total:
            yield self
            return
        order = torch.randperm(self.n_total, generator=generator, device=generator.device)
        order = order.to(self.X.device)
        here = None
        if self.places is not None:
            here = torch.full_like(order, -1)
            here[self.places] = torch.arange(len(self), device=order.device)
        for piece in order.tensor_split(self.n_batches(size))[skip:]:
            if here is None:
                yield self.taken(piece)
            else:
                own = here[piece]
                yield replace(self.taken(own[own >= 0]), total=len(piece))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All there are, under their names."""
        return {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}

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
