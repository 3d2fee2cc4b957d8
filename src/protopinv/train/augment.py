"""What is done to rows while training: mixed with one another, blurred by noise."""

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.train.config import TrainConfig
from protopinv.train.rows import Rows

# On a CPU normal draws cost half an epoch, so noise comes from a pool of this many rows, of which
# one is drawn anew for every REUSE that are used.
POOL_ROWS = 8192
REUSE = 8


class Augment:
    """Mixup, then Gaussian noise, as the configuration asks; the rows given are left alone."""

    def __init__(self, config: TrainConfig, n_classes: int, generator: Generator) -> None:
        self._mixup = config.mixup
        self._noise = config.input_noise
        self._n_classes = n_classes
        self._generator = generator
        self._pool: _NoisePool | None = None

    def __call__(self, rows: Rows) -> Rows:
        """The rows to train on in their place; mixed labels are shares of classes."""
        if self._mixup > 0:
            rows = self._mixed(rows)
        if self._noise > 0:
            noise = self._normal(rows.X)
            rows = Rows(torch.add(rows.X, noise, alpha=self._noise), rows.y)
        return rows

    def _mixed(self, rows: Rows) -> Rows:
        """(1 - s) x + s x' with a random other row of the same chunk, s uniform up to ``mixup``."""
        X, n, generator = rows.X, len(rows), self._generator
        partner = torch.randint(n, (n,), generator=generator, device=X.device)
        share = torch.rand(n, 1, generator=generator, dtype=X.dtype, device=X.device)
        share = share * self._mixup
        labels = torch.eye(self._n_classes, dtype=X.dtype, device=X.device)[rows.y]
        return Rows(X.lerp(X[partner], share), labels.lerp(labels[partner], share))

    def _normal(self, like: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        if like.is_cuda:
            generator, device = self._generator, like.device
            return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=device)
        if self._pool is None:
            self._pool = _NoisePool(like.shape[1], like.dtype, self._generator)
        return self._pool.draw(len(like))


class _NoisePool:
    """Rows of normal draws, handed out from random places and renewed little by little."""

    def __init__(self, width: int, dtype: torch.dtype, generator: Generator) -> None:
        self._rows = torch.randn(POOL_ROWS, width, dtype=dtype, generator=generator)
        self._generator = generator
        self._used = 0
        self._next = 0

    def draw(self, n: int) -> Float[Tensor, "n d"]:
        """So many rows, to be read and not kept."""
        self._renew(n)
        if n > POOL_ROWS:
            repeats = -(-n // POOL_ROWS)
            return self._rows.repeat(repeats, 1)[:n]
        start = int(torch.randint(POOL_ROWS - n + 1, (), generator=self._generator))
        return self._rows[start : start + n]

    def _renew(self, n: int) -> None:
        self._used += n
        due = min(self._used // REUSE, POOL_ROWS - self._next)
        if due > 0:
            self._rows[self._next : self._next + due].normal_(generator=self._generator)
            self._next = (self._next + due) % POOL_ROWS
            self._used -= due * REUSE
