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
    """Rows of x and y: their means, the scatter of x, and the scatter of x against y.

    ``n`` is what the rows count together: their number, or the sum of their weights. Without a
    projection only the diagonal of the scatter is needed, and then ``x_scatter`` is that.
    """

    n: float
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

    def to(self, device: torch.device | str) -> "Moments":
        """The moments on another device."""
        parts = (self.x_mean, self.y_mean, self.x_scatter, self.xy_scatter)
        return Moments(self.n, *(part.to(device) for part in parts))

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


def merged_moments(parts: Iterable[Moments | None]) -> Moments | None:
    """The moments of the rows of all parts; None if no part has rows."""
    total = None
    for part in parts:
        if part is not None:
            total = part if total is None else total.merge(part)
    return total


def moments_of_chunk(
    X: Float[Tensor, "n d"],
    Y: Float[Tensor, "n k"],
    weight: Float[Tensor, " n"] | None = None,
    *,
    diagonal: bool = False,
) -> Moments:
    """Moments of one chunk in float64."""
    if weight is None:
        n, x_mean, y_mean = float(len(X)), X.mean(0), Y.mean(0)
        centred, against = X - x_mean, Y - y_mean
    else:
        n = float(weight.sum())
        x_mean, y_mean = weight @ X / n, weight @ Y / n
        root = weight.sqrt()[:, None]
        centred, against = (X - x_mean) * root, (Y - y_mean) * root
    scatter = centred.square().sum(0) if diagonal else _products(centred)
    return Moments(n, x_mean, y_mean, scatter, centred.T @ against)


def _products(X: Float[Tensor, "n d"]) -> Float[Tensor, "d d"]:
    """X'X, of which little more than the upper half is formed."""
    products = X.new_empty(X.shape[1], X.shape[1])
    for start in range(0, len(products), BLOCK):
        block, rest = slice(start, start + BLOCK), slice(start + BLOCK, None)
        products[block, start:] = X[:, block].T @ X[:, start:]
        products[rest, block] = products[block, rest].T
    return products


def beyond_rounding(
    deviation: Float[Tensor, " d"], mean: Float[Tensor, " d"], n: float
) -> Bool[Tensor, " d"]:
    """Which features vary by more than the rounding of n equal numbers would."""
    return deviation > torch.finfo(deviation.dtype).eps * mean.abs() * n
