"""Means and scatter matrices of rows that come in chunks, in float64."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

# Columns of a scatter matrix that are formed at a time.
BLOCK = 256


@dataclass(frozen=True)
class Moments:
    """n rows of x and y: their means, the scatter of x, and the scatter of x against y.

    Without a projection only the diagonal of the scatter is needed, and then ``x_scatter`` is that.
    """

    n: int
    x_mean: Float[Tensor, " d"]
    y_mean: Float[Tensor, " k"]
    x_scatter: Float[Tensor, "d d"] | Float[Tensor, " d"]
    xy_scatter: Float[Tensor, "d k"]

    @property
    def variance(self) -> Float[Tensor, " d"]:
        """The variance of each feature."""
        squares = self.x_scatter if self.x_scatter.ndim == 1 else self.x_scatter.diagonal()
        return squares / self.n

    def merge(self, other: "Moments") -> "Moments":
        """Moments of the rows of both (Chan, Golub and LeVeque 1983): stable for any split."""
        n = self.n + other.n
        dx, dy = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        factor = self.n * other.n / n
        within = self.x_scatter + other.x_scatter
        if within.ndim == 1:
            x_scatter = torch.addcmul(within, dx, dx, value=factor)
        else:
            x_scatter = within.addr_(dx, dx, alpha=factor)
        return Moments(
            n,
            self.x_mean + dx * (other.n / n),
            self.y_mean + dy * (other.n / n),
            x_scatter,
            torch.addr(self.xy_scatter + other.xy_scatter, dx, dy, alpha=factor),
        )

    def scaled(self, scale: Float[Tensor, " d"]) -> "Moments":
        """Moments of x * scale; factors are applied one by one, so that none of them overflows."""
        scatter = self.x_scatter * scale
        return Moments(
            self.n,
            self.x_mean * scale,
            self.y_mean,
            scatter * scale if scatter.ndim == 1 else scatter * scale[:, None],
            self.xy_scatter * scale[:, None],
        )


def measure_moments(
    chunks: Iterable[tuple[Float[Tensor, "_ d"], Float[Tensor, "_ k"]]], *, diagonal: bool = False
) -> Moments:
    """Moments over all chunks of (x, y) in float64."""
    parts = (_moments_of_chunk(X, Y, diagonal) for X, Y in chunks)
    total = next(parts)
    for part in parts:
        total = total.merge(part)
    return total


def _moments_of_chunk(X: Float[Tensor, "n d"], Y: Float[Tensor, "n k"], diagonal: bool) -> Moments:
    x_mean, y_mean = X.mean(0), Y.mean(0)
    centred = X - x_mean
    scatter = centred.square().sum(0) if diagonal else _products(centred)
    return Moments(len(X), x_mean, y_mean, scatter, centred.T @ (Y - y_mean))


def _products(X: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """X'X, of which little more than the upper half is formed."""
    products = X.new_empty(X.shape[1], X.shape[1])
    for start in range(0, len(products), BLOCK):
        block, rest = slice(start, start + BLOCK), slice(start + BLOCK, None)
        products[block, start:] = X[:, block].T @ X[:, start:]
        products[rest, block] = products[block, rest].T
    return products


def beyond_rounding(
    deviation: Float[Tensor, " d"], mean: Float[Tensor, " d"], n: int
) -> Bool[Tensor, " d"]:
    """Which features vary by more than the rounding of n equal numbers would."""
    return deviation > torch.finfo(deviation.dtype).eps * mean.abs() * n
