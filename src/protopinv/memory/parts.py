"""Groups of rows as a few Gaussians each, by sums that add up exactly."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

# Rounds in which rows and centres of clusters find each other.
ROUNDS = 10
# So many rows for each centre say where it belongs.
ROWS_OF_A_CENTRE = 100
# A covariance counts as if so many rows had the average one.
SHRINKAGE = 20.0
# Fewer rows than these are no part of their own, so that none of them can be told.
LEAST_ROWS = 25


@dataclass(frozen=True)
class Parts:
    """Gaussians, one an entry: the group of its rows, their number, mass, mean and scatter.

    All sums are in float64. Those of two parts give those of their union exactly, whatever the
    order; ``rows`` is a number of rows and ``mass`` the sum of their weights.
    """

    group: Int[Tensor, " q"]
    rows: Float[Tensor, " q"]
    mass: Float[Tensor, " q"]
    mean: Float[Tensor, "q r"]
    scatter: Float[Tensor, "q r r"]

    def __len__(self) -> int:
        return len(self.group)

    def taken(self, chosen: Tensor) -> "Parts":
        """Some of them."""
        return Parts(*(getattr(self, item.name)[chosen] for item in fields(self)))

    def joined(self, other: "Parts") -> "Parts":
        """Those of both."""
        pairs = ((getattr(self, item.name), getattr(other, item.name)) for item in fields(self))
        return Parts(*(torch.cat(pair) for pair in pairs))

    def widened(self, places: Int[Tensor, " r"], n: int) -> "Parts":
        """Direction i is direction ``places[i]`` of n; along others all rows were zero."""
        mean = self.mean.new_zeros(len(self), n).index_copy_(1, places, self.mean)
        rows = self.scatter.new_zeros(len(self), n, len(places)).index_copy_(
            1, places, self.scatter
        )
        scatter = self.scatter.new_zeros(len(self), n, n).index_copy_(2, places, rows)
        return replace(self, mean=mean, scatter=scatter)

    def weakened(self, factor: float) -> "Parts":
        """The same as if every row counted ``factor`` times."""
        scaled = (self.rows * factor, self.mass * factor, self.mean, self.scatter * factor)
        return Parts(self.group, *scaled)

    def united(self, a: int, b: int) -> "Parts":
        """Part b as a part of a, by the rule of Chan, Golub and LeVeque."""
        mass = self.mass[a] + self.mass[b]
        off, share = self.mean[b] - self.mean[a], self.mass[b] / mass
        between = torch.outer(off, off) * self.mass[a] * share
        whole = Parts(*(getattr(self, item.name).clone() for item in fields(self)))
        whole.rows[a] += self.rows[b]
        whole.mass[a] = mass
        whole.mean[a] += share * off
        whole.scatter[a] += self.scatter[b] + between
        return whole.taken(torch.arange(len(self)) != b)

    def nearest(self, chosen: Int[Tensor, " c"]) -> tuple[int, int]:
        """The two of these whose union adds least to what is lost (Ward)."""
        mean, mass = self.mean[chosen], self.mass[chosen]
        loss = torch.cdist(mean, mean).square() * mass[:, None] * mass / (mass[:, None] + mass)
        loss.fill_diagonal_(torch.inf)
        a, b = divmod(int(loss.argmin()), len(chosen))
        return int(chosen[min(a, b)]), int(chosen[max(a, b)])

    def closest_to(self, part: int, chosen: Int[Tensor, " c"]) -> int:
        """The one of these, other than itself, whose mean is nearest."""
        others = chosen[chosen != part]
        return int(others[(self.mean[others] - self.mean[part]).square().sum(1).argmin()])

    def reduced(self, n_of_a_group: int) -> "Parts":
        """At most so many of every group, none with too few rows unless it is the only one."""
        parts = self
        for group in self.group.unique().tolist():
            while True:
                chosen = (parts.group == group).nonzero()[:, 0]
                if len(chosen) == 1:
                    break
                smallest = int(chosen[parts.rows[chosen].argmin()])
                if parts.rows[smallest] < LEAST_ROWS:
                    a, b = sorted((smallest, parts.closest_to(smallest, chosen)))
                elif len(chosen) > n_of_a_group:
                    a, b = parts.nearest(chosen)
                else:
                    break
                parts = parts.united(a, b)
        return parts

    def roots(self) -> Float[Tensor, "q r r"]:
        """A with A A' = covariance, each drawn towards the average: few rows say little of it."""
        covariance = self.scatter / self.mass[:, None, None]
        average = (self.mass @ covariance.diagonal(dim1=1, dim2=2)) / self.mass.sum()
        share = (SHRINKAGE / (self.rows + SHRINKAGE))[:, None, None]
        values, vectors = torch.linalg.eigh(torch.lerp(covariance, average.diag(), share))
        roots: Tensor = vectors * values.clamp_min(0).sqrt()[:, None, :]
        return roots


def parts_of(
    Z: Float[Tensor, "n r"],
    group: int,
    weight: Float[Tensor, " n"],
    n_parts: int,
    generator: Generator,
) -> Parts:
    """Rows of one group in up to so many clusters."""
    cluster = clusters(Z.float(), n_parts, generator)
    found = list(_moments(Z.double(), cluster, weight.double()))
    rows, mass, mean, scatter = (torch.stack(each) for each in zip(*found, strict=True))
    return Parts(torch.full((len(rows),), group), rows, mass, mean, scatter)


def _moments(
    Z: Float[Tensor, "n r"], cluster: Int[Tensor, " n"], weight: Float[Tensor, " n"]
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Rows, mass, mean and scatter of every cluster, on the host."""
    for number in cluster.unique().tolist():
        chosen = cluster == number
        X, w = Z[chosen], weight[chosen]
        mass = w.sum()
        mean = w @ X / mass
        centred = X - mean
        scatter = centred.T @ (centred * w[:, None])
        yield torch.tensor(float(len(X))).double(), mass.cpu(), mean.cpu(), scatter.cpu()


def clusters(Z: Float[Tensor, "n r"], n: int, generator: Generator) -> Int[Tensor, " n"]:
    """The number of the cluster of each row, by k-means of some rows, drawn on the host."""
    if n <= 1:
        return torch.zeros(len(Z), dtype=torch.long, device=Z.device)
    drawn = torch.randperm(len(Z), generator=generator)[: n * ROWS_OF_A_CENTRE]
    some = Z[drawn.to(Z.device)]
    centres = some[:n]
    for _ in range(ROUNDS):
        nearest = torch.cdist(some, centres).argmin(1)
        sums = torch.zeros_like(centres).index_add_(0, nearest, some)
        counts = nearest.bincount(minlength=len(centres))[:, None]
        centres = torch.where(counts > 0, sums / counts.clamp_min(1), centres)
    return torch.cdist(Z, centres).argmin(1)
