"""The bank of prototypes, the only numbers that are trained: what it holds, and how it begins.

First banks are drawn on the host, so that all devices start alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
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
        constant = int((~self.learnable_ridge).sum())
        return sum(tensor.numel() for tensor in self.trained) - constant

    def member(self, number: int) -> "Bank":
        """One bank of a population, without the leading axis."""
        tensors = [tensor[number] for tensor in self.trained]
        return self.with_trained(tensors, self.learnable_ridge[number])

    def members(self, chosen: Sequence[int]) -> "Bank":
        """Some banks of a population, as a population."""
        return population([self.member(number) for number in chosen])

    def snapshot(self) -> "Bank":
        """A copy that shares no memory with this bank."""
        return self.with_trained([tensor.detach().clone() for tensor in self.trained])

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Bank":
        """The bank on another device, or in another precision."""
        tensors = [tensor.detach().to(device, dtype) for tensor in self.trained]
        return self.with_trained(tensors, self.learnable_ridge.to(device))

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


def population(banks: Sequence[Bank]) -> Bank:
    """Banks of one shape as the members of a population."""
    together = (torch.stack(tensors) for tensors in zip(*(b.trained for b in banks), strict=True))
    learnable = torch.stack([bank.learnable_ridge for bank in banks])
    return banks[0].with_trained(list(together), learnable)


def start_bank(
    inputs: Float[Tensor, "p d"],
    outputs: Float[Tensor, "p k"],
    *,
    hidden_sizes: Sequence[int],
    hidden_scale: float,
    ridge: Sequence[float],
    learn_ridge: Sequence[bool],
    generator: Generator,
    learn_scale: bool = False,
) -> Bank:
    """The given inputs and outputs, normal hidden targets, raw ridges that give ``ridge``."""
    draws = [torch.randn(len(inputs), size, generator=generator) for size in hidden_sizes]
    hidden = tuple(hidden_scale * draw.to(inputs) for draw in draws)
    raw = inverse_softplus(torch.tensor(ridge, dtype=torch.float64)).to(inputs)
    learnable = torch.tensor(learn_ridge, dtype=torch.bool, device=inputs.device)
    scale = torch.ones_like(inputs[0]) if learn_scale else None
    return Bank(inputs, hidden, outputs.to(inputs), raw, learnable, scale)


def inverse_softplus(value: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log(exp(v) - 1), written so that it neither overflows nor cancels."""
    return value + torch.log(-torch.expm1(-value))


def normal_inputs(
    n_prototypes: int,
    X: Float[Tensor, "n d"],
    generator: Generator,
    weight: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, "p d"]:
    """Normal draws with the overall standard deviation of the rows, each by its weight."""
    squares = X.square().mean(1)
    mean = squares.mean() if weight is None else (squares @ weight.to(squares)) / weight.sum()
    return torch.randn(n_prototypes, X.shape[1], generator=generator).to(X) * mean.sqrt()


def normal_outputs(n_prototypes: int, n_outputs: int, generator: Generator) -> Float[Tensor, "p k"]:
    """Normal draws with the mean square of one-hot rows."""
    return torch.randn(n_prototypes, n_outputs, generator=generator).mul_(n_outputs**-0.5)


def balanced_groups(n_prototypes: int, n_groups: int) -> Int[Tensor, " p"]:
    """0, 1, ..., k-1, 0, 1, ...: the group of rows that each prototype starts in."""
    return torch.arange(n_prototypes) % n_groups


def pick_rows(
    X: Float[Tensor, "n d"],
    asked: Int[Tensor, " p"],
    groups: Int[Tensor, " n"],
    generator: Generator,
    weight: Float[Tensor, " n"] | None = None,
) -> Int[Tensor, " p"]:
    """For each prototype a row of the group it asks for, without repeats while the group lasts.

    The rows of a group are put in order along a random direction, and picked at equal distances
    from a random place on, where a row is as long as its weight says. So they cover the group; a
    row of weight two is as good as the same row twice, and one of weight zero is never picked. A
    group without rows picks from all.
    """
    direction = torch.randn(X.shape[1], generator=generator, dtype=torch.float64).to(X)
    asked = asked.cpu()
    n_groups = max(int(asked.max()), int(groups.max())) + 1
    starts = torch.rand(n_groups, generator=generator, dtype=torch.float64)
    # All rows are handled where they are: a GPU does that at once, and waking the threads of a
    # large host takes longer than the rest of a start.
    device = X.device
    groups, along = groups.to(device), (X @ direction).argsort(stable=True)
    mass = torch.ones_like(along) if weight is None else weight.to(device)
    if weight is not None:
        along = along[mass[along] > 0]
    order = along[groups[along].argsort(stable=True)]
    edges = torch.searchsorted(groups[order], torch.arange(n_groups + 1, device=device))
    chosen = asked.to(device)
    first, last = edges[chosen], edges[chosen + 1] - 1
    upto = torch.cat([torch.zeros(1, device=device), mass[order]]).double().cumsum(0)
    # of those that ask for the same group, how many come before, and how many there are
    same = asked[:, None] == asked
    share = ((starts[asked] + same.tril(-1).sum(1)) / same.sum(1)).to(device)
    places = upto[first] + share * (upto[last + 1] - upto[first])
    at = torch.searchsorted(upto, places, right=True) - 1
    picked = order[at.clamp(first, last.clamp_min(first)).clamp_max(len(order) - 1)]
    # a rare class may have no row left after the hold-out
    instead = along[(share * len(along)).long().clamp_max(len(along) - 1)]
    return torch.where(last < first, instead, picked)
