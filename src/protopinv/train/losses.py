"""What the data pass minimises: a sum over rows, and a score that says how good a bank is."""

from dataclasses import dataclass

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

    def score(self, outputs: Float[Tensor, "n k"], targets: Int[Tensor, " n"]) -> Int[Tensor, ""]:
        """The score summed over rows: 1 for a right answer."""
        return (outputs.argmax(1) == targets).sum()
