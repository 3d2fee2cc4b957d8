"""Tail compression: prices, counts and rates with their tails brought in, as a network likes them.

``Squash`` bends columns with heavy tails only, and slowly: the largest number stays the largest by
far. ``Clip`` bends every column towards a limit, so that no row stands out much.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from protopinv.features.moments import beyond_rounding

# A column is squashed where the mean fourth power of its standard scores is larger: 3 for a normal
# distribution, 9 for an exponential one.
HEAVY_TAIL = 10.0
# The middle half of a normal distribution is so many standard deviations wide.
MIDDLE_HALF = 1.35
# What is clipped stays within so many widths of the centre.
LIMIT = 3.0
# Beyond this sinh would not fit in a float64 with some room to calculate.
FAR = 300.0


@dataclass(frozen=True)
class TailTransform(ABC):
    """x -> curve((x - centre) / width) in the chosen columns; straight near the centre."""

    chosen: Bool[Tensor, " d"]
    centre: Float[Tensor, " d"]
    width: Float[Tensor, " d"]

    # Whether columns without a heavy tail are left alone.
    heavy_only: ClassVar[bool]

    @abstractmethod
    def curve(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Rising, and the identity near zero."""

    @abstractmethod
    def uncurved(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The inverse of ``curve``."""

    @classmethod
    def fit(
        cls, X: Float[Tensor, "n d"], weight: Float[Tensor, " n"] | None = None
    ) -> "TailTransform | None":
        """A transform around medians, as wide as the middle half of a column; None without any.

        Columns of two values are left alone: bent or not, they are the same once they are scaled.
        So are those that do not vary, and those of numbers that are too large to be squared.
        """
        mass = X.new_ones(len(X)) if weight is None else weight
        share = mass / mass.sum()
        mean = share @ X
        deviation = (share @ (X - mean).square()).sqrt()
        two_values = ((X.amin(0) == X) | (X.amax(0) == X)).all(0)
        varies = beyond_rounding(deviation, mean, float(len(X)))
        chosen = ~two_values & varies & deviation.isfinite()
        if cls.heavy_only:
            chosen &= share @ ((X - mean) / deviation).pow(4) > HEAVY_TAIL
        if not bool(chosen.any()):
            return None
        low, centre, high = weighted_quantiles(X, share, (0.25, 0.5, 0.75))
        middle = (high - low) / MIDDLE_HALF
        # half of the values may be one and the same: then those that differ from it tell the width,
        # by their median, so that a few absurd ones have no say
        apart = (X - centre).abs()
        rounding = 1e-12 * torch.maximum(low.abs(), high.abs())
        same = share @ (apart <= rounding).to(apart.dtype)
        (typical,) = weighted_quantiles(apart, share, [(1 + same) / 2])
        width = torch.where(middle > rounding, middle, typical)
        return cls(chosen, centre, torch.where(chosen, width, 1.0))

    @property
    def n_inputs(self) -> int:
        """Features that go in."""
        return len(self.chosen)

    @property
    def n_outputs(self) -> int:
        """Features that come out."""
        return len(self.chosen)

    @property
    def n_numbers(self) -> int:
        """Numbers that must be stored."""
        return 2 * int(self.chosen.sum())

    def features(self, X: Tensor) -> Float[Tensor, "n d"]:
        """Rows of any number type, bent, in float64."""
        return self(X.double())

    def __call__(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Rows, bent, in the precision of the transform."""
        return torch.where(self.chosen, self.curve((X - self.centre) / self.width), X)

    def restored(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The rows that ``features`` makes Z of."""
        Z = Z.double()
        return torch.where(self.chosen, self.centre + self.width * self.uncurved(Z), Z)

    def to(self, device: torch.device | str) -> "TailTransform":
        """The transform on another device."""
        return self.from_tensors({name: t.to(device) for name, t in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        return {"chosen": self.chosen, "centre": self.centre, "width": self.width}

    def widened(self, places: Int[Tensor, " d"], n: int) -> "TailTransform":
        """Column i is column ``places[i]`` of n; others are left alone."""
        chosen = self.chosen.new_zeros(n).index_copy_(0, places, self.chosen)
        centre = self.centre.new_zeros(n).index_copy_(0, places, self.centre)
        width = self.width.new_ones(n).index_copy_(0, places, self.width)
        return type(self)(chosen, centre, width)

    def fault(self) -> str | None:
        """What does not fit together, or None."""
        if self.chosen.dtype != torch.bool or len({t.shape for t in self.tensors().values()}) != 1:
            return "the bent columns are not described one by one"
        usable = (self.width > 0) & self.width.isfinite() & self.centre.isfinite()
        return None if bool(usable.all()) else "a bent column without a width"

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "TailTransform":
        """The transform that ``tensors`` came from."""
        return cls(tensors["chosen"], tensors["centre"], tensors["width"])


class Squash(TailTransform):
    """asinh of columns with heavy tails: grows as the logarithm far from the centre."""

    heavy_only = True

    def curve(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Of asinh."""
        return torch.asinh(Z)

    def uncurved(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Of sinh; finite, for prototypes may lie anywhere."""
        return torch.sinh(Z.clamp(-FAR, FAR))


class Clip(TailTransform):
    """z / sqrt(1 + (z / 3)^2) of all columns of more than two values: never beyond 3."""

    heavy_only = False

    def curve(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Of a smooth clip."""
        # the same beyond a million, where a square or a quotient might overflow
        Z = Z.clamp(-1e6, 1e6)
        return Z / (1 + (Z / LIMIT).square()).sqrt()

    def uncurved(self, Z: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """z / sqrt(1 - (z / 3)^2) within the limit, and far away beyond it."""
        inside = 1 - (Z / LIMIT).square()
        return torch.where(inside > 1e-12, Z / inside.clamp_min(1e-12).sqrt(), Z.sign() * 1e6)


def weighted_quantiles(
    X: Float[Tensor, "n d"],
    share: Float[Tensor, " n"],
    levels: Sequence[float | Float[Tensor, " d"]],
) -> list[Float[Tensor, " d"]]:
    """For each level the number that so much of the mass is at or below, of every column.

    A level is the same for all columns, or has a number for each.
    """
    values, order = X.sort(dim=0)
    below = share[order].cumsum(0)
    # the last number is always enough, whatever the rounding of the sums
    places = [(below < level * (1 - 1e-12)).sum(0).clamp_max(len(X) - 1) for level in levels]
    return [values.gather(0, place[None])[0] for place in places]
