"""One class a row, by softmax and cross-entropy, or several labels, by binary cross-entropy."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from protopinv.objective.objective import Judged, Objective, Outputs

# Targets of up to so many numbers are written out.
DENSE_NUMBERS = 2**18


@dataclass(frozen=True)
class Classes(Objective):
    """Targets are the numbers of the classes, or shares of all of them once rows are mixed."""

    labels: NDArray[Any] = field(repr=False)
    label_smoothing: float = 0.0

    kernel = "softmax"
    measure = "accuracy"
    are_odds = True

    @property
    def n_outputs(self) -> int:
        """One for each class."""
        return len(self.labels)

    @property
    def n_groups(self) -> int:
        """One for each class."""
        return len(self.labels)

    def groups(self, targets: Shaped[Tensor, "n *target"]) -> Int[Tensor, " n"]:
        """The class itself."""
        return targets if targets.ndim == 1 else targets.argmax(1)

    def encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels, all of them known, to their numbers."""
        return np.searchsorted(self.labels, y)

    def decode(self, outputs: NDArray[np.float64]) -> NDArray[Any]:
        """The most likely class of each row."""
        best: NDArray[Any] = self.labels[outputs.argmax(axis=1)]
        return best

    def describe(self) -> dict[str, Any]:
        """The labels and their type."""
        return {"classes": self.labels.tolist(), "classes_dtype": self.labels.dtype.str}

    def first_outputs(
        self,
        groups: Int[Tensor, " p"],
        targets: Shaped[Tensor, "p *target"],  # noqa: ARG002
    ) -> Float[Tensor, "p k"]:
        """One-hot."""
        return one_hot(groups, self.n_outputs).float()

    def for_projection(self, targets: Shaped[Tensor, "n *target"]) -> Float[Tensor, "n q"]:
        """One column a class."""
        return one_hot(targets, self.n_outputs).double()

    def dense(
        self, targets: Shaped[Tensor, "n *target"], dtype: torch.dtype
    ) -> Shaped[Tensor, "n *same"]:
        """Shares of the classes, while these are few numbers on a CPU: nothing is looked up."""
        few = len(targets) * self.n_outputs <= DENSE_NUMBERS
        if targets.ndim > 1 or targets.is_cuda or not few:
            return targets
        return one_hot(targets, self.n_outputs).to(dtype)

    def judge(self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]) -> Judged:
        """-log p(class); the gradient is probabilities less what they should be."""
        m, k, n = outputs.shape
        logs = torch.log_softmax(outputs, dim=1)
        gradient = logs.exp()
        smoothing = self.label_smoothing
        if targets.ndim == 1:
            chosen = targets.expand(m, 1, n)
            plain = logs.gather(1, chosen)[:, 0].neg_()
            share = gradient.new_full((1, 1, 1), smoothing - 1)
            gradient.scatter_add_(1, chosen, share.expand(m, 1, n))
        else:
            plain = (logs * targets.T).sum(1).neg_()
            gradient.sub_(targets.T, alpha=1 - smoothing)
        if smoothing == 0:
            return Judged(plain, gradient, plain)
        gradient.sub_(smoothing / k)
        losses = torch.add(plain, plain + logs.mean(1), alpha=-smoothing)
        return Judged(losses, gradient, plain)

    def scores(
        self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]
    ) -> Float[Tensor, "m n"]:
        """1 for a right prediction: no output is larger. ``argmax`` would take 30 times as long."""
        m, _, n = outputs.shape
        right = outputs.gather(1, self.groups(targets).expand(m, 1, n))[:, 0]
        return (right >= outputs.amax(1)).to(outputs.dtype)

    def constant(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, " k"]:
        """The logarithm of the share of each class, smoothed as labels are."""
        shares = weight.new_zeros(self.n_outputs).index_add_(0, self.groups(targets), weight)
        shares = shares.lerp(torch.full_like(shares, 1 / len(shares)), self.label_smoothing)
        return shares.clamp_min(torch.finfo(weight.dtype).tiny).log()

    def mixed(
        self,
        targets: Shaped[Tensor, "n *target"],
        others: Shaped[Tensor, "n *target"],
        share: Float[Tensor, "n 1"],
    ) -> Float[Tensor, "n k"]:
        """Shares of both classes."""
        if targets.ndim > 1:
            return targets.lerp(others, share.to(targets))
        eye = torch.eye(self.n_outputs, dtype=share.dtype, device=share.device)
        return eye[targets].lerp(eye[others], share)


@dataclass(frozen=True)
class Labels(Objective):
    """Targets are 1 where a row has a label and 0 elsewhere, a column a label."""

    n_labels: int
    label_smoothing: float = 0.0

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

    def first_outputs(
        self,
        groups: Int[Tensor, " p"],  # noqa: ARG002
        targets: Shaped[Tensor, "p *target"],
    ) -> Float[Tensor, "p k"]:
        """1 and -1: the output 0 stands for even odds."""
        return 2 * targets.float() - 1

    def for_projection(self, targets: Shaped[Tensor, "n *target"]) -> Float[Tensor, "n q"]:
        """The labels themselves."""
        return targets.double()

    def judge(self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]) -> Judged:
        """log(1 + e^z) - t z, the mean over labels; its gradient is sigmoid(z) - t."""
        present = targets.T.to(outputs.dtype)
        above = softplus(outputs)
        losses = plain = (above - present * outputs).mean(1)
        if self.label_smoothing > 0:
            present = present * (1 - self.label_smoothing) + self.label_smoothing / 2
            losses = (above - present * outputs).mean(1)
        gradient = torch.sigmoid(outputs).sub_(present).div_(self.n_labels)
        return Judged(losses, gradient, plain)

    def scores(
        self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]
    ) -> Float[Tensor, "m n"]:
        """The share of labels that are right."""
        return ((outputs > 0) == (targets.T > 0.5)).to(outputs.dtype).mean(1)

    def constant(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, " k"]:
        """The logarithm of the odds of each label, smoothed as labels are."""
        smoothing = self.label_smoothing
        shares = (weight @ targets.to(weight)) * (1 - smoothing) + smoothing / 2
        odds: Tensor = torch.special.logit(shares, eps=1e-12)
        return odds
