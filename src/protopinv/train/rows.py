"""Training rows on the device, walked in chunks or in shuffled mini-batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Generator, Tensor

# A chunk's widest activation should stay in cache, about this many bytes; measured at
# 54,000 x 400 -> 512, chunks of 1,024 to 4,096 rows were about equally fast, others slower.
CPU_CHUNK_BYTES = 3 * 2**20
GPU_CHUNK_BYTES = 2**30


@dataclass(frozen=True)
class Rows:
    """Features as the network sees them, and one target a row."""

    X: Float[Tensor, "n d"]
    y: Shaped[Tensor, "n *target"]

    def __len__(self) -> int:
        return len(self.X)

    def chunks(self, size: int) -> Iterator["Rows"]:
        """Consecutive pieces of at most ``size`` rows, without copying."""
        for start in range(0, len(self), size):
            yield Rows(self.X[start : start + size], self.y[start : start + size])

    def batches(self, size: int | None, generator: Generator) -> Iterator["Rows"]:
        """All rows at once for ``None``, else every row once in shuffled mini-batches."""
        if size is None or size >= len(self):
            yield self
            return
        order = torch.randperm(len(self), generator=generator, device=generator.device)
        for piece in order.to(self.X.device).split(size):
            yield Rows(self.X[piece], self.y[piece])


def chunk_rows(widest: int, dtype: torch.dtype, device: torch.device) -> int:
    """Rows a chunk, such that its widest activation fits the budget of the device."""
    budget = CPU_CHUNK_BYTES if device.type == "cpu" else GPU_CHUNK_BYTES
    return max(256, budget // (widest * dtype.itemsize))
