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

    def reweighted(self, factor: Float[Tensor, " q"]) -> "Parts":
        """As if rows of each part had so many times their weight."""
        scatter = self.scatter * factor[:, None, None]
        return replace(self, mass=self.mass * factor, scatter=scatter)

    def reduced(self, n: int) -> "Parts":
        """At most ``n``, none with too few rows unless it is the only one; all are of one group."""
        parts = Parts(*(getattr(self, item.name).clone() for item in fields(self)))
        left = torch.arange(len(parts))
        while len(left) > 1:
            smallest = int(left[parts.rows[left].argmin()])
            if parts.rows[smallest] < LEAST_ROWS:
                a, b = parts._closest_to(smallest, left), smallest
            elif len(left) > n:
                a, b = parts._nearest(left)
            else:
                break
            parts._unite(a, b)
            left = left[left != b]
        return parts.taken(left)

    def _nearest(self, left: Int[Tensor, " c"]) -> tuple[int, int]:
        """The two of these whose union adds least to what is lost (Ward)."""
        mean, mass = self.mean[left], self.mass[left]
        loss = torch.cdist(mean, mean).square() * mass[:, None] * mass / (mass[:, None] + mass)
        loss.fill_diagonal_(torch.inf)
        a, b = divmod(int(loss.argmin()), len(left))
        return int(left[min(a, b)]), int(left[max(a, b)])

    def _closest_to(self, part: int, left: Int[Tensor, " c"]) -> int:
        """The one of these, other than itself, whose mean is nearest."""
        others = left[left != part]
        return int(others[(self.mean[others] - self.mean[part]).square().sum(1).argmin()])

    def _unite(self, a: int, b: int) -> None:
        """Make b a part of a, in place, by the rule of Chan, Golub and LeVeque."""
        mass = self.mass[a] + self.mass[b]
        off, share = self.mean[b] - self.mean[a], self.mass[b] / mass
        self.scatter[a] += self.scatter[b] + torch.outer(off, off) * self.mass[a] * share
        self.mean[a] += share * off
        self.rows[a] += self.rows[b]
        self.mass[a] = mass

    def whole(self, n_groups: int) -> "Parts":
        """All parts of a group as one; groups without any have no mass."""
        index, weight = self.group, self.mass[:, None]
        mass = self.mass.new_zeros(n_groups).index_add_(0, index, self.mass)
        rows = self.rows.new_zeros(n_groups).index_add_(0, index, self.rows)
        per = mass.clamp_min(torch.finfo(mass.dtype).tiny)[:, None]
        mean = self.mean.new_zeros(n_groups, self.mean.shape[1])
        mean = mean.index_add_(0, index, self.mean * weight) / per
        off = self.mean - mean[index]
        between = torch.einsum("q,qa,qb->qab", self.mass, off, off)
        scatter = self.scatter.new_zeros(n_groups, *self.scatter.shape[1:])
        scatter.index_add_(0, index, self.scatter + between)
        return Parts(torch.arange(n_groups), rows, mass, mean, scatter)

    def covariances(self) -> Float[Tensor, "q r r"]:
        """Each drawn towards the average of all: few rows say little of it."""
        covariance = self.scatter / self.mass[:, None, None]
        average = (self.mass @ covariance.diagonal(dim1=1, dim2=2)) / self.mass.sum()
        share = (SHRINKAGE / (self.rows + SHRINKAGE))[:, None, None]
        return torch.lerp(covariance, average.diag(), share)

    def roots(self) -> Float[Tensor, "q r r"]:
        """A with A A' = covariance."""
        values, vectors = torch.linalg.eigh(self.covariances())
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
