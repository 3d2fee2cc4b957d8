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
    which of them are trained. ``scale`` holds one factor a feature, where these are learned: rows
    enter the network as scale * x.

    All tensors may have a leading axis, one bank for each member of a population.
    """

    inputs: Float[Tensor, "*members p d"]
    hidden: tuple[Float[Tensor, "*members p _"], ...]
    outputs: Float[Tensor, "*members p k"]
    raw_ridge: Float[Tensor, "*members layers"]
    learnable_ridge: Bool[Tensor, "*members layers"]
    scale: Float[Tensor, "*members d"] | None = None

    @property
    def ridge(self) -> Float[Tensor, "*members layers"]:
        """softplus(raw_ridge), a constant where it is not learnable."""
        return softplus(torch.where(self.learnable_ridge, self.raw_ridge, self.raw_ridge.detach()))

    @property
    def trained(self) -> tuple[Tensor, ...]:
        """The tensors that Adam updates."""
        scale = () if self.scale is None else (self.scale,)
        return (self.inputs, *self.hidden, self.outputs, self.raw_ridge, *scale)

    @property
    def n_members(self) -> int:
        """Banks in here: one, unless there is a leading axis."""
        return self.inputs.shape[0] if self.inputs.ndim == 3 else 1

    @property
    def n_prototypes(self) -> int:
        """Prototypes of one member."""
        return self.inputs.shape[-2]

    @property
    def n_trained(self) -> int:
        """p (d + h_1 + ... + h_L + k) for every member, its learnable ridges and its scale."""
        matrices = (self.inputs, *self.hidden, self.outputs)
        scale = 0 if self.scale is None else self.scale.numel()
        return sum(matrix.numel() for matrix in matrices) + int(self.learnable_ridge.sum()) + scale

    def member(self, number: int) -> "Bank":
        """One bank of a population, without the leading axis."""
        return self._map(lambda tensor: tensor[number], self.learnable_ridge[number])

    def members(self, chosen: Sequence[int]) -> "Bank":
        """Some banks of a population, as a population."""
        return population([self.member(number) for number in chosen])

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

    def with_trained(
        self, tensors: Sequence[Tensor], learnable: Bool[Tensor, "*_ layers"] | None = None
    ) -> "Bank":
        """A bank of these tensors, in the order of ``trained``; ridges are learnable as here."""
        inputs, *rest = tensors
        scale = None if self.scale is None else rest.pop()
        *hidden, outputs, raw_ridge = rest
        learnable = self.learnable_ridge if learnable is None else learnable
        return Bank(inputs, tuple(hidden), outputs, raw_ridge, learnable, scale)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor under a name, for a file."""
        hidden = {f"hidden.{layer}": H for layer, H in enumerate(self.hidden)}
        scale = {} if self.scale is None else {"scale": self.scale}
        return {
            "inputs": self.inputs,
            **hidden,
            "outputs": self.outputs,
            "raw_ridge": self.raw_ridge,
            "learnable_ridge": self.learnable_ridge,
            **scale,
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Bank":
        """The bank that ``tensors`` came from."""
        n_hidden = tensors["raw_ridge"].shape[-1] - 1
        hidden = tuple(tensors[f"hidden.{layer}"] for layer in range(n_hidden))
        ridge = tensors["raw_ridge"], tensors["learnable_ridge"]
        return cls(tensors["inputs"], hidden, tensors["outputs"], *ridge, tensors.get("scale"))

    def _map(
        self,
        change: Callable[[Tensor], Tensor],
        learnable: Bool[Tensor, "*_ layers"] | None = None,
    ) -> "Bank":
        """A bank of ``change(tensor)`` for every trained tensor."""
        return self.with_trained([change(tensor) for tensor in self.trained], learnable)


def population(banks: Sequence[Bank]) -> Bank:
    """Banks of one shape as the members of a population."""
    together = (torch.stack(tensors) for tensors in zip(*(b.trained for b in banks), strict=True))
    learnable = torch.stack([bank.learnable_ridge for bank in banks])
    return banks[0].with_trained(list(together), learnable)
