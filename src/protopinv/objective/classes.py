"""One class for each row, by softmax and cross-entropy."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from protopinv.objective.objective import Judged, Knob, Objective, Outputs


@dataclass(frozen=True)
class Classes(Objective):
    """Targets are the numbers of the classes, or shares of all of them once rows are mixed."""

    labels: NDArray[Any] = field(repr=False)
    label_smoothing: Knob = 0.0

    kernel = "softmax"
    measure = "accuracy"

    @classmethod
    def of(cls, y: NDArray[Any]) -> "Classes":
        """The classes that appear, sorted."""
        return cls(np.unique(y))

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

    def under(self, knobs: Mapping[str, Any]) -> "Classes":
        """With label smoothing."""
        return replace(self, label_smoothing=knobs["label_smoothing"])

    def first_outputs(
        self,
        wanted: Int[Tensor, " p"],
        targets: Shaped[Tensor, "p *target"],  # noqa: ARG002
    ) -> Float[Tensor, "p k"]:
        """One-hot."""
        return one_hot(wanted, self.n_outputs).float()

    def for_projection(self, targets: Shaped[Tensor, "n *target"]) -> Float[Tensor, "n q"]:
        """One column a class."""
        return one_hot(targets, self.n_outputs).double()

    def judge(self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]) -> Judged:
        """-log p(class); the gradient is probabilities less what they should be."""
        m, k, n = outputs.shape
        logs = torch.log_softmax(outputs, dim=1)
        gradient = logs.exp()
        smoothing, smooths = _by_member(self.label_smoothing, outputs)
        if targets.ndim == 1:
            chosen = targets.expand(m, 1, n)
            plain = logs.gather(1, chosen)[:, 0].neg_()
            gradient.scatter_add_(1, chosen, (smoothing - 1).expand(m, 1, n))
        else:
            plain = (logs * targets.T).sum(1).neg_()
            gradient.sub_(targets.T * (1 - smoothing))
        if not smooths:
            return Judged(plain, gradient, plain)
        gradient.sub_(smoothing / k)
        spread = logs.mean(1)
        losses = torch.addcmul(plain, plain + spread, smoothing[:, 0], value=-1)
        return Judged(losses, gradient, plain)

    def scores(
        self, outputs: Outputs, targets: Shaped[Tensor, "n *target"]
    ) -> Float[Tensor, "m n"]:
        """1 for a right answer: no other output is larger. ``argmax`` would take 30 times as long."""
        m, _, n = outputs.shape
        right = outputs.gather(1, self.groups(targets).expand(m, 1, n))[:, 0]
        return (right >= outputs.amax(1)).to(outputs.dtype)

    def constant(
        self, targets: Shaped[Tensor, "n *target"], weight: Float[Tensor, " n"]
    ) -> Float[Tensor, " k"]:
        """The logarithm of the share of each class."""
        shares = weight.new_zeros(self.n_outputs).index_add_(0, targets, weight)
        return shares.clamp_min(torch.finfo(weight.dtype).tiny).log()

    def mixed(
        self,
        targets: Shaped[Tensor, "n *target"],
        others: Shaped[Tensor, "n *target"],
        share: Float[Tensor, "n 1"],
    ) -> Float[Tensor, "n k"]:
        """Shares of both classes."""
        eye = torch.eye(self.n_outputs, dtype=share.dtype, device=share.device)
        return eye[targets].lerp(eye[others], share)


def _by_member(knob: Knob, like: Outputs) -> tuple[Float[Tensor, "_ 1 1"], bool]:
    """A knob that outputs can be multiplied with, and whether it is anything but zero."""
    if isinstance(knob, Tensor):
        return knob.to(like)[:, None, None], True
    return like.new_full((1, 1, 1), knob), knob != 0
