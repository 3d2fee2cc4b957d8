"""Banks that grow, shrink, gain inputs and outputs, and what they answer to projected rows."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from protopinv.bank import Bank
from protopinv.network import ACTIVATIONS, Architecture, solve_weights

# Rows that are sent through a network at once, and numbers of banks that are solved at once.
ROWS, NUMBERS = 8_192, 2**23


def through(
    bank: Bank, architecture: Architecture, X: Float[Tensor, "*members n d"]
) -> list[Float[Tensor, "m n _"]]:
    """Rows through the weights of every member: each layer before its activation, outputs last."""
    weights = solve_weights(bank.to("cpu", torch.float64), architecture).weights
    act, layers = ACTIVATIONS[architecture.activation], list[Tensor]()
    for W in (W.to(X) for W in weights):
        layers.append((act(layers[-1]) if layers else X) @ W[:, 1:] + W[:, :1])
    return layers


def answers(
    bank: Bank, architecture: Architecture, Z: Float[Tensor, "n d"]
) -> Float[Tensor, "n k"]:
    """The mean of the outputs of all members, as they are trained: before any unit or sharpness."""
    pieces = (through(bank, architecture, piece)[-1].mean(0) for piece in Z.split(ROWS))
    return torch.cat(list(pieces))


def hidden_of(
    bank: Bank, architecture: Architecture, inputs: Float[Tensor, "m c d"]
) -> tuple[list[Float[Tensor, "m c _"]], Float[Tensor, "m c k"]]:
    """What the hidden targets and outputs of prototypes at ``inputs`` would be, by member."""
    *hidden, outputs = (
        each.to(bank.inputs) for each in through(bank, architecture, inputs.double())
    )
    return hidden, outputs


def grown(
    bank: Bank,
    inputs: Float[Tensor, "m c d"],
    hidden: Sequence[Float[Tensor, "m c _"]],
    outputs: Float[Tensor, "m c k"],
) -> Bank:
    """With more prototypes after those there are."""
    return replace(
        bank,
        inputs=torch.cat([bank.inputs, inputs.to(bank.inputs)], 1),
        hidden=tuple(
            torch.cat([H, more.to(H)], 1) for H, more in zip(bank.hidden, hidden, strict=True)
        ),
        outputs=torch.cat([bank.outputs, outputs.to(bank.outputs)], 1),
    )


def left_with(bank: Bank, kept: Int[Tensor, "m c"]) -> Bank:
    """These prototypes of every member alone."""

    def chosen(tensor: Tensor) -> Tensor:
        return tensor.gather(1, kept[:, :, None].expand(-1, -1, tensor.shape[2]))

    return replace(
        bank,
        inputs=chosen(bank.inputs),
        hidden=tuple(map(chosen, bank.hidden)),
        outputs=chosen(bank.outputs),
    )


def ends_of(bank: Bank) -> tuple[float, float]:
    """How low and how high an output of a prototype is for what it is not, and for what it is."""
    return float(bank.outputs.amin(2).mean()), float(bank.outputs.amax(2).mean())


def with_outputs(bank: Bank, places: Int[Tensor, " k"], n_outputs: int) -> Bank:
    """Output i is output ``places[i]`` of ``n_outputs``; prototypes deny the others."""
    if len(places) == n_outputs and bool((places == torch.arange(n_outputs)).all()):
        return bank
    low, _ = ends_of(bank)
    outputs = bank.outputs.new_full((*bank.outputs.shape[:2], n_outputs), low)
    outputs[:, :, places] = bank.outputs
    return replace(bank, outputs=outputs)


def widened(bank: Bank, places: Int[Tensor, " d"], n_features: int) -> Bank:
    """Feature i is feature ``places[i]`` of ``n_features``; in the others prototypes are zero.

    So is the solved weight of such a feature, and rows are answered as before. (Nearly as before
    with ``normalize_inputs``, whose unit is a mean over features.)
    """
    inputs = bank.inputs.new_zeros(*bank.inputs.shape[:2], n_features)
    inputs[:, :, places] = bank.inputs
    if bank.scale is None:
        return replace(bank, inputs=inputs)
    scale = bank.scale.new_ones(len(bank.scale), n_features)
    scale[:, places] = bank.scale
    return replace(bank, inputs=inputs, scale=scale)


def without_output(bank: Bank, output: int) -> Bank:
    """The same bank, never asked for this output."""
    kept = torch.arange(bank.outputs.shape[2]) != output
    return replace(bank, outputs=bank.outputs[:, :, kept])


def importances(
    bank: Bank, architecture: Architecture, Z: Float[Tensor, "n d"]
) -> Float[Tensor, "m p"]:
    """How far the outputs for these rows move, root mean square, when a prototype is left out."""
    p = bank.n_prototypes
    # row i names all but prototype i
    others = torch.arange(p).expand(p, p)[~torch.eye(p, dtype=torch.bool)].view(p, p - 1)
    size = max(1, NUMBERS // (p * max(bank.inputs.shape[2], *(H.shape[2] for H in bank.hidden))))
    found = []
    for member in range(bank.n_members):
        whole = through(bank.members([member]), architecture, Z)[-1]
        for kept in others.split(size):
            fewer = left_with(bank.members([member] * len(kept)), kept)
            moved = through(fewer, architecture, Z)[-1] - whole
            found.append(moved.double().square().mean((1, 2)).sqrt())
    return torch.cat(found).view(bank.n_members, p)
