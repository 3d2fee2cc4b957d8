"""What a replay memory holds across the directions of its Gaussians."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from protopinv.memory.gaussians import MOST_VARIANCE, TINY, Gaussians

# Rows whose tails are looked at together: all at once would be a copy of the data in float64.
TAIL_ROWS = 4_096


@dataclass(frozen=True)
class Tail:
    """What rows have across the r directions of ``basis``: of each group means and variances alone.

    The covariance of a Gaussian over all features is B S B' + P D P, with its covariance S along
    the directions B, the variances D of the tail of its group, and P = I - BB'. None of these
    matrices is written out.
    """

    basis: Float[Tensor, "m r"]
    mean: Float[Tensor, "g m"]
    scatter: Float[Tensor, "g m"]

    def variances(self, masses: Float[Tensor, " g"]) -> Float[Tensor, "g m"]:
        """D of each group, zero where it has no rows."""
        mass = masses[:, None]
        return torch.where(mass > 0, self.scatter / mass.clamp_min(TINY), 0.0)

    def added(
        self,
        Z: Float[Tensor, "n m"],
        groups: Int[Tensor, " n"],
        weight: Float[Tensor, " n"],
        masses: Float[Tensor, " g"],
    ) -> "Tail":
        """With more rows, by the rule of Chan, Golub and LeVeque; ``masses`` are those before."""
        basis, before = self.basis.to(Z.device), masses.tolist()
        room = self.mean.new_zeros(len(masses) - len(self.mean), len(self.basis))
        mean, scatter = torch.cat([self.mean, room]), torch.cat([self.scatter, room])
        for group in groups.unique().tolist():
            for rows in (groups == group).nonzero()[:, 0].split(TAIL_ROWS):
                X, w = Z[rows].double(), weight[rows].double()
                X = X - (X @ basis) @ basis.T
                mass = float(w.sum())
                centre = w @ X / mass
                squares, off = (w @ (X - centre).square()).cpu(), centre.cpu() - mean[group]
                share = mass / (before[group] + mass)
                scatter[group] += squares + off.square() * before[group] * share
                mean[group] += off * share
                before[group] += mass
        return replace(self, mean=mean, scatter=scatter)

    def directions_with(
        self, gaussians: Gaussians, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, "m r"]:
        """As many directions in which rows vary most: those there were, and these new ones."""
        mass, means = gaussians.mass, self._means(gaussians)
        centre = mass @ means / mass.sum()
        off = means - centre
        there = gaussians.masses(len(self.mean)) > 0
        scatter = self.basis @ gaussians.scatter.sum(0) @ self.basis.T
        across = _across(self.basis)
        scatter += (across * self.scatter[there].sum(0)) @ across
        scatter += off.T @ (off * mass[:, None])
        total = float(weight.sum())
        new = sum(w @ rows for rows, w in _pieces(Z, weight)) / total
        for rows, w in _pieces(Z, weight):
            scatter += (rows - new).T @ ((rows - new) * w[:, None])
        between = float(mass.sum()) * total / (float(mass.sum()) + total)
        scatter.addr_(new - centre, new - centre, alpha=between)
        return leading(scatter, self.basis.shape[1])

    def turned(
        self, gaussians: Gaussians, basis: Float[Tensor, "m r"], factors: Float[Tensor, " m"]
    ) -> tuple["Tail", Gaussians]:
        """Tail and Gaussians of rows z * factors, along other directions.

        What was known along the old directions is carried over exactly; along a new one it is what
        the tail says.
        """
        group, mass, scale = gaussians.group, gaussians.mass[:, None], factors[:, None]
        masses, means = gaussians.masses(len(self.mean)), self._means(gaussians) * factors
        turn, across = basis.T @ (scale * self.basis), _across(self.basis)
        inside = (basis.T * factors) @ across
        joins = torch.stack([(inside * each) @ inside.T for each in self.variances(masses)])
        scatter = turn @ gaussians.scatter @ turn.T + joins[group] * mass[:, None]
        heads = means @ basis
        rest = means - heads @ basis.T
        mean = torch.zeros_like(self.mean).index_add_(0, group, rest * mass)
        mean /= masses.clamp_min(TINY)[:, None]
        # what is left of every group across the new directions
        within = gaussians.scatter.new_zeros(len(masses), *gaussians.scatter.shape[1:])
        within.index_add_(0, group, gaussians.scatter)
        outside = scale * self.basis - basis @ turn
        left = torch.stack([(outside @ each * outside).sum(1) for each in within])
        both = (_across(basis) * factors) @ across
        left += (self.scatter * (masses > 0)[:, None]) @ both.square().T
        left.index_add_(0, group, (rest - mean[group]).square() * mass)
        return Tail(basis, mean, left), replace(gaussians, mean=heads, scatter=scatter)

    def moments(self, gaussians: Gaussians) -> tuple[Float[Tensor, "q m"], Float[Tensor, "q m"]]:
        """Mean and variance of every feature, by Gaussian."""
        inner = gaussians.scatter / gaussians.mass[:, None, None]
        tails = self.variances(gaussians.masses(len(self.mean)))
        variances = ((self.basis @ inner) * self.basis).sum(2) + tails[gaussians.group]
        return self._means(gaussians), variances

    def _means(self, gaussians: Gaussians) -> Float[Tensor, "q m"]:
        return gaussians.mean @ self.basis.T + self.mean[gaussians.group]

    def drawn(
        self, groups: Int[Tensor, " n"], masses: Float[Tensor, " g"], generator: Generator
    ) -> Float[Tensor, "n m"]:
        """Tails like those of rows of these groups."""
        deviation = self.variances(masses).clamp_min(0).sqrt().float()
        tails = torch.randn(len(groups), len(self.basis), generator=generator)
        tails.mul_(deviation[groups]).add_(self.mean.float()[groups])
        basis = self.basis.float()
        return tails - (tails @ basis) @ basis.T

    def renumbered(self, places: Int[Tensor, " g"], n_groups: int) -> "Tail":
        """Group i is group ``places[i]`` of ``n_groups`` from now on."""
        mean, scatter = (
            each.new_zeros(n_groups, each.shape[1]).index_copy_(0, places[: len(each)], each)
            for each in (self.mean, self.scatter)
        )
        return replace(self, mean=mean, scatter=scatter)

    def widened(self, places: Int[Tensor, " m"], n: int) -> "Tail":
        """Feature i is feature ``places[i]`` of n; each of the others is a further direction."""
        old = self.basis.new_zeros(n, self.basis.shape[1]).index_copy_(0, places, self.basis)
        alone = torch.eye(n).to(old)[:, ~torch.isin(torch.arange(n), places)]
        mean, scatter = (
            each.new_zeros(len(each), n).index_copy_(1, places, each)
            for each in (self.mean, self.scatter)
        )
        return Tail(torch.cat([old, alone], 1), mean, scatter)

    def fault(self, masses: Float[Tensor, " g"], r: int) -> str | None:
        """What does not fit together, or None."""
        m = len(self.basis)
        if self.basis.shape != (m, r):
            return "the directions of the memory are not as many as they should be"
        if self.mean.shape != self.scatter.shape or self.mean.shape != (len(masses), m):
            return "the tails of the memory are not one a group"
        variances = self.scatter / torch.where(masses > 0, masses, 1.0)[:, None]
        largest = torch.maximum(self.mean.square(), variances)
        if not bool((largest <= MOST_VARIANCE).all()):
            return "the numbers of the memory are too large to be drawn from"
        return None


def leading(covariance: Float[Tensor, "m m"], r: int) -> Float[Tensor, "m r"]:
    """The r directions in which there is most."""
    directions: Tensor = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :r]
    return directions.contiguous()


def _across(basis: Float[Tensor, "m r"]) -> Float[Tensor, "m m"]:
    """P = I - BB', which projects onto what lies across the directions."""
    return torch.eye(len(basis), dtype=basis.dtype) - basis @ basis.T


def _pieces(
    Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
) -> Iterator[tuple[Float[Tensor, "p m"], Float[Tensor, " p"]]]:
    """Rows and their weights in float64 on the host, some at a time."""
    for rows, w in zip(Z.split(TAIL_ROWS), weight.split(TAIL_ROWS), strict=True):
        yield rows.double().cpu(), w.double().cpu()
