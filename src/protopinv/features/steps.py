"""Piecewise-linear encoding: a number as a row of steps, each of which rises once along its column.

A network sees a number as one straight axis, and needs many units to follow a target that jumps
along it. Steps give each stretch of the axis a weight of its own (Gorishniy, Rubachev and Babenko,
"On Embeddings for Numerical Features in Tabular Deep Learning", 2022).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from protopinv.features.moments import beyond_rounding

# So many steps a column at most, fewer where columns are many, and so many rows for each.
MOST_STEPS, MOST_OF_ALL, ROWS_A_STEP = 16, 800, 20
# Borders that lie nearer to each other, in standard deviations, are one: float32 has no digits to
# tell where between them a number lies.
NEAREST = 1e-5
# Where steps begin and end, among the borders of a column.
ENDS = (slice(None, -1), slice(1, None))


@dataclass(frozen=True)
class Steps:
    """Some columns as they are, then (clip((x - low) / (high - low), 0, 1) - mean) * scale.

    ``raw`` are the columns that stay; ``column`` is that of each step. Rows are first cut to the
    directions ``inside``, if there are any: a network that has learned from drawn rows looks at no
    others.
    """

    n_inputs: int
    raw: Int[Tensor, " r"]
    column: Int[Tensor, " s"]
    low: Float[Tensor, " s"]
    high: Float[Tensor, " s"]
    mean: Float[Tensor, " s"]
    scale: Float[Tensor, " s"]
    inside: Float[Tensor, "d m"] | None = None

    @property
    def n_outputs(self) -> int:
        """Features that come out."""
        return len(self.raw) + len(self.column)

    @property
    def n_numbers(self) -> int:
        """Numbers that must be stored; mean and scale are merged into the network."""
        return 2 * len(self.column) + (0 if self.inside is None else self.inside.numel())

    def __call__(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n f"]:
        """Rows with steps, in the precision of the rows."""
        if self.inside is not None:
            Z = (Z @ self.inside.to(Z.dtype)) @ self.inside.T.to(Z.dtype)
        rises = self.rises(Z).sub_(self.mean.to(Z.dtype)).mul_(self.scale.to(Z.dtype))
        return torch.cat([Z[:, self.raw], rises], dim=1)

    def rises(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n s"]:
        """clip((z - low) / (high - low), 0, 1)."""
        low, high = self.low.to(Z.dtype), self.high.to(Z.dtype)
        return Z[:, self.column].sub_(low).div_(high - low).clamp_(0, 1)

    def restored(self, E: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """Rows that become E, or near it: a column without its raw number is where its steps end.

        A prototype may lie where no row does.
        """
        r = len(self.raw)
        rises = (E[:, r:] / self.scale.to(E) + self.mean.to(E)).clamp(0, 1)
        Z = E.new_zeros(len(E), self.n_inputs)
        Z.index_add_(1, self.column, rises * (self.high - self.low).to(E))
        first = torch.ones_like(self.column, dtype=torch.bool)
        first[1:] = self.column[1:] != self.column[:-1]
        Z[:, self.column[first]] += self.low[first].to(E)
        Z[:, self.raw] = E[:, :r]
        return Z

    @classmethod
    def fit(
        cls,
        Z: Float[Tensor, "n d"],
        weight: Float[Tensor, " n"] | None = None,
        *,
        alone: bool = False,
        but: Sequence[bool] = (),
    ) -> "Steps | None":
        """Steps between quantiles of every column, or between its values where these are few.

        Columns of two values stay as they are, and so do those marked in ``but``; with steps
        ``alone`` all others have no raw number. None where no column has steps, or columns are too
        many.
        """
        n, d = Z.shape
        most = min(MOST_STEPS, MOST_OF_ALL // max(1, d - sum(but)), max(2, n // ROWS_A_STEP))
        if most < 2:
            return None
        mass = Z.new_ones(n, dtype=torch.float64) if weight is None else weight.double()
        borders = [_borders(column, mass, most).cpu() for column in Z.double().T]
        has_steps = torch.tensor([len(cuts) > 2 for cuts in borders])
        has_steps[: len(but)] &= ~torch.tensor(but, dtype=torch.bool)
        if not bool(has_steps.any()):
            return None
        (stepped,) = has_steps.nonzero(as_tuple=True)
        cuts = [borders[number] for number in stepped.tolist()]
        column = stepped.repeat_interleave(torch.tensor([len(each) - 1 for each in cuts]))
        (raw,) = (~has_steps if alone else torch.ones_like(has_steps)).nonzero(as_tuple=True)
        low, high = (torch.cat([each[ends] for each in cuts]) for ends in ENDS)
        none = torch.zeros_like(low)
        plain = cls(d, raw, column, low, high, none, none + 1).to(Z.device)
        rises, share = plain.rises(Z.double()), mass / mass.sum()
        mean = share @ rises
        deviation = (share @ (rises - mean).square()).sqrt()
        varies = beyond_rounding(deviation, mean, float(n))
        return replace(plain, mean=mean, scale=torch.where(varies, deviation, 1.0).reciprocal())

    def rescaled(self, factors: Float[Tensor, " d"]) -> "Steps":
        """The steps of rows that were multiplied by factors."""
        own = factors[self.column].to(self.low)
        return replace(self, low=self.low * own, high=self.high * own)

    def widened(self, places: Int[Tensor, " d"], n: int) -> tuple["Steps", Int[Tensor, " f"]]:
        """Column i is column ``places[i]`` of n, and others are raw; where every feature is now."""
        new = torch.arange(n)[~torch.isin(torch.arange(n), places)]
        raw, order = torch.cat([places[self.raw], new]).sort()
        where = order.argsort()[: len(self.raw)]
        steps = len(raw) + torch.arange(len(self.column))
        wider = replace(self, n_inputs=n, raw=raw, column=places[self.column])
        return wider, torch.cat([where, steps])

    def to(self, device: torch.device | str) -> "Steps":
        """The steps on another device."""
        return self.from_tensors(
            {name: tensor.to(device) for name, tensor in self.tensors().items()}, self.n_inputs
        )

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        return {name: part for name, part in vars(self).items() if isinstance(part, Tensor)}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], n_inputs: int) -> "Steps":
        """The steps that ``tensors`` came from."""
        return cls(n_inputs, **tensors)

    def fault(self) -> str | None:
        """What does not fit together, or None."""
        places = torch.cat([self.raw, self.column])
        if not len(places):
            return "steps of no columns"
        if not bool(((places >= 0) & (places < self.n_inputs)).all()):
            return "steps of columns that are not there"
        if not bool((self.raw[1:] > self.raw[:-1]).all()):
            return "raw numbers that are not in the order of their columns"
        numbers = (self.low, self.high, self.mean, self.scale)
        if {part.shape for part in numbers} != {self.column.shape}:
            return "steps that are not described one by one"
        if self.inside is not None and len(self.inside) != self.n_inputs:
            return "steps behind other directions"
        if not all(bool(part.isfinite().all()) for part in numbers):
            return "steps that are not finite"
        rises = bool((self.high > self.low).all()) and bool((self.scale > 0).all())
        return None if rises else "steps that do not rise"


def _borders(
    column: Float[Tensor, " n"], mass: Float[Tensor, " n"], most: int
) -> Float[Tensor, " c"]:
    """Where steps of a column begin and end: its values, or quantiles that are numbers of it."""
    values, order = column.sort()
    mass = mass[order]
    is_last = torch.ones_like(values, dtype=torch.bool)
    is_last[:-1] = values[1:] > values[:-1]
    distinct, upto = values[is_last], mass.cumsum(0)[is_last]
    if len(distinct) > most + 1:
        levels = torch.linspace(0, 1, most + 1, dtype=upto.dtype, device=upto.device)
        places = torch.searchsorted(upto, levels * upto[-1] * (1 - 1e-12))
        distinct = distinct[places.clamp_max(len(distinct) - 1).unique()]
    apart = torch.ones_like(distinct, dtype=torch.bool)
    apart[1:] = distinct[1:] - distinct[:-1] > NEAREST
    return distinct[apart]
