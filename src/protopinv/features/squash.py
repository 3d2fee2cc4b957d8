"""Columns with heavy tails, brought in: prices, counts and rates as a network likes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from protopinv.features.moments import beyond_rounding

# A column is squashed where the mean fourth power of its standard scores is larger: 3 for a normal
# distribution, 9 for an exponential one.
HEAVY_TAIL = 10.0
# The middle half of a normal distribution is so many standard deviations wide.
MIDDLE_HALF = 1.35


@dataclass(frozen=True)
class Squash:
    """x -> asinh((x - centre) / width) in the chosen columns; straight near the centre."""

    chosen: Bool[Tensor, " d"]
    centre: Float[Tensor, " d"]
    width: Float[Tensor, " d"]

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
        """Rows of any number type, squashed, in float64."""
        X = X.double()
        return torch.where(self.chosen, torch.asinh((X - self.centre) / self.width), X)

    def to(self, device: torch.device | str) -> "Squash":
        """The same elsewhere."""
        return Squash.from_tensors({name: t.to(device) for name, t in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        return {"chosen": self.chosen, "centre": self.centre, "width": self.width}

    def fault(self) -> str | None:
        """What does not fit together, or None."""
        if self.chosen.dtype != torch.bool or len({t.shape for t in self.tensors().values()}) != 1:
            return "the squashed columns are not described one by one"
        usable = (self.width > 0) & self.width.isfinite() & self.centre.isfinite()
        return None if bool(usable.all()) else "a squashed column without a width"

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Squash":
        """What ``tensors`` came from."""
        return cls(tensors["chosen"], tensors["centre"], tensors["width"])


def fit_squash(X: Float[Tensor, "n d"], weight: Float[Tensor, " n"] | None = None) -> Squash | None:
    """For columns with heavy tails: median, and the width of the middle half; None without any.

    Columns of two values are left alone: bent or not, they are the same once they are scaled.
    """
    mass = X.new_ones(len(X)) if weight is None else weight
    share = mass / mass.sum()
    mean = share @ X
    sd = (share @ (X - mean).square()).sqrt()
    heavy = share @ ((X - mean) / sd).pow(4) > HEAVY_TAIL
    two_values = ((X.amin(0) == X) | (X.amax(0) == X)).all(0)
    chosen = heavy & ~two_values & beyond_rounding(sd, mean, float(len(X)))
    if not bool(chosen.any()):
        return None
    low, centre, high = weighted_quantiles(X, share, (0.25, 0.5, 0.75))
    middle = (high - low) / MIDDLE_HALF
    width = torch.where(middle > 1e-9 * sd, middle, sd)  # half of the values may be one and same
    return Squash(chosen, centre, torch.where(chosen, width, 1.0))


def weighted_quantiles(
    X: Float[Tensor, "n d"], share: Float[Tensor, " n"], levels: Sequence[float]
) -> list[Float[Tensor, " d"]]:
    """For each level the number that so much of the mass is at or below, of every column."""
    values, order = X.sort(dim=0)
    below = share[order].cumsum(0)
    found = []
    for level in levels:
        # the last number is always enough, whatever the rounding of the sums
        at = (below < level * (1 - 1e-12)).sum(0).clamp_max(len(X) - 1)
        found.append(values.gather(0, at[None])[0])
    return found
