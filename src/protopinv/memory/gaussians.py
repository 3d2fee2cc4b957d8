"""Groups of rows as a mixture of Gaussians each, by sums that add up exactly."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

# Rounds in which rows and centres of clusters find each other.
ROUNDS = 10
# So many rows for each centre say where it belongs.
ROWS_OF_A_CENTRE = 100
# A covariance counts as if so many rows had the average one.
SHRINKAGE = 20.0
# Fewer rows than these are no Gaussian of their own, so that none of them can be told.
LEAST_ROWS = 25
# Gaussians of a file are no wider, and no farther from zero: beyond this squares overflow.
MOST_VARIANCE = 1e305
MOST_ROWS = 2**53
# A group without rows is divided by this.
TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Gaussians:
    """One an entry: the group of its rows, their number, mass, mean and scatter.

    All sums are in float64. Those of two Gaussians give those of their union exactly, whatever the
    order; ``rows`` is a number of rows and ``mass`` the sum of their weights.
    """

    group: Int[Tensor, " q"]
    rows: Float[Tensor, " q"]
    mass: Float[Tensor, " q"]
    mean: Float[Tensor, "q r"]
    scatter: Float[Tensor, "q r r"]

    def __len__(self) -> int:
        return len(self.group)

    def masses(self, n_groups: int) -> Float[Tensor, " g"]:
        """What the rows of each group count together."""
        return self.mass.new_zeros(n_groups).index_add_(0, self.group, self.mass)

    def taken(self, chosen: Tensor) -> "Gaussians":
        """Some of them."""
        return Gaussians(*(each[chosen] for each in self._sums))

    def joined(self, other: "Gaussians") -> "Gaussians":
        """Those of both."""
        return Gaussians(*map(torch.cat, zip(self._sums, other._sums, strict=True)))

    @property
    def _sums(self) -> tuple[Tensor, ...]:
        return self.group, self.rows, self.mass, self.mean, self.scatter

    def widened(self, places: Int[Tensor, " r"], n: int) -> "Gaussians":
        """Direction i is direction ``places[i]`` of n; along others all rows were zero."""
        mean, scatter = self.mean.new_zeros(len(self), n), self.scatter.new_zeros(len(self), n, n)
        mean[:, places] = self.mean
        scatter[:, places[:, None], places] = self.scatter
        return replace(self, mean=mean, scatter=scatter)

    def reduced(self, n: int) -> "Gaussians":
        """At most ``n``, none with too few rows unless it is the only one; all are of one group."""
        union = Gaussians(*(each.clone() for each in self._sums))
        left = torch.arange(len(union))
        while len(left) > 1:
            smallest = int(left[union.rows[left].argmin()])
            if union.rows[smallest] < LEAST_ROWS:
                a, b = union._nearest_to(smallest, left), smallest
            elif len(left) > n:
                a, b = union._cheapest_pair(left)
            else:
                break
            union._unite(a, b)
            left = left[left != b]
        return union.taken(left)

    def _cheapest_pair(self, left: Int[Tensor, " c"]) -> tuple[int, int]:
        """The two of these whose union adds least to what is lost (Ward)."""
        mean, mass = self.mean[left], self.mass[left]
        loss = torch.cdist(mean, mean).square() * mass[:, None] * mass / (mass[:, None] + mass)
        loss.fill_diagonal_(torch.inf)
        a, b = divmod(int(loss.argmin()), len(left))
        return int(left[min(a, b)]), int(left[max(a, b)])

    def _nearest_to(self, one: int, left: Int[Tensor, " c"]) -> int:
        """The one of these, other than itself, whose mean is nearest."""
        others = left[left != one]
        return int(others[(self.mean[others] - self.mean[one]).square().sum(1).argmin()])

    def _unite(self, a: int, b: int) -> None:
        """Add b to a, in place, by the rule of Chan, Golub and LeVeque."""
        mass = self.mass[a] + self.mass[b]
        off, share = self.mean[b] - self.mean[a], self.mass[b] / mass
        self.scatter[a] += self.scatter[b] + torch.outer(off, off) * self.mass[a] * share
        self.mean[a] += share * off
        self.rows[a] += self.rows[b]
        self.mass[a] = mass

    def by_group(self, n_groups: int) -> "Gaussians":
        """All of a group as one; groups without any have no mass."""
        mass = self.masses(n_groups)
        rows = self.rows.new_zeros(n_groups).index_add_(0, self.group, self.rows)
        sums = self.mean.new_zeros(n_groups, self.mean.shape[1])
        sums.index_add_(0, self.group, self.mean * self.mass[:, None])
        mean = sums / mass.clamp_min(TINY)[:, None]
        off = self.mean - mean[self.group]
        between = torch.einsum("q,qa,qb->qab", self.mass, off, off)
        scatter = self.scatter.new_zeros(n_groups, *self.scatter.shape[1:])
        scatter.index_add_(0, self.group, self.scatter + between)
        return Gaussians(torch.arange(n_groups), rows, mass, mean, scatter)

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

    def fault(self, n_groups: int) -> str | None:
        """What does not fit together, or None."""
        q = len(self.mean)
        if self.group.dtype != torch.int64 or any(t.dtype != torch.float64 for t in self._sums[1:]):
            return "the memory is not in float64"
        if not q or any(len(each) != q for each in self._sums):
            return "the parts of the memory differ in number"
        if int(self.group.min()) < 0 or int(self.group.max()) >= n_groups:
            return "the memory has groups that the model has not"
        if not bool((self.mass > 0).all() and (self.rows > 0).all()):
            return "the memory has parts without rows"
        if not float(self.mass.sum()) <= MOST_VARIANCE or not float(self.rows.sum()) <= MOST_ROWS:
            return "the memory has parts of more rows than can be counted"
        sizes = self.mean.square().amax(1), self.covariances().abs().flatten(1).amax(1)
        if not all(bool((each <= MOST_VARIANCE).all()) for each in sizes):
            return "the numbers of the memory are too large to be drawn from"
        return None


def gaussians_of(
    Z: Float[Tensor, "n r"],
    group: int,
    weight: Float[Tensor, " n"],
    n: int,
    generator: Generator,
) -> Gaussians:
    """Rows of one group in up to so many clusters; on the host."""
    cluster = clusters(Z.float(), n, generator)
    members = [cluster == number for number in cluster.unique().tolist()]
    sums = [_sums_of(Z[chosen].double(), weight[chosen].double()) for chosen in members]
    rows, mass, mean, scatter = (torch.stack(each).cpu() for each in zip(*sums, strict=True))
    return Gaussians(torch.full((len(rows),), group), rows, mass, mean, scatter)


def _sums_of(
    X: Float[Tensor, "n r"], weight: Float[Tensor, " n"]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows, mass, mean and scatter."""
    mass = weight.sum()
    mean = weight @ X / mass
    centred = X - mean
    return mass.new_tensor(len(X)), mass, mean, centred.T @ (centred * weight[:, None])


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
