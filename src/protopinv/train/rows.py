"""Training rows on the device, walked in chunks or in shuffled mini-batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Generator, Tensor

# A chunk's widest activation should stay in cache, about this many bytes; measured at
# 54,000 x 400 -> 512, chunks of 1,024 to 4,096 rows were about equally fast, others slower.
CPU_CHUNK_BYTES = 3 * 2**20
GPU_CHUNK_BYTES = 2**30


@dataclass(frozen=True)
class Rows:
    """Features as the network sees them, one target a row, and what each row counts.

    ``weight`` has one row for all members of a population or one each, and a mean of one over all
    rows there are; None counts every row once. ``held`` says, for members that leave rows out, what
    these count when the member is judged by them; it sums to one. ``fold`` is the number of the
    fold that a row is in: rows of different folds must not be mixed with one another.

    ``X`` has a leading axis where members see different rows.
    """

    X: Float[Tensor, "*members n d"]
    y: Shaped[Tensor, "n *target"]
    weight: Float[Tensor, "_ n"] | None = None
    held: Float[Tensor, "_ n"] | None = None
    fold: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def chunks(self, size: int) -> Iterator["Rows"]:
        """Consecutive pieces of at most ``size`` rows, without copying."""
        if len(self) <= size:
            yield self
            return
        for start in range(0, len(self), size):
            yield self._taken(slice(start, start + size))

    def n_batches(self, size: int | None) -> int:
        """How many batches of at most this size there are."""
        return 1 if size is None else -(-len(self) // size)

    def batches(self, size: int | None, generator: Generator) -> Iterator["Rows"]:
        """All rows at once for ``None``, else every row once in shuffled mini-batches.

        These are as even as can be: a step by a few rows that were left over would undo others.
        """
        if size is None or size >= len(self):
            yield self
            return
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        for piece in order.to(self.X.device).tensor_split(self.n_batches(size)):
            yield self._taken(piece)

    def tensors(self) -> list[Tensor]:
        """All there are, in an order that depends on which there are."""
        every = (self.X, self.y, self.weight, self.held, self.fold)
        return [tensor for tensor in every if tensor is not None]

    def cloned(self) -> "Rows":
        """A copy that shares nothing with these rows."""
        there = {name: part for name, part in vars(self).items() if part is not None}
        return Rows(**{name: part.clone() for name, part in there.items()})

    def _taken(self, chosen: slice | Tensor) -> "Rows":
        def of(by_member: Tensor | None) -> Tensor | None:
            return None if by_member is None else by_member[:, chosen]

        fold = None if self.fold is None else self.fold[chosen]
        X = self.X[..., chosen, :]
        return Rows(X, self.y[chosen], of(self.weight), of(self.held), fold)


def chunk_rows(widest: int, dtype: torch.dtype, device: torch.device) -> int:
    """Rows a chunk, such that its widest activation fits the budget of the device."""
    budget = CPU_CHUNK_BYTES if device.type == "cpu" else GPU_CHUNK_BYTES
    return max(256, budget // (widest * dtype.itemsize))
