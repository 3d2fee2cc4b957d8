"""Means and covariances of rows that come in chunks, in float64."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """n rows of x and y: their means, the scatter of x, and the scatter of x against y."""

    n: int
    x_mean: Float[Tensor, " d"]
    y_mean: Float[Tensor, " k"]
    x_scatter: Float[Tensor, "d d"]
    xy_scatter: Float[Tensor, "d k"]

    @property
    def variance(self) -> Float[Tensor, " d"]:
        """The variance of each feature."""
        return self.x_scatter.diagonal() / self.n

    def merge(self, other: "Moments") -> "Moments":
        """Moments of the rows of both (Chan, Golub and LeVeque 1983): stable for any split."""
        n = self.n + other.n
        dx, dy = other.x_mean - self.x_mean, other.y_mean - self.y_mean
        factor = self.n * other.n / n
        return Moments(
            n,
            self.x_mean + dx * (other.n / n),
            self.y_mean + dy * (other.n / n),
            self.x_scatter + other.x_scatter + factor * torch.outer(dx, dx),
            self.xy_scatter + other.xy_scatter + factor * torch.outer(dx, dy),
        )

    def scaled(self, scale: Float[Tensor, " d"]) -> "Moments":
        """Moments of x * scale."""
        return Moments(
            self.n,
            self.x_mean * scale,
            self.y_mean,
            self.x_scatter * torch.outer(scale, scale),
            self.xy_scatter * scale[:, None],
        )


def measure_moments(
    chunks: Iterable[tuple[Shaped[Tensor, "_ d"], Shaped[Tensor, "_ k"]]],
) -> Moments:
    """Moments over all chunks of (x, y); a chunk of any number type is converted as it comes."""
    parts = (_moments_of_chunk(x.double(), y.double()) for x, y in chunks)
    total = next(parts)
    for part in parts:
        total = total.merge(part)
    return total


def _moments_of_chunk(X: Float[Tensor, "n d"], Y: Float[Tensor, "n k"]) -> Moments:
    x_mean, y_mean = X.mean(0), Y.mean(0)
    centred = X - x_mean
    return Moments(len(X), x_mean, y_mean, centred.T @ centred, centred.T @ (Y - y_mean))
