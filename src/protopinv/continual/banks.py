"""Banks that grow, shrink, gain inputs and outputs; and their outputs for projected rows."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.model import Model
from protopinv.network import ACTIVATIONS, Architecture, solve_weights

# Rows that are sent through a network at once, and numbers of banks that are solved at once.
ROWS, NUMBERS = 8_192, 2**23
# Drawn rows on which prototypes are weighed.
WEIGHED_ROWS = 500


def through(
    bank: Bank, architecture: Architecture, X: Float[Tensor, "*members n d"]
) -> list[Float[Tensor, "m n _"]]:
    """Rows through the weights of every member: each layer before its activation, outputs last."""
    weights = solve_weights(bank.to("cpu", torch.float64), architecture).weights
    act, layers = ACTIVATIONS[architecture.activation], list[Tensor]()
    for W in (W.to(X) for W in weights):
        layers.append((act(layers[-1]) if layers else X) @ W[:, 1:] + W[:, :1])
    return layers


def mean_outputs(
    bank: Bank, architecture: Architecture, Z: Float[Tensor, "n d"]
) -> Float[Tensor, "n k"]:
    """The mean of the outputs of all members, as they are trained: not calibrated, in no unit."""
    pieces = (through(bank, architecture, piece)[-1].mean(0) for piece in Z.split(ROWS))
    return torch.cat(list(pieces))


def grown(
    bank: Bank,
    architecture: Architecture,
    inputs: Float[Tensor, "m c d"],
    outputs: Float[Tensor, "m c k"] | None = None,
) -> Bank:
    """With prototypes at ``inputs`` after those there are; their targets are the predictions.

    Only ``outputs`` may be others, for classes that the network does not know.
    """
    *hidden, predicted = through(bank, architecture, inputs.double())
    old = (bank.inputs, *bank.hidden, bank.outputs)
    new = (inputs, *hidden, predicted if outputs is None else outputs)
    first, *inner, last = (torch.cat([a, b.to(a)], 1) for a, b in zip(old, new, strict=True))
    return replace(bank, inputs=first, hidden=tuple(inner), outputs=last)


def left_with(bank: Bank, chosen: Int[Tensor, "m c"]) -> Bank:
    """These prototypes of every member alone."""
    inputs, *hidden, outputs = (
        each.gather(1, chosen[:, :, None].expand(-1, -1, each.shape[2]))
        for each in (bank.inputs, *bank.hidden, bank.outputs)
    )
    return replace(bank, inputs=inputs, hidden=tuple(hidden), outputs=outputs)


def ends_of(bank: Bank) -> tuple[float, float]:
    """How low and how high an output of a prototype is for what it is not, and for what it is."""
    return float(bank.outputs.amin(2).mean()), float(bank.outputs.amax(2).mean())


def with_outputs(bank: Bank, places: Int[Tensor, " k"], n_outputs: int) -> Bank:
    """Output i is output ``places[i]`` of ``n_outputs``; prototypes deny the others."""
    low, _ = ends_of(bank)
    outputs = bank.outputs.new_full((*bank.outputs.shape[:2], n_outputs), low)
    outputs[:, :, places] = bank.outputs
    return replace(bank, outputs=outputs)


def widened(bank: Bank, places: Int[Tensor, " d"], n_features: int) -> Bank:
    """Feature i is feature ``places[i]`` of ``n_features``; in the others prototypes are zero.

    So is the solved weight of such a feature, and outputs are as before. (Nearly as before with
    ``normalize_inputs``, whose unit is a mean over features.)
    """
    inputs = bank.inputs.new_zeros(*bank.inputs.shape[:2], n_features)
    inputs[:, :, places] = bank.inputs
    if bank.scale is None:
        return replace(bank, inputs=inputs)
    scale = bank.scale.new_ones(len(bank.scale), n_features)
    scale[:, places] = bank.scale
    return replace(bank, inputs=inputs, scale=scale)


def shrunk(model: Model, bank: Bank, n_prototypes: int, generator: Generator) -> Bank:
    """The prototypes of a bank of a model that matter most, in their order; frozen ones stay."""
    if bank.n_prototypes <= n_prototypes:
        return bank
    drawn = model.seen(model.replay.drawn(WEIGHED_ROWS, generator)[0])
    worth = importances(bank, model.config.architecture, drawn)
    worth[:, : model.n_frozen] = torch.inf
    best = worth.argsort(1, descending=True)[:, :n_prototypes]
    return left_with(bank, best.sort(1).values)


def importances(
    bank: Bank, architecture: Architecture, Z: Float[Tensor, "n d"]
) -> Float[Tensor, "m p"]:
    """How far the outputs for these rows move, root mean square, when a prototype is left out."""
    p = bank.n_prototypes
    # row i names all but prototype i
    others = torch.arange(p).expand(p, p)[~torch.eye(p, dtype=torch.bool)].view(p, p - 1)
    size = max(1, NUMBERS // (p * max(bank.inputs.shape[2], *(H.shape[2] for H in bank.hidden))))
    moves = []
    for member in range(bank.n_members):
        outputs = through(bank.members([member]), architecture, Z)[-1]
        for chosen in others.split(size):
            fewer = left_with(bank.members([member] * len(chosen)), chosen)
            moved = through(fewer, architecture, Z)[-1] - outputs
            moves.append(moved.double().square().mean((1, 2)).sqrt())
    return torch.cat(moves).view(bank.n_members, p)
