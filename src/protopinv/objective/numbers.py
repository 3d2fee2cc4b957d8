"""One number or several for each row, by squared or Huber loss; scaled inside."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from protopinv.features import weighted_quantiles
from protopinv.objective.objective import Judged, Objective, Outputs

# Beyond so many units of spread an error counts by its size, no longer by its square.
HUBER_FROM = 1.0
# The spread of the middle half of a normal distribution, in standard deviations.
MIDDLE_HALF = 1.349
# Predictions may leave the range of the targets by this share of it.
BEYOND = 0.1


@dataclass(frozen=True)
class Numbers(Objective):
    """Targets are (y - centre) / spread, a column a target.

    ``variance`` is that of the scaled targets: 1, unless centre and spread are robust ones.
    ``is_column``: y has one dimension. Predictions stay between ``low``
    and ``high``, if these are given: a network goes on as a straight line where no row has been,
    so for a row far from all others it could predict any number.
    """

    centre: tuple[float, ...]
    spread: tuple[float, ...]
    variance: tuple[float, ...]
    is_column: bool = True
    loss: str = "squared"
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    measure = "R2"

    @classmethod
    def from_moments(
        cls,
        centre: NDArray[np.float64],
        variance: NDArray[np.float64],
        n: int,
        loss: str,
        *,
        some: tuple[NDArray[np.float64], NDArray[np.float64]],
        is_column: bool,
    ) -> "Numbers":
        """Mean and standard deviation of n rows; for Huber loss median and middle half of ``some``.

        A column that does not vary is only shifted.
        """
        # numbers as equal as rounding allows do not vary
        varies = np.sqrt(variance) > np.finfo(np.float64).eps * np.abs(centre) * np.sqrt(n)
        spread = np.sqrt(np.where(varies, variance, 1.0))
        if loss == "huber":
            columns, mass = (torch.from_numpy(np.ascontiguousarray(part)) for part in some)
            quartiles = weighted_quantiles(columns, mass, (0.25, 0.5, 0.75))
            low, centre, high = (quartile.numpy() for quartile in quartiles)
            middle = (high - low) / MIDDLE_HALF
            spread = np.where(middle > 1e-9 * spread, middle, spread)
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.where(varies, variance, 1.0) / spread**2
        centres, spreads, variances = (tuple(v.tolist()) for v in (centre, spread, scaled))
        return cls(centres, spreads, variances, is_column, loss)

    def bounded_by(self, y: NDArray[np.float64]) -> "Numbers":
        """With predictions near the range of these targets, or of those that bound it already."""
        columns = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        low, high = columns.min(axis=0), columns.max(axis=0)
        beyond = BEYOND * (high - low)
        low, high = low - beyond, high + beyond
        if self.low is not None and self.high is not None:
            low, high = np.minimum(low, self.low), np.maximum(high, self.high)
        return replace(self, low=tuple(low.tolist()), high=tuple(high.tolist()))

    def within(self, other: "Numbers") -> "Numbers":
        """With predictions in the range of these targets or of ``other``, if that has one."""
        if other.low is None or other.high is None or self.low is None or self.high is None:
            return replace(self, low=other.low, high=other.high)
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return replace(self, low=tuple(low.tolist()), high=tuple(high.tolist()))

    @property
    def n_outputs(self) -> int:
        """One for each target."""
        return len(self.centre)

    def encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """Scaled, a column a target."""
        columns = np.asarray(y, dtype=np.float64).reshape(len(y), self.n_outputs)
        scaled: NDArray[Any] = (columns - self.centre) / self.spread
        return scaled

    def decode(self, outputs: NDArray[np.float64]) -> NDArray[Any]:
        """As y came: a list of numbers or a column for each target."""
        if self.low is not None and self.high is not None:
            outputs = np.clip(outputs, self.low, self.high)
        return outputs[:, 0] if self.is_column else outputs

    def describe(self) -> dict[str, Any]:
        """The scaling, the loss, the bounds, and whether there was one column."""
        parts = vars(self).items()
        return {name: list(part) if isinstance(part, tuple) else part for name, part in parts}

    def first_outputs(
        self,
        groups: Int[Tensor, " p"],  # noqa: ARG002
        targets: Shaped[Tensor, "p *target"],
    ) -> Float[Tensor, "p k"]:
        """The targets of the rows that prototypes start as."""
        return targets.clone()

    def for_projection(self, targets: Shaped[Tensor, "n *target"]) -> Float[Tensor, "n q"]:
        """The scaled targets."""
        return targets.double()

    def judge(self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]) -> Judged:
        """The mean over targets of e^2 or, for Huber loss, of 2 |e| - 1 beyond |e| = 1."""
        error = outputs - targets.T.to(outputs.dtype)
        k = outputs.shape[1]
        if self.loss == "squared":
            losses = error.square().mean(1)
            return Judged(losses, error.mul_(2 / k), losses)
        near = error.clamp(-HUBER_FROM, HUBER_FROM)
        losses = (near * (2 * error - near)).mean(1)
        return Judged(losses, near.mul_(2 / k), losses)

    def scores(
        self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]
    ) -> Float[Tensor, "m n"]:
        """1 - e^2 / variance, the mean over targets: R2 with the variance of the training rows."""
        variance = _placed(self.variance, outputs.dtype, outputs.device)
        error = outputs - targets.T.to(outputs.dtype)
        return 1 - (error.square() / variance[:, None]).mean(1)

    def constant(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, " k"]:
        """The mean; for Huber loss the median, which is close to the best and zero by scaling."""
        if self.loss == "huber":
            return weight.new_zeros(self.n_outputs)
        return weight @ targets.to(weight)

    def fold(self, W: Float[Tensor, "_ k"]) -> Float[Tensor, "_ k"]:
        """W spread, and the centre in the bias."""
        scaled = W * _placed(self.spread, W.dtype, W.device)
        scaled[0] += _placed(self.centre, W.dtype, W.device)
        return scaled


@lru_cache(maxsize=64)
def _placed(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The numbers where they are needed; a graph that is captured there may not ask the host."""
    return torch.tensor(numbers, dtype=dtype, device=device)
