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
    draw = torch.randn(n_prototypes, n_outputs, generator=generator)
    return draw.mul_(n_outputs**-0.5)


def balanced_groups(n_prototypes: int, n_groups: int) -> Int[Tensor, " p"]:
    """0, 1, ..., k-1, 0, 1, ...: the group of rows that each prototype starts in."""
    return torch.arange(n_prototypes) % n_groups


def pick_rows(
    X: Float[Tensor, "n d"],
    wanted: Int[Tensor, " p"],
    groups: Int[Tensor, " n"],
    generator: Generator,
    weight: Float[Tensor, " n"] | None = None,
) -> Int[Tensor, " p"]:
    """For each prototype a row of the group it wants, without repeats while the group lasts.

    The rows of a group are put in order along a random direction, and picked at equal distances
    from a random place on, where a row is as long as its weight says. So they cover the group; a
    row of weight two is as good as the same row twice, and one of weight zero is never picked. A
    group without rows picks from all.
    """
    direction = torch.randn(X.shape[1], generator=generator, dtype=torch.float64).to(X)
    wanted = wanted.cpu()
    n_groups = max(int(wanted.max()), int(groups.max())) + 1
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
    chosen = wanted.to(device)
    first, last = edges[chosen], edges[chosen + 1] - 1
    upto = torch.cat([torch.zeros(1, device=device), mass[order]]).double().cumsum(0)
    turn, asked = _turns(wanted)
    share = ((starts[wanted] + turn) / asked).to(device)
    places = upto[first] + share * (upto[last + 1] - upto[first])
    at = torch.searchsorted(upto, places, right=True) - 1
    picked = order[at.clamp(first, last.clamp_min(first)).clamp_max(len(order) - 1)]
    # a rare class may have no row left after the hold-out
    instead = along[(share * len(along)).long().clamp_max(len(along) - 1)]
    return torch.where(last < first, instead, picked)


def _turns(wanted: Int[Tensor, " p"]) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"]]:
    """For each prototype how many before it want the same group, and how many do in all."""
    wanted = wanted.cpu()
    same = wanted[:, None] == wanted
    return same.tril(-1).sum(1), same.sum(1)
