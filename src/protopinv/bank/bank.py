"""The bank of prototypes: the only numbers that are trained."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import softplus


@dataclass(frozen=True)
class Bank:
    """p prototypes: inputs (p, d), hidden targets before the activation (p, h_l), outputs (p, k).

    ``raw_ridge`` holds one number a layer and ridge = softplus(raw_ridge); ``learnable_ridge`` says
    which of them are trained.
    """

    inputs: Float[Tensor, "p d"]
    hidden: tuple[Float[Tensor, "p _"], ...]
    outputs: Float[Tensor, "p k"]
    raw_ridge: Float[Tensor, " layers"]
    learnable_ridge: Bool[Tensor, " layers"]

    @property
    def ridge(self) -> Float[Tensor, " layers"]:
        """softplus(raw_ridge), a constant where it is not learnable."""
        return softplus(torch.where(self.learnable_ridge, self.raw_ridge, self.raw_ridge.detach()))

    @property
    def trained(self) -> tuple[Tensor, ...]:
        """The tensors that Adam updates."""
        return (self.inputs, *self.hidden, self.outputs, self.raw_ridge)

    @property
    def n_trained(self) -> int:
        """p (d + h_1 + ... + h_L + k), and the learnable ridges."""
        matrices = (self.inputs, *self.hidden, self.outputs)
        return sum(matrix.numel() for matrix in matrices) + int(self.learnable_ridge.sum())

    def leaves(self) -> "Bank":
        """A copy whose tensors collect gradients."""
        return self._map(lambda tensor: tensor.detach().clone().requires_grad_())

    def snapshot(self) -> "Bank":
        """A copy that shares nothing with this bank."""
        return self._map(lambda tensor: tensor.detach().clone())

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Bank":
        """The same bank elsewhere, or in another precision."""
        moved = self._map(lambda tensor: tensor.detach().to(device, dtype))
        return replace(moved, learnable_ridge=self.learnable_ridge.to(device))

    def with_trained(self, tensors: Sequence[Tensor]) -> "Bank":
        """A bank of these tensors, in the order of ``trained``."""
        inputs, *hidden, outputs, raw_ridge = tensors
        return Bank(inputs, tuple(hidden), outputs, raw_ridge, self.learnable_ridge)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        hidden = {f"hidden.{layer}": H for layer, H in enumerate(self.hidden)}
        return {
            "inputs": self.inputs,
            **hidden,
            "outputs": self.outputs,
            "raw_ridge": self.raw_ridge,
            "learnable_ridge": self.learnable_ridge,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Bank":
        """The bank that ``tensors`` came from."""
        n_hidden = len(tensors["raw_ridge"]) - 1
        hidden = tuple(tensors[f"hidden.{layer}"] for layer in range(n_hidden))
        ridge = tensors["raw_ridge"], tensors["learnable_ridge"]
        return cls(tensors["inputs"], hidden, tensors["outputs"], *ridge)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Bank":
        """A bank of ``change(tensor)`` for every trained tensor."""
        return Bank(
            change(self.inputs),
            tuple(map(change, self.hidden)),
            change(self.outputs),
            change(self.raw_ridge),
            self.learnable_ridge,
        )
