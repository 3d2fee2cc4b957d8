"""What the data pass minimises: a sum over rows, and a score that says how good a bank is."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross-entropy on integer labels; the score is the number of right answers."""

    label_smoothing: float = 0.0

    def total(
        self, outputs: Float[Tensor, "n k"], targets: Int[Tensor, " n"] | Float[Tensor, "n k"]
    ) -> Float[Tensor, ""]:
        """The loss summed over rows; targets are labels, or shares of classes."""
        return cross_entropy(
            outputs, targets, reduction="sum", label_smoothing=self.label_smoothing
        )

    def total_and_gradient(
        self,
        outputs: Float[Tensor, "n k"],
        targets: Int[Tensor, " n"] | Float[Tensor, "n k"],
        scale: float = 1.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "n k"]]:
        """``scale`` times the same, and its gradient: probabilities less what they should be.

        Classes lie first in here: with few of them that is several times faster on a CPU.
        """
        logs = torch.log_softmax(outputs.T.contiguous(), dim=0)
        spread = self.label_smoothing / len(logs)
        gradient = logs.exp()
        if spread:
            gradient.sub_(spread)
        if targets.ndim == 1:
            chosen = targets[None]
            total = (self.label_smoothing - 1) * logs.gather(0, chosen).sum()
            gradient.scatter_add_(
                0, chosen, gradient.new_full(chosen.shape, self.label_smoothing - 1)
            )
        else:
            total = (self.label_smoothing - 1) * (logs * targets.T).sum()
            gradient.sub_(targets.T, alpha=1 - self.label_smoothing)
        total = total - spread * logs.sum() if spread else total
        return total * scale, gradient.mul_(scale).T

    def score(self, outputs: Float[Tensor, "n k"], targets: Int[Tensor, " n"]) -> Int[Tensor, ""]:
        """The score summed over rows: 1 for a right answer."""
        return (outputs.argmax(1) == targets).sum()
