"""Banks that grow, shrink and gain outputs, and what their networks answer to projected rows."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from protopinv.bank import Bank
from protopinv.network import ACTIVATIONS, Architecture, affine, solve_weights

# Rows that are sent through a network at once.
ROWS = 8_192


def solved(bank: Bank, architecture: Architecture) -> list[list[Tensor]]:
    """The weights of every member, in float64."""
    solution = solve_weights(bank.to("cpu", torch.float64), architecture)
    return [[W[member] for W in solution.weights] for member in range(bank.n_members)]


def answers(
    bank: Bank, architecture: Architecture, Z: Float[Tensor, "n d"]
) -> Float[Tensor, "n k"]:
    """The mean of the outputs of all members, as they are trained: before any unit or sharpness."""
    act, found = ACTIVATIONS[architecture.activation], []
    members = [[W.to(Z) for W in weights] for weights in solved(bank, architecture)]
    for piece in Z.split(ROWS):
        outputs = []
        for weights in members:
            X = piece
            for W in weights[:-1]:
                X = act(affine(X, W))
            outputs.append(affine(X, weights[-1]))
        found.append(torch.stack(outputs).mean(0))
    return torch.cat(found)


def hidden_of(
    bank: Bank, architecture: Architecture, inputs: Float[Tensor, "m c d"]
) -> tuple[list[Float[Tensor, "m c _"]], Float[Tensor, "m c k"]]:
    """What the hidden targets and outputs of prototypes at ``inputs`` would be, by member."""
    act = ACTIVATIONS[architecture.activation]
    layers: list[list[Tensor]] = []
    for weights, rows in zip(solved(bank, architecture), inputs.double(), strict=True):
        values = [affine(rows, weights[0])]
        for W in weights[1:]:
            values.append(affine(act(values[-1]), W))
        layers.append(values)
    *hidden, outputs = (torch.stack(each).to(bank.inputs) for each in zip(*layers, strict=True))
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


def without_output(bank: Bank, output: int) -> Bank:
    """The same bank, never asked for this output."""
    kept = torch.arange(bank.outputs.shape[2]) != output
    return replace(bank, outputs=bank.outputs[:, :, kept])


def importances(
    bank: Bank, architecture: Architecture, Z: Float[Tensor, "n d"]
) -> Float[Tensor, "m p"]:
    """How far the outputs for these rows move, root mean square, when a prototype is left out."""
    everything = torch.arange(bank.n_prototypes)
    found = torch.empty(bank.n_members, bank.n_prototypes, dtype=torch.float64)
    for member in range(bank.n_members):
        alone = bank.members([member])
        whole = answers(alone, architecture, Z)
        for number in range(bank.n_prototypes):
            others = left_with(alone, everything[everything != number][None])
            moved = answers(others, architecture, Z) - whole
            found[member, number] = moved.double().square().mean().sqrt()
    return found
