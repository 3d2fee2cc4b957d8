"""The protocol of an objective: targets, loss with its gradient, score, and how outputs begin."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

# Temperature scaling multiplies outputs by this factor at most, and divides by it at most.
SHARPEST = 4.0

# Outputs lie before rows in here: with few of them that is several times faster on a CPU.
Outputs = Float[Tensor, "m k n"]


@dataclass(frozen=True)
class Judged:
    """Losses of outputs and their gradient, row by row, for every member of a population.

    ``gradient`` is that of ``losses``, what is minimised. ``plain`` is the loss
    without label smoothing, by which held-out rows are judged.
    """

    losses: Float[Tensor, "m n"]
    gradient: Outputs
    plain: Float[Tensor, "m n"]


@dataclass(frozen=True)
class Objective(ABC):
    """One kind of target. ``kernel`` names the fused kernel for the last layer that may serve it.

    ``measure`` says what ``scores`` mean once they are averaged over rows.
    """

    kernel: ClassVar[str | None] = None
    measure: ClassVar[str]
    # Whether outputs are the logarithms of odds, which temperature scaling calibrates.
    are_odds: ClassVar[bool] = False

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Outputs of the network."""

    @property
    def n_groups(self) -> int:
        """Kinds of rows that prototypes should speak for evenly; 1 where there are none."""
        return 1

    def groups(self, targets: Shaped[Tensor, "n *target"]) -> Int[Tensor, " n"]:
        """The kind of each row, for a balanced start, folds and a hold-out."""
        return torch.zeros(len(targets), dtype=torch.long)

    @abstractmethod
    def encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """Targets as users give them, checked, to what the core works with."""

    @abstractmethod
    def decode(self, outputs: NDArray[np.float64]) -> NDArray[Any]:
        """Predictions as users expect them, from outputs of the folded network, a row each."""

    def describe(self) -> dict[str, Any]:
        """What a file must hold to make this objective again, as plain JSON values."""
        return {}

    def under(self, *, label_smoothing: float, loss: str) -> "Objective":
        """This objective with what it takes of the hyperparameters."""
        settings = {"label_smoothing": label_smoothing, "loss": loss}
        return replace(self, **{name: settings[name] for name in settings if hasattr(self, name)})

    @abstractmethod
    def first_outputs(
        self, groups: Int[Tensor, " p"], targets: Shaped[Tensor, "p *target"]
    ) -> Float[Tensor, "p k"]:
        """Outputs of prototypes that start as rows with these targets, in these groups."""

    @abstractmethod
    def for_projection(self, targets: Shaped[Tensor, "n *target"]) -> Float[Tensor, "n q"]:
        """What PLS correlates features with, in float64."""

    def dense(
        self,
        targets: Shaped[Tensor, "n *target"],
        dtype: torch.dtype,  # noqa: ARG002
    ) -> Shaped[Tensor, "n *same"]:
        """Targets in the form that is fastest to judge by."""
        return targets

    @abstractmethod
    def judge(self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]) -> Judged:
        """Loss and gradient of every row."""

    @abstractmethod
    def scores(
        self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]
    ) -> Float[Tensor, "m n"]:
        """How good each prediction is: the mean over rows is the score."""

    @abstractmethod
    def constant(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, " k"]:
        """The best outputs that do not look at the row; weights sum to one."""

    def mixed(
        self,
        targets: Shaped[Tensor, "n *target"],
        others: Shaped[Tensor, "n *target"],
        share: Float[Tensor, "n 1"],
    ) -> Float[Tensor, "n k"]:
        """(1 - share) target + share of another row's."""
        return targets.lerp(others, share.to(targets))

    def sharpness(
        self,
        outputs: Outputs,
        targets: Shaped[Tensor, "n *target"],
        weight: Float[Tensor, " n"],
    ) -> tuple[float, float]:
        """Temperature scaling: the factor of outputs with the lowest loss, and that loss.

        1 and infinity for objectives without probabilities, and without rows.
        """
        if not self.are_odds or float(weight.sum()) <= 0:
            return 1.0, math.inf
        share = (weight / weight.sum()).to(outputs.dtype)

        def loss(power: float) -> float:
            judged = self.judge(outputs * SHARPEST**power, targets)
            return float((judged.plain * share).sum())

        if not math.isfinite(loss(0.0)):  # outputs of a failed training
            return 1.0, math.inf
        best = minimize_scalar(loss, bounds=(-1, 1), method="bounded")
        return float(SHARPEST**best.x), float(best.fun)

    def fold(self, W: Float[Tensor, "_ k"]) -> Float[Tensor, "_ k"]:
        """The last layer with outputs in the units that users know."""
        return W

    def constant_loss(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"] | None
    ) -> float:
        """The mean loss of the best constant: what a network must beat to have learned anything."""
        mass = torch.ones(len(targets)) if weight is None else weight
        mass = (mass / mass.sum()).to(targets.device, torch.float64)
        outputs = self.constant(targets, mass)[None, :, None].expand(-1, -1, len(targets))
        return float(self.judge(outputs.contiguous(), targets).losses[0] @ mass)
