"""The replay memory of a model: a Gaussian mixture per class of all rows it has learned from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from protopinv.errors import ConfigError
from protopinv.memory.gaussians import LEAST_ROWS, Gaussians, gaussians_of
from protopinv.memory.tail import Tail, leading

# Numbers that a memory has at most, unless another limit is given; rows take four times as many.
MEMORY = 138_500
SHARE_OF_ROWS = 0.25
# Directions in which Gaussians have a full covariance, and Gaussians of a group, or in all.
MOST_DIRECTIONS = 48
PARTS_OF_A_GROUP, MOST_PARTS = 10, 100
# Rows from which the directions are found.
DIRECTION_ROWS = 10_000
# A Gaussian of fewer rows than this is forgotten.
GONE = 1e-6
# Up to so many rows are clustered on the host, where many small steps cost least.
HOST_ROWS = 200_000


@dataclass(frozen=True)
class Memory:
    """Rows z of m features that are gone, as Gaussians of their groups (classes, or one group).

    With a ``tail`` Gaussians are along its directions, else along all features. ``fitted`` is the
    mass of the rows that a fit has seen, as against those that updates brought. ``limit`` is how
    many numbers the memory may have. With ``is_cut`` the network no longer looks at tails: it has
    learned some groups from rows that were drawn, and others from real ones, and might tell one
    from the other by what drawn rows cannot have.
    """

    gaussians: Gaussians
    limit: int
    tail: Tail | None = None
    is_cut: bool = False
    fitted: float = 0.0

    @property
    def basis(self) -> Float[Tensor, "m r"] | None:
        """The directions of the Gaussians; None where these are the features themselves."""
        return None if self.tail is None else self.tail.basis

    @property
    def n_directions(self) -> int:
        """Features, or the directions that stand for them."""
        return self.gaussians.mean.shape[1]

    @property
    def n_features(self) -> int:
        """Features of a row."""
        return self.n_directions if self.tail is None else len(self.tail.basis)

    @property
    def n_groups(self) -> int:
        """Groups that have been counted: those of the tails, or up to the last that has rows."""
        seen = int(self.gaussians.group.max()) + 1
        return seen if self.tail is None else max(seen, len(self.tail.mean))

    @property
    def n_numbers(self) -> int:
        """All that is stored; of a scatter matrix one half."""
        return sum(tensor.numel() for tensor in self.tensors().values())

    @property
    def unit(self) -> float:
        """What a row counts on average."""
        return float(self.gaussians.mass.sum() / self.gaussians.rows.sum())

    def masses(self, n_groups: int) -> Float[Tensor, " g"]:
        """What the rows of each group count together."""
        return self.gaussians.masses(n_groups)

    def cut(self, Z: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """Rows without what the network must not look at."""
        if not self.is_cut or self.tail is None:
            return Z
        basis = self.tail.basis.to(Z)
        return (Z @ basis) @ basis.T

    def added(
        self,
        Z: Float[Tensor, "n m"],
        groups: Int[Tensor, " n"],
        weight: Float[Tensor, " n"],
        n_groups: int,
        generator: Generator,
    ) -> "Memory":
        """With more rows, which become Gaussians of their own until the limit unites them."""
        tail = self.tail and self.tail.added(Z, groups, weight, self.masses(n_groups))
        heads = self._heads(Z)
        if len(heads) <= HOST_ROWS:
            heads, groups, weight = heads.cpu(), groups.cpu(), weight.cpu()
        most = self._most_of_a_group(n_groups)
        mixtures, new = [], set(groups.unique().tolist())
        for group in sorted(new | set(self.gaussians.group.tolist())):
            mixture = self.gaussians.taken(self.gaussians.group == group)
            if group in new:
                chosen = groups == group
                n = min(most, max(1, int(chosen.sum()) // LEAST_ROWS))
                more = gaussians_of(heads[chosen], group, weight[chosen], n, generator)
                mixture = mixture.joined(more)
            mixtures.append(mixture.reduced(most))
        return replace(self, gaussians=reduce(Gaussians.joined, mixtures), tail=tail)

    def _heads(self, Z: Float[Tensor, "n m"]) -> Float[Tensor, "n r"]:
        """Rows along the directions."""
        return Z if self.tail is None else Z @ self.tail.basis.to(Z)

    def _most_of_a_group(self, n_groups: int) -> int:
        """As many Gaussians as the limit has room for, at least one."""
        m, r = self.n_features, self.n_directions
        room = (self.limit - size_of_memory(m, r, n_groups, 0)) // size_of_gaussian(r)
        return max(1, min(room // n_groups, max(PARTS_OF_A_GROUP, MOST_PARTS // n_groups)))

    def unlike(
        self,
        Z: Float[Tensor, "n m"],
        groups: Int[Tensor, " n"],
        weight: Float[Tensor, " n"],
        n_groups: int,
    ) -> Float[Tensor, " g"]:
        """How unlike the rows of each group are to those there were: 0 the same, 1 of elsewhere.

        It is the share of both that the best linear rule could tell apart, by the Mahalanobis
        distance of their means, less what chance makes of it. A group without rows is at 1: nothing
        speaks for it.
        """
        heads, weight = self._heads(Z).double(), weight.double()
        masses = weight.new_zeros(n_groups).index_add_(0, groups, weight).cpu()
        sums = heads.new_zeros(n_groups, heads.shape[1])
        sums = sums.index_add_(0, groups, heads * weight[:, None]).cpu()
        before = self.gaussians.by_group(n_groups)
        here = (masses > 0) & (before.mass > 0)
        unlike = torch.ones(n_groups, dtype=torch.float64)
        if not bool(here.any()):
            return unlike
        old, new = before.taken(here), masses[here]
        off = sums[here] / new[:, None] - old.mean
        square = (torch.linalg.pinv(old.covariances(), hermitian=True) @ off[:, :, None])[:, :, 0]
        r = self.n_directions
        # a weight counts as so many rows, whatever its unit
        by_chance = (r + 2 * (2 * r) ** 0.5) * (1 / new + 1 / old.mass) * self.unit
        distance = ((square * off).sum(1) - by_chance).clamp_min(0).sqrt()
        # where rounding leaves no distance nothing speaks for the old rows either
        unlike[here] = torch.erf(distance / 8**0.5).nan_to_num(1.0)
        return unlike

    def limited(self, limit: int | None, n_rows: int, n_groups: int) -> "Memory":
        """With room for so many rows and groups; raises ConfigError if ``limit`` has none."""
        least = size_of_memory(self.n_features, self.n_directions, n_groups, n_groups)
        usual = max(self.limit, usual_limit(n_rows, self.n_features))
        return replace(self, limit=checked_limit(limit, least, usual))

    def turned(self, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]) -> "Memory":
        """With directions that serve the rows there were and these new ones."""
        if self.tail is None:
            return self
        basis = self.tail.directions_with(self.gaussians, Z, weight)
        tail, gaussians = self.tail.turned(self.gaussians, basis, torch.ones_like(basis[:, 0]))
        return replace(self, gaussians=gaussians, tail=tail)

    def rescaled(self, factors: Float[Tensor, " m"]) -> "Memory":
        """The memory of rows z * factors; its directions are those that the old ones become."""
        if self.tail is None:
            mean = self.gaussians.mean * factors
            scatter = self.gaussians.scatter * factors[:, None] * factors
            return replace(self, gaussians=replace(self.gaussians, mean=mean, scatter=scatter))
        basis = torch.linalg.qr(factors[:, None] * self.tail.basis).Q
        tail, gaussians = self.tail.turned(self.gaussians, basis, factors)
        return replace(self, gaussians=gaussians, tail=tail)

    def moments(self) -> tuple[float, Float[Tensor, " m"], Float[Tensor, " m"]]:
        """The mass of all rows, and the mean and the variance of each feature."""
        mass = self.gaussians.mass
        if self.tail is None:
            scatter = self.gaussians.scatter.diagonal(dim1=1, dim2=2)
            means, variances = self.gaussians.mean, scatter / mass[:, None]
        else:
            means, variances = self.tail.moments(self.gaussians)
        share = mass / mass.sum()
        mean = share @ means
        return float(mass.sum()), mean, share @ (variances + (means - mean).square())

    def weakened(self, factor: float) -> "Memory":
        """As if there were ``factor`` times as many rows; what is left of next to nothing goes."""
        weaker = self.reweighted(torch.full((self.n_groups,), factor, dtype=torch.float64))
        rows = self.gaussians.rows * factor
        left = rows > GONE
        left[rows.argmax()] = True
        return replace(weaker, gaussians=replace(weaker.gaussians, rows=rows).taken(left))

    def reweighted(self, factors: Float[Tensor, " g"]) -> "Memory":
        """As if rows of each group had so many times their weight."""
        old, tail, factor = self.gaussians, self.tail, factors[self.gaussians.group]
        scatter = old.scatter * factor[:, None, None]
        gaussians = replace(old, mass=old.mass * factor, scatter=scatter)
        if tail is not None:
            tail = replace(tail, scatter=tail.scatter * factors[: len(tail.scatter), None])
        share = float(gaussians.mass.sum() / old.mass.sum())
        return replace(self, gaussians=gaussians, tail=tail, fitted=self.fitted * share)

    def without(self, group: int) -> "Memory":
        """As if there had never been a row of this group; later ones move up by one."""
        gaussians, tail = self.gaussians.taken(self.gaussians.group != group), self.tail
        number = gaussians.group - (gaussians.group > group).long()
        if tail is not None:
            others = torch.arange(len(tail.mean)) != group
            tail = replace(tail, mean=tail.mean[others], scatter=tail.scatter[others])
        fitted = min(self.fitted, float(gaussians.mass.sum()))
        gaussians = replace(gaussians, group=number)
        return replace(self, gaussians=gaussians, tail=tail, fitted=fitted)

    def renumbered(self, places: Int[Tensor, " g"], n_groups: int) -> "Memory":
        """Group i is group ``places[i]`` of ``n_groups`` from now on."""
        gaussians = replace(self.gaussians, group=places[self.gaussians.group])
        tail = self.tail and self.tail.renumbered(places, n_groups)
        return replace(self, gaussians=gaussians, tail=tail)

    def widened(self, places: Int[Tensor, " m"], n: int) -> "Memory":
        """Feature i is feature ``places[i]`` of n; in others all rows were zero, which is exact.

        With a tail each of the others is a further direction, so that it is seen whatever is cut.
        """
        if self.tail is None:
            return replace(self, gaussians=self.gaussians.widened(places, n))
        r, n_new = self.n_directions, n - self.n_features
        gaussians = self.gaussians.widened(torch.arange(r), r + n_new)
        return replace(self, gaussians=gaussians, tail=self.tail.widened(places, n))

    def drawn(
        self, n: int, generator: Generator, favour: Float[Tensor, " g"] | None = None
    ) -> tuple[Float[Tensor, "n m"], Int[Tensor, " n"]]:
        """Rows like those that are gone and their groups, as many of each as its mass says.

        ``favour`` multiplies the mass of each group.
        """
        gaussians, tail = self.gaussians, self.tail
        mass = gaussians.mass if favour is None else gaussians.mass * favour[gaussians.group]
        # as many of each as its share of the mass says, n in all
        ends = (mass.cumsum(0) / mass.sum() * n).round().long()
        counts = ends.diff(prepend=ends.new_zeros(1)).tolist()
        means, roots = gaussians.mean.float(), gaussians.roots().float()
        heads = torch.cat(
            [
                mean + torch.randn(count, self.n_directions, generator=generator) @ root.T
                for count, mean, root in zip(counts, means, roots, strict=True)
            ]
        )
        groups = gaussians.group.repeat_interleave(torch.tensor(counts))
        if tail is None:
            return heads, groups
        Z = heads @ tail.basis.float().T
        if not self.is_cut:
            Z += tail.drawn(groups, self.masses(len(tail.mean)), generator)
        return Z, groups

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file; one half of each scatter matrix."""
        tail, half = self.tail, torch.tril_indices(self.n_directions, self.n_directions)
        packed = self.gaussians.scatter[:, half[0], half[1]]
        named: dict[str, Tensor] = {**vars(self.gaussians), "scatter": packed}
        if tail is None:
            return named
        return {**named, "basis": tail.basis, "tail_mean": tail.mean, "tail_scatter": tail.scatter}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], *, limit: int, is_cut: bool, fitted: float
    ) -> "Memory":
        """The memory that ``tensors`` came from; KeyError where some of them are missing."""
        sums = {name: tensors[name] for name in Gaussians.__dataclass_fields__}
        packed, r = sums["scatter"], sums["mean"].shape[1]
        half = torch.tril_indices(r, r)
        sums["scatter"] = scatter = packed.new_zeros(len(packed), r, r)
        scatter[:, half[0], half[1]] = packed
        scatter[:, half[1], half[0]] = packed
        names = ("basis", "tail_mean", "tail_scatter")
        has_tail = any(name in tensors for name in names)
        tail = Tail(*(tensors[name] for name in names)) if has_tail else None
        return cls(Gaussians(**sums), limit, tail, is_cut, fitted)

    def fault(self, n_features: int, n_outputs: int) -> str | None:
        """What does not fit together, or None; there are no more groups than outputs."""
        if self.n_features != n_features:
            return "the memory and the feature map differ in features"
        n_groups = n_outputs if self.tail is None else len(self.tail.mean)
        if n_groups > n_outputs:
            return "the memory has groups that the model has not"
        fault = self.gaussians.fault(n_groups)
        if fault is not None or self.tail is None:
            return fault
        return self.tail.fault(self.masses(n_groups), self.n_directions)


def begin_memory(
    Z: Float[Tensor, "n m"],
    groups: Int[Tensor, " n"],
    weight: Float[Tensor, " n"],
    *,
    n_groups: int,
    limit: int | None,
    generator: Generator,
) -> Memory:
    """That of the first rows; without a ``limit`` a quarter of their numbers, at most MEMORY.

    Either way there is room for one Gaussian of every group, or ConfigError is raised.
    """
    n, m = Z.shape
    limit = checked_limit(limit, least_limit(m, n_groups), usual_limit(n, m))
    few = range(1, min(m, MOST_DIRECTIONS) + 1)
    r = max(r for r in few if size_of_memory(m, r, n_groups, n_groups) <= limit)
    sums = (torch.zeros(0, *shape, dtype=torch.float64) for shape in ((), (), (r,), (r, r)))
    nothing, tail = Gaussians(torch.zeros(0, dtype=torch.long), *sums), None
    if r < m:
        some = Z[torch.randperm(n, generator=generator)[:DIRECTION_ROWS].to(Z.device)].double()
        centred = some - some.mean(0)
        zeros = torch.zeros(n_groups, m, dtype=torch.float64)
        tail = Tail(leading((centred.T @ centred).cpu(), r), zeros, zeros)
    memory = Memory(nothing, limit, tail).added(Z, groups, weight, n_groups, generator)
    return replace(memory, fitted=float(memory.gaussians.mass.sum()))


def usual_limit(n_rows: int, n_features: int) -> int:
    """A quarter of the numbers of so many rows, at most MEMORY."""
    return min(MEMORY, int(SHARE_OF_ROWS * n_rows * n_features))


def least_limit(n_features: int, n_groups: int) -> int:
    """Numbers of the smallest memory: one Gaussian of every group."""
    few = range(1, min(n_features, MOST_DIRECTIONS) + 1)
    return min(size_of_memory(n_features, r, n_groups, n_groups) for r in few)


def size_of_memory(n_features: int, r: int, n_groups: int, n_gaussians: int) -> int:
    """Numbers of a memory: its Gaussians and, along fewer directions than features, the tail."""
    tail = 0 if r == n_features else (r + 2 * n_groups) * n_features
    return tail + n_gaussians * size_of_gaussian(r)


def size_of_gaussian(r: int) -> int:
    """Numbers of a Gaussian: group, rows, mass, mean and one half of the scatter."""
    return 3 + r + r * (r + 1) // 2


def checked_limit(limit: int | None, least: int, usual: int = 0) -> int:
    """A limit other than zero, or the usual one; raises ConfigError for less than the ``least``."""
    if limit is None:
        return max(usual, least)
    if limit < least:
        raise ConfigError(
            "memory must have room for a Gaussian of every class, or of all rows where there are "
            f"no classes: here {least:,} numbers. Got memory={limit}. Raise it, leave it at "
            "'auto', or fit with memory=0 to keep nothing."
        )
    return limit
