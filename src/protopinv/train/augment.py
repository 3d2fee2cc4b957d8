"""What is done to rows while training: mixed with one another, blurred by noise."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from protopinv.objective import Objective
from protopinv.train.rows import Rows

# On a CPU normal draws cost half an epoch, so noise comes from a pool of this many rows, of which
# one is drawn anew for every REUSE that are used.
POOL_ROWS = 8192
REUSE = 8


class Augment:
    """Mixup, then Gaussian noise, for copies of rows; all members see the same draws."""

    def __init__(
        self, mixup: float, noise: float, objective: Objective, generator: Generator
    ) -> None:
        self._mixup, self._noise = mixup, noise
        self._objective = objective
        self._generator = generator
        self._pool: _NoisePool | None = None

    def __call__(self, rows: Rows) -> Rows:
        """The rows to train on in their place; mixed targets are shares of both."""
        X, y = rows.X, rows.y
        if self._mixup > 0:
            X, y = self._mixed(rows)
        if self._noise > 0:
            X = torch.add(X, self._normal(X), alpha=self._noise)
        return Rows(X, y, rows.weight, rows.held, rows.fold)

    def dump(self) -> dict[str, Any]:
        """The generator and the pool of noise, which each rank has its own of."""
        state: dict[str, Any] = {"generator": self._generator.get_state()}
        if self._pool is not None:
            state["pool"] = self._pool.dump()
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._generator.set_state(state["generator"].cpu())
        if "pool" in state:
            self._pool = _NoisePool.restored(state["pool"], self._generator)

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
        if like.is_cuda:
            generator, device = self._generator, like.device
            return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=device)
        if self._pool is None:
            self._pool = _NoisePool(like.shape[1], like.dtype, self._generator)
        return self._pool.draw(len(like))


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


class _NoisePool:
    """Rows of normal draws, handed out from random places and renewed little by little."""

    def __init__(self, width: int, dtype: torch.dtype, generator: Generator) -> None:
        self._rows = torch.randn(POOL_ROWS, width, dtype=dtype, generator=generator)
        self._generator = generator
        self._used = 0
        self._next = 0

    def dump(self) -> dict[str, Any]:
        """All that lives through a run, under names."""
        return {"rows": self._rows, "used": self._used, "next": self._next}

    @classmethod
    def restored(cls, state: Mapping[str, Any], generator: Generator) -> "_NoisePool":
        """One that goes on from there, without drawing anything."""
        pool = cls.__new__(cls)
        pool._rows, pool._generator = state["rows"].clone(), generator
        pool._used, pool._next = state["used"], state["next"]
        return pool

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
