"""The memory of a model: what is known of all rows it has learned from, in a fixed space."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from protopinv.errors import ConfigError
from protopinv.memory.parts import LEAST_ROWS, Parts, parts_of

# Numbers that a memory has at most, unless another limit is given; rows take four times as many.
MEMORY = 138_500
SHARE_OF_ROWS = 0.25
# Directions in which Gaussians have a full covariance, and Gaussians of a group, or in all.
MOST_DIRECTIONS = 48
PARTS_OF_A_GROUP, MOST_PARTS = 10, 100
# Rows from which the directions are found.
DIRECTION_ROWS = 10_000
# A part of fewer rows than this is forgotten.
GONE = 1e-6
# Rows whose tails are looked at together: all at once would be a copy of the data in float64.
TAIL_ROWS = 4_096
# Gaussians of a file are no wider, and no farther from zero: beyond this squares overflow.
MOST_VARIANCE = 1e305
MOST_ROWS = 2**53
# A group without rows is divided by this.
TINY = torch.finfo(torch.float64).tiny
# Up to so many rows are clustered on the host, where many small steps cost least.
HOST_ROWS = 200_000


@dataclass(frozen=True)
class Memory:
    """Rows z of m features that are gone, as Gaussians of their groups (classes, or one group).

    Along the r directions of ``basis`` every part has a mean and a full scatter. Across them, in
    the *tail*, a group has means and variances of single features alone. Without a basis all
    features are directions and there is no tail.

    ``fitted`` is the mass of the rows that a fit has seen, as against those that updates brought.
    ``limit`` is how many numbers it may have. With ``is_cut`` the network no longer looks at tails:
    it has learned some groups from rows that were drawn, and others from real ones, and might tell
    one from the other by what drawn rows cannot have.
    """

    n_features: int
    parts: Parts
    limit: int
    basis: Float[Tensor, "m r"] | None = None
    tail_mean: Float[Tensor, "g m"] | None = None
    tail_scatter: Float[Tensor, "g m"] | None = None
    is_cut: bool = False
    fitted: float = 0.0

    @property
    def n_directions(self) -> int:
        """Features, or the directions that stand for them."""
        return self.parts.mean.shape[1]

    @property
    def n_groups(self) -> int:
        """Groups that have been counted: those of the tails, or up to the last that has rows."""
        known = int(self.parts.group.max()) + 1
        return known if self.tail_mean is None else max(known, len(self.tail_mean))

    @property
    def n_numbers(self) -> int:
        """All that is stored; of a scatter matrix one half."""
        shared = sum(
            t.numel() for t in (self.basis, self.tail_mean, self.tail_scatter) if t is not None
        )
        return shared + len(self.parts) * numbers_of_part(self.n_directions)

    def masses(self, n_groups: int) -> Float[Tensor, " g"]:
        """What the rows of each group count together."""
        return self.parts.mass.new_zeros(n_groups).index_add_(0, self.parts.group, self.parts.mass)

    @property
    def unit(self) -> float:
        """What a row counts on average."""
        return float(self.parts.mass.sum() / self.parts.rows.sum())

    def cut(self, Z: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """Rows without what the network must not look at."""
        if not self.is_cut or self.basis is None:
            return Z
        basis = self.basis.to(Z)
        return (Z @ basis) @ basis.T

    def added(
        self,
        Z: Float[Tensor, "n m"],
        groups: Int[Tensor, " n"],
        weight: Float[Tensor, " n"],
        n_groups: int,
        generator: Generator,
    ) -> "Memory":
        """With more rows, which become parts of their own until the limit unites them."""
        heads = self._heads(Z)
        parts = self._with_parts(heads, groups, weight, n_groups, generator)
        if self.basis is None:
            return replace(self, parts=parts)
        mean, scatter = self._tails(Z, heads, groups, weight.double(), n_groups)
        return replace(self, parts=parts, tail_mean=mean, tail_scatter=scatter)

    def _heads(self, Z: Float[Tensor, "n m"]) -> Float[Tensor, "n r"]:
        """Rows along the directions."""
        return Z if self.basis is None else Z @ self.basis.to(Z)

    def _with_parts(
        self, heads: Tensor, groups: Tensor, weight: Tensor, n_groups: int, generator: Generator
    ) -> Parts:
        """Those there are and those of more rows, no more of a group than there is room for."""
        if len(heads) <= HOST_ROWS:
            heads, groups, weight = heads.cpu(), groups.cpu(), weight.cpu()
        most = self._most_parts(n_groups)
        found, new = [], set(groups.unique().tolist())
        for group in sorted(new | set(self.parts.group.tolist())):
            parts = self.parts.taken(self.parts.group == group)
            if group in new:
                chosen = groups == group
                n = min(most, max(1, int(chosen.sum()) // LEAST_ROWS))
                more = parts_of(heads[chosen], group, weight[chosen], n, generator)
                parts = parts.joined(more)
            found.append(parts.reduced(most))
        return reduce(Parts.joined, found)

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
        known = self.parts.whole(n_groups)
        here = (masses > 0) & (known.mass > 0)
        unlike = torch.ones(n_groups, dtype=torch.float64)
        if not bool(here.any()):
            return unlike
        old, new = known.taken(here), masses[here]
        off = sums[here] / new[:, None] - old.mean
        square = (torch.linalg.pinv(old.covariances(), hermitian=True) @ off[:, :, None])[:, :, 0]
        r = self.n_directions
        # a weight counts as so many rows, whatever its unit
        by_chance = (r + 2 * (2 * r) ** 0.5) * (1 / new + 1 / old.mass) * self.unit
        distance = ((square * off).sum(1) - by_chance).clamp_min(0).sqrt()
        # where rounding leaves no distance nothing speaks for the old rows either
        unlike[here] = torch.erf(distance / 8**0.5).nan_to_num(1.0)
        return unlike

    def _tails(
        self, Z: Tensor, heads: Tensor, groups: Tensor, weight: Tensor, n_groups: int
    ) -> tuple[Float[Tensor, "g m"], Float[Tensor, "g m"]]:
        """Means and scatter of the tails of every group, with more rows, some of them at a time."""
        mean, scatter = (_rows_up_to(t, n_groups) for t in (self.tail_mean, self.tail_scatter))
        before = self.masses(n_groups)
        for group in groups.unique().tolist():
            chosen = (groups == group).nonzero()[:, 0]
            pieces, mass = chosen.split(TAIL_ROWS), float(weight[chosen].sum())
            sums, squares = Z.new_zeros(2, Z.shape[1], dtype=torch.float64)
            for piece in pieces:
                sums += weight[piece] @ self._tail(Z[piece], heads[piece])
            new = sums / mass
            for piece in pieces:
                squares += weight[piece] @ (self._tail(Z[piece], heads[piece]) - new).square()
            new, squares = new.cpu(), squares.cpu()
            off, share = new - mean[group], mass / (float(before[group]) + mass)
            scatter[group] += squares + off.square() * float(before[group]) * share
            mean[group] += off * share
        return mean, scatter

    def _tail(self, Z: Float[Tensor, "n m"], heads: Float[Tensor, "n r"]) -> Float[Tensor, "n m"]:
        """What rows have across the directions."""
        if self.basis is None:
            raise AssertionError("there is no tail")
        return Z.double() - heads.double() @ self.basis.to(Z.device).T

    def _most_parts(self, n_groups: int) -> int:
        """Of one group: as many as the limit has room for, at least one."""
        room = (self.limit - self._shared(n_groups)) // numbers_of_part(self.n_directions)
        return max(1, min(room // n_groups, max(PARTS_OF_A_GROUP, MOST_PARTS // n_groups)))

    def _shared(self, n_groups: int) -> int:
        """Numbers beside those of the parts."""
        return 0 if self.basis is None else self.basis.numel() + 2 * n_groups * self.n_features

    def limited(self, limit: int | None, n_rows: int, n_groups: int) -> "Memory":
        """With room for so many rows and groups; raises ConfigError if ``limit`` has none."""
        least = self._shared(n_groups) + n_groups * numbers_of_part(self.n_directions)
        if limit is None:
            usual = usual_limit(n_rows, self.n_features)
            return replace(self, limit=max(self.limit, usual, least))
        require_room(limit, least)
        return replace(self, limit=limit)

    def turned(self, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]) -> "Memory":
        """With directions that serve the rows there were and these new ones.

        What was known along the old ones is carried over exactly; along a new one it is what the
        tail says. The covariance of a part is B S B' + P D P, with its scatter along the old
        directions B, variances D of the tail, and P = I - BB': none of them is written out.
        """
        old, tail_mean, tail_scatter = self.basis, self.tail_mean, self.tail_scatter
        if old is None or tail_mean is None or tail_scatter is None:
            return self
        means = self.parts.mean @ old.T + tail_mean[self.parts.group]
        basis = self._directions_with(means, Z, weight)
        group, mass = self.parts.group, self.parts.mass
        masses = self.masses(len(tail_mean))
        variances = tail_scatter / masses.clamp_min(TINY)[:, None]
        turn, beside = basis.T @ old, basis - old @ (old.T @ basis)
        tails = torch.stack([beside.T @ (beside * each[:, None]) for each in variances])
        scatter = turn @ self.parts.scatter @ turn.T + tails[group] * mass[:, None, None]
        parts = replace(self.parts, mean=means @ basis, scatter=scatter)
        # what is left of every group across the new directions
        across = old - basis @ turn
        outside = (means - parts.mean @ basis.T) * mass[:, None]
        mean = torch.zeros_like(tail_mean).index_add(0, group, outside)
        mean /= masses.clamp_min(TINY)[:, None]
        off = means - parts.mean @ basis.T - mean[group]
        within = self.parts.scatter.new_zeros(len(masses), *self.parts.scatter.shape[1:])
        within.index_add_(0, group, self.parts.scatter)
        left = torch.stack([(across @ each * across).sum(1) for each in within])
        both = _projector(basis) @ _projector(old)
        left += (tail_scatter * (masses > 0)[:, None]) @ both.square().T
        left.index_add_(0, group, off.square() * mass[:, None])
        return replace(self, basis=basis, parts=parts, tail_mean=mean, tail_scatter=left)

    def _directions_with(
        self, means: Float[Tensor, "q m"], Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, "m r"]:
        """Those in which rows vary most, the ones there were and these new ones."""
        old, tails = self.basis, self.tail_scatter
        if old is None or tails is None:
            raise AssertionError("there is no tail")
        mass, across = self.parts.mass, _projector(old)
        centre = mass @ means / mass.sum()
        off = means - centre
        there = self.masses(len(tails)) > 0
        scatter = old @ self.parts.scatter.sum(0) @ old.T
        scatter += (across * tails[there].sum(0)) @ across + off.T @ (off * mass[:, None])
        total = float(weight.sum())
        new = sum(w @ rows for rows, w in _pieces(Z, weight)) / total
        for rows, w in _pieces(Z, weight):
            scatter += (rows - new).T @ ((rows - new) * w[:, None])
        between = float(mass.sum()) * total / (float(mass.sum()) + total)
        scatter.addr_(new - centre, new - centre, alpha=between)
        return leading(scatter, self.n_directions)

    def moments(self) -> tuple[float, Float[Tensor, " m"], Float[Tensor, " m"]]:
        """The mass of all rows, and the mean and the variance of each feature."""
        share = self.parts.mass / self.parts.mass.sum()
        means = self.parts.mean
        inner = self.parts.scatter / self.parts.mass[:, None, None]
        if self.basis is None or self.tail_mean is None or self.tail_scatter is None:
            variances = inner.diagonal(dim1=1, dim2=2)
        else:
            mass = self.masses(len(self.tail_mean)).clamp_min(torch.finfo(torch.float64).tiny)
            tails = self.tail_scatter / mass[:, None]
            variances = ((self.basis @ inner) * self.basis).sum(2) + tails[self.parts.group]
            means = means @ self.basis.T + self.tail_mean[self.parts.group]
        mean = share @ means
        return float(self.parts.mass.sum()), mean, share @ (variances + (means - mean).square())

    def rescaled(self, factors: Float[Tensor, " m"]) -> "Memory":
        """The memory of rows z * factors; its directions are those that the old ones become."""
        if self.basis is None or self.tail_mean is None or self.tail_scatter is None:
            scatter = self.parts.scatter * factors[:, None] * factors
            return replace(
                self, parts=replace(self.parts, mean=self.parts.mean * factors, scatter=scatter)
            )
        basis, turn = torch.linalg.qr(factors[:, None] * self.basis)
        # what of the tails lies along the directions by now joins the heads
        inside = basis.T * factors
        outside = factors.diag() - basis @ inside
        mass = self.masses(len(self.tail_mean)).clamp_min(torch.finfo(torch.float64).tiny)
        joins = torch.stack(
            [(inside * row) @ inside.T for row in self.tail_scatter / mass[:, None]]
        )
        group = self.parts.group
        parts = replace(
            self.parts,
            mean=self.parts.mean @ turn.T + (self.tail_mean @ inside.T)[group],
            scatter=turn @ self.parts.scatter @ turn.T
            + joins[group] * self.parts.mass[:, None, None],
        )
        return replace(
            self,
            basis=basis,
            parts=parts,
            tail_mean=self.tail_mean @ outside.T,
            tail_scatter=self.tail_scatter @ outside.square().T,
        )

    def weakened(self, factor: float) -> "Memory":
        """As if there were ``factor`` times as many rows; what is left of next to nothing goes."""
        weaker = self.reweighted(torch.full((self.n_groups,), factor, dtype=torch.float64))
        parts = replace(weaker.parts, rows=self.parts.rows * factor)
        left = parts.rows > GONE
        left[parts.rows.argmax()] = True
        return replace(weaker, parts=parts.taken(left))

    def reweighted(self, factors: Float[Tensor, " g"]) -> "Memory":
        """As if rows of each group had so many times their weight."""
        tail = self.tail_scatter
        parts = self.parts.reweighted(factors[self.parts.group])
        share = float(parts.mass.sum() / self.parts.mass.sum())
        return replace(
            self,
            parts=parts,
            tail_scatter=None if tail is None else tail * factors[: len(tail), None],
            fitted=self.fitted * share,
        )

    def without(self, group: int) -> "Memory":
        """As if there had never been a row of this group; later ones move up by one."""
        parts = self.parts.taken(self.parts.group != group)
        parts = replace(parts, group=parts.group - (parts.group > group).long())
        left = replace(self, parts=parts, fitted=min(self.fitted, float(parts.mass.sum())))
        if self.tail_mean is None or self.tail_scatter is None:
            return left
        kept = torch.arange(len(self.tail_mean)) != group
        return replace(left, tail_mean=self.tail_mean[kept], tail_scatter=self.tail_scatter[kept])

    def renumbered(self, places: Int[Tensor, " g"], n_groups: int) -> "Memory":
        """Group i is group ``places[i]`` of ``n_groups`` from now on."""
        parts = replace(self.parts, group=places[self.parts.group])
        if self.tail_mean is None or self.tail_scatter is None:
            return replace(self, parts=parts)
        known = len(self.tail_mean)
        mean, scatter = (
            t.new_zeros(n_groups, self.n_features).index_copy_(0, places[:known], t)
            for t in (self.tail_mean, self.tail_scatter)
        )
        return replace(self, parts=parts, tail_mean=mean, tail_scatter=scatter)

    def widened(self, places: Int[Tensor, " m"], n: int) -> "Memory":
        """Feature i is feature ``places[i]`` of n; in others all rows were zero, which is exact.

        With a basis each of the others is a further direction, so that it is seen whatever is cut.
        """
        if self.basis is None or self.tail_mean is None or self.tail_scatter is None:
            return replace(self, n_features=n, parts=self.parts.widened(places, n))
        r = self.n_directions
        old = self.basis.new_zeros(n, r).index_copy_(0, places, self.basis)
        alone = torch.eye(n).to(old)[:, ~torch.isin(torch.arange(n), places)]
        mean, scatter = (
            t.new_zeros(len(t), n).index_copy_(1, places, t)
            for t in (self.tail_mean, self.tail_scatter)
        )
        return replace(
            self,
            n_features=n,
            parts=self.parts.widened(torch.arange(r), r + alone.shape[1]),
            basis=torch.cat([old, alone], 1),
            tail_mean=mean,
            tail_scatter=scatter,
        )

    def drawn(
        self, n: int, generator: Generator, favour: Float[Tensor, " g"] | None = None
    ) -> tuple[Float[Tensor, "n m"], Int[Tensor, " n"]]:
        """Rows like those that are gone and their groups, as many of each as its mass says.

        ``favour`` multiplies the mass of each group.
        """
        mass = self.parts.mass if favour is None else self.parts.mass * favour[self.parts.group]
        part = _dealt(mass, n)
        roots = self.parts.roots().float()
        heads = torch.empty(n, self.n_directions)
        for number in part.unique().tolist():
            chosen = part == number
            noise = torch.randn(int(chosen.sum()), self.n_directions, generator=generator)
            heads[chosen] = self.parts.mean[number].float() + noise @ roots[number].T
        groups = self.parts.group[part]
        if self.basis is None:
            return heads, groups
        Z = heads @ self.basis.float().T
        return (Z if self.is_cut else Z + self._drawn_tails(groups, generator)), groups

    def _drawn_tails(self, groups: Tensor, generator: Generator) -> Float[Tensor, "n m"]:
        if self.basis is None or self.tail_mean is None or self.tail_scatter is None:
            raise AssertionError("there is no tail")
        mass = self.masses(len(self.tail_mean)).clamp_min(TINY)
        deviation = (self.tail_scatter / mass[:, None]).clamp_min(0).sqrt().float()
        tails = torch.randn(len(groups), self.n_features, generator=generator)
        tails.mul_(deviation[groups]).add_(self.tail_mean.float()[groups])
        basis = self.basis.float()
        return tails - (tails @ basis) @ basis.T

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file; one half of each scatter matrix."""
        half = torch.tril_indices(self.n_directions, self.n_directions)
        named = {
            "group": self.parts.group,
            "rows": self.parts.rows,
            "mass": self.parts.mass,
            "mean": self.parts.mean,
            "scatter": self.parts.scatter[:, half[0], half[1]],
        }
        tail = {"basis": self.basis, "tail_mean": self.tail_mean, "tail_scatter": self.tail_scatter}
        return {**named, **{name: t for name, t in tail.items() if t is not None}}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], *, limit: int, is_cut: bool, fitted: float
    ) -> "Memory":
        """The memory that ``tensors`` came from."""
        means, packed = tensors["mean"], tensors["scatter"]
        r = means.shape[1]
        half = torch.tril_indices(r, r)
        scatters = packed.new_zeros(len(packed), r, r)
        scatters[:, half[0], half[1]] = packed
        scatters[:, half[1], half[0]] = packed
        parts = Parts(tensors["group"], tensors["rows"], tensors["mass"], means, scatters)
        basis, mean, scatter = (tensors.get(n) for n in ("basis", "tail_mean", "tail_scatter"))
        n_features = r if basis is None else len(basis)
        return cls(n_features, parts, limit, basis, mean, scatter, is_cut, fitted)

    def fault(self, n_features: int, n_outputs: int) -> str | None:
        """What does not fit together, or None; there are no more groups than outputs."""
        parts = self.parts
        q, r = parts.mean.shape
        if self.n_features != n_features or not q:
            return "the memory and the feature map differ in features"
        sums = (parts.rows, parts.mass, parts.mean, parts.scatter)
        if parts.group.dtype != torch.int64 or any(t.dtype != torch.float64 for t in sums):
            return "the memory is not in float64"
        if any(len(t) != q for t in (parts.group, parts.rows, parts.mass, parts.scatter)):
            return "the parts of the memory differ in number"
        n_groups = n_outputs if self.tail_mean is None else len(self.tail_mean)
        if int(parts.group.min()) < 0 or not int(parts.group.max()) < n_groups <= n_outputs:
            return "the memory has groups that the model has not"
        if not bool((parts.mass > 0).all() and (parts.rows > 0).all()):
            return "the memory has parts without rows"
        if not float(parts.mass.sum()) <= MOST_VARIANCE or not float(parts.rows.sum()) <= MOST_ROWS:
            return "the memory has parts of more rows than can be counted"
        sizes = parts.mean.square().amax(1), parts.covariances().abs().flatten(1).amax(1)
        if not all(bool((each <= MOST_VARIANCE).all()) for each in sizes):
            return "the numbers of the memory are too large to be drawn from"
        tails = (self.tail_mean, self.tail_scatter)
        if len({t is None for t in (self.basis, *tails)}) > 1:
            return "the memory has half a tail"
        if self.basis is not None and self.basis.shape != (n_features, r):
            return "the directions of the memory are not as many as they should be"
        if any(t is not None and t.shape != (n_groups, n_features) for t in tails):
            return "the tails of the memory are not one a group"
        if self.tail_mean is None or self.tail_scatter is None:
            return None
        masses = self.masses(n_groups)[:, None]
        variances = self.tail_scatter / torch.where(masses > 0, masses, 1.0)
        largest = torch.maximum(self.tail_mean.square(), variances)
        if not bool((largest <= MOST_VARIANCE).all()):
            return "the numbers of the memory are too large to be drawn from"
        return None


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
    least = least_limit(m, n_groups)
    limit = max(usual_limit(n, m), least) if limit is None else limit
    require_room(limit, least)
    r = _directions(m, n_groups, limit)
    nothing = Parts(
        torch.zeros(0, dtype=torch.long),
        *(torch.zeros(0, *shape, dtype=torch.float64) for shape in ((), (), (r,), (r, r))),
    )
    empty = Memory(m, nothing, limit)
    if r < m:
        some = Z[torch.randperm(n, generator=generator)[:DIRECTION_ROWS].to(Z.device)].double()
        centred = some - some.mean(0)
        tails = torch.zeros(n_groups, m, dtype=torch.float64)
        basis = leading((centred.T @ centred).cpu(), r)
        empty = replace(empty, basis=basis, tail_mean=tails, tail_scatter=tails.clone())
    memory = empty.added(Z, groups, weight, n_groups, generator)
    return replace(memory, fitted=float(memory.parts.mass.sum()))


def usual_limit(n_rows: int, n_features: int) -> int:
    """A quarter of the numbers of so many rows, at most MEMORY."""
    return min(MEMORY, int(SHARE_OF_ROWS * n_rows * n_features))


def numbers_of_part(n_directions: int) -> int:
    """Group, rows, mass, mean and one half of the scatter."""
    return 3 + n_directions + n_directions * (n_directions + 1) // 2


def leading(covariance: Float[Tensor, "m m"], r: int) -> Float[Tensor, "m r"]:
    """The r directions in which there is most."""
    directions: Tensor = torch.linalg.eigh(covariance).eigenvectors.flip(1)[:, :r]
    return directions.contiguous()


def least_limit(n_features: int, n_groups: int) -> int:
    """Numbers of the smallest memory: one part of every group."""
    few = range(1, min(n_features, MOST_DIRECTIONS) + 1)
    return min(_numbers(n_features, r, n_groups) for r in few)


def require_room(limit: int, least: int) -> None:
    """Raise ConfigError unless a limit, which is not zero, has room for so many numbers."""
    if limit < least:
        raise ConfigError(
            "memory must have room for a Gaussian of every class, or of all rows where there are "
            f"no classes: here {least:,} numbers. Got memory={limit}. Raise it, leave it at "
            "'auto', or fit with memory=0 to keep nothing."
        )


def _numbers(n_features: int, r: int, n_groups: int) -> int:
    """Of a memory with one part of every group."""
    shared = 0 if r == n_features else (r + 2 * n_groups) * n_features
    return shared + n_groups * numbers_of_part(r)


def _directions(m: int, n_groups: int, limit: int) -> int:
    """As many as a part of every group has room for."""
    few = range(1, min(m, MOST_DIRECTIONS) + 1)
    return max(r for r in few if _numbers(m, r, n_groups) <= limit)


def _projector(basis: Float[Tensor, "m r"]) -> Float[Tensor, "m m"]:
    """Onto what lies across the directions."""
    return torch.eye(len(basis), dtype=basis.dtype) - basis @ basis.T


def _pieces(
    Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
) -> Iterator[tuple[Float[Tensor, "p m"], Float[Tensor, " p"]]]:
    """Rows and their weights in float64 on the host, some at a time."""
    for rows, w in zip(Z.split(TAIL_ROWS), weight.split(TAIL_ROWS), strict=True):
        yield rows.double().cpu(), w.double().cpu()


def _rows_up_to(known: Tensor | None, n: int) -> Tensor:
    """A copy with rows of zeros at its end."""
    if known is None:
        raise AssertionError("there is no tail")
    return torch.cat([known, known.new_zeros(n - len(known), known.shape[1])])


def _dealt(mass: Float[Tensor, " q"], n: int) -> Int[Tensor, " n"]:
    """Entries 0 ... q-1, each as often as its share of the mass says, n in all."""
    ends = (mass.cumsum(0) / mass.sum() * n).round().long()
    counts = ends.diff(prepend=ends.new_zeros(1))
    return torch.arange(len(mass)).repeat_interleave(counts)
