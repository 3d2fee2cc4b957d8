"""Several labels at once: each is there or not, by binary cross-entropy."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from protopinv.objective.objective import Judged, Knob, Objective, Outputs


@dataclass(frozen=True)
class Labels(Objective):
    """Targets are 1 where a row has a label and 0 elsewhere, a column a label."""

    n_labels: int
    label_smoothing: Knob = 0.0

    measure = "accuracy of labels"
    are_odds = True

    @property
    def n_outputs(self) -> int:
        """One for each label."""
        return self.n_labels

    def encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """As 32-bit floats."""
        return np.array(y, dtype=np.float32)

    def decode(self, outputs: NDArray[np.float64]) -> NDArray[Any]:
        """1 where a label is likelier there than not."""
        return (outputs > 0).astype(np.int64)

    def describe(self) -> dict[str, Any]:
        """The number of labels."""
        return {"n_labels": self.n_labels}

    def under(self, *, label_smoothing: float, loss: str) -> "Labels":  # noqa: ARG002
        """With label smoothing."""
        return replace(self, label_smoothing=label_smoothing)

    def first_outputs(
        self,
        wanted: Int[Tensor, " p"],  # noqa: ARG002
        targets: Shaped[Tensor, "p *target"],
    ) -> Float[Tensor, "p k"]:
        """1 and -1: the output 0 stands for even odds."""
        return 2 * targets.float() - 1

    def for_projection(self, targets: Shaped[Tensor, "n *target"]) -> Float[Tensor, "n q"]:
        """The labels themselves."""
        return targets.double()

    def judge(self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]) -> Judged:
        """log(1 + e^z) - t z, the mean over labels; its gradient is sigmoid(z) - t."""
        wanted = targets.T.to(outputs.dtype)
        above = softplus(outputs)
        plain = (above - wanted * outputs).mean(1)
        chance = torch.sigmoid(outputs)
        knob = self.label_smoothing
        if isinstance(knob, float | int) and knob == 0:
            return Judged(plain, chance.sub_(wanted).div_(self.n_labels), plain)
        smoothing = knob.to(outputs).view(-1, 1, 1) if isinstance(knob, Tensor) else knob
        wanted = wanted * (1 - smoothing) + smoothing / 2
        losses = (above - wanted * outputs).mean(1)
        return Judged(losses, chance.sub_(wanted).div_(self.n_labels), plain)

    def scores(
        self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]
    ) -> Float[Tensor, "m n"]:
        """The share of labels that are right."""
        return ((outputs > 0) == (targets.T > 0.5)).to(outputs.dtype).mean(1)

    def constant(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, " k"]:
        """The logarithm of the odds of each label, smoothed as labels are."""
        knob = self.label_smoothing
        smoothing = 0.0 if isinstance(knob, Tensor) else knob
        shares = (weight @ targets.to(weight)) * (1 - smoothing) + smoothing / 2
        odds: Tensor = torch.special.logit(shares, eps=1e-12)
        return odds
