"""How a bank begins. Everything is drawn on the host, so that all devices start alike."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from protopinv.bank.bank import Bank


def start_bank(
    inputs: Float[Tensor, "p d"],
    outputs: Float[Tensor, "p k"],
    *,
    hidden_sizes: Sequence[int],
    hidden_scale: float,
    ridge: Sequence[float],
    learn_ridge: Sequence[bool],
    generator: Generator,
) -> Bank:
    """The given inputs and outputs, normal hidden targets, raw ridges that give ``ridge``."""
    draws = [torch.randn(len(inputs), size, generator=generator) for size in hidden_sizes]
    hidden = tuple(hidden_scale * draw.to(inputs) for draw in draws)
    raw = inverse_softplus(torch.tensor(ridge, dtype=torch.float64)).to(inputs)
    learnable = torch.tensor(learn_ridge, dtype=torch.bool, device=inputs.device)
    return Bank(inputs, hidden, outputs.to(inputs), raw, learnable)


def inverse_softplus(value: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """log(exp(v) - 1), written so that it neither overflows nor cancels."""
    return value + torch.log(-torch.expm1(-value))


def balanced_classes(n_prototypes: int, n_classes: int) -> Int[Tensor, " p"]:
    """0, 1, ..., k-1, 0, 1, ...: the class each prototype starts with."""
    return torch.arange(n_prototypes) % n_classes


def balanced_outputs(n_prototypes: int, n_classes: int) -> Float[Tensor, "p k"]:
    """One-hot rows of balanced classes."""
    return torch.nn.functional.one_hot(balanced_classes(n_prototypes, n_classes), n_classes).float()


def normal_outputs(n_prototypes: int, n_classes: int, generator: Generator) -> Float[Tensor, "p k"]:
    """Normal draws with the mean square of one-hot rows."""
    draw = torch.randn(n_prototypes, n_classes, generator=generator)
    return draw.mul_(n_classes**-0.5)


def normal_inputs(
    n_prototypes: int, X: Float[Tensor, "n d"], generator: Generator
) -> Float[Tensor, "p d"]:
    """Normal draws with the overall standard deviation of the rows."""
    scale = X.square().mean().sqrt()
    return torch.randn(n_prototypes, X.shape[1], generator=generator).to(X) * scale


def stratified_inputs(
    classes: Int[Tensor, " p"],
    X: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    generator: Generator,
) -> Float[Tensor, "p d"]:
    """For each prototype a training row of its class, without repeats while the class lasts."""
    # Rows are compared as an array: the threads of torch take longer to wake up than this takes.
    there = labels.cpu().numpy()
    chosen = torch.empty(len(classes), dtype=torch.long)
    for label in classes.unique().tolist():
        members = torch.from_numpy((there == label).nonzero()[0])
        if len(members) == 0:  # a rare class may have no row left after the hold-out
            members = torch.arange(len(labels))
        slots = (classes == label).nonzero().flatten()
        order = torch.randperm(len(members), generator=generator)
        chosen[slots] = members[order[torch.arange(len(slots)) % len(members)]]
    return X[chosen.to(X.device)]
