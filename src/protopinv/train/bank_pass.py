"""From the bank to weights, and the gradient back into the bank, both written out.

The same as ``solve_weights`` and autograd, without a graph: for small tables a graph takes longer
than the numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture, scaled_rows, soft_labels, unit_rows
from protopinv.solve import LayerSolve, spread
from protopinv.train.activations import IN_PLACE


@dataclass(frozen=True)
class Manner:
    """How a bank is solved: the form of the systems, and the number type they are solved in."""

    form: str
    precision: torch.dtype


@dataclass
class Designs:
    """[1, X], [1, act(H_1)], ... in memory that every pass overwrites; the ones stay."""

    matrices: list[Tensor] = field(default_factory=list)

    def take(self, layer: int, like: Float[Tensor, "m p d"]) -> Float[Tensor, "m p d_plus_1"]:
        """The design of a layer, to be filled behind its first column."""
        if layer == len(self.matrices):
            m, p, d = like.shape
            self.matrices.append(like.new_ones(m, p, d + 1))
        return self.matrices[layer]


class BankPass:
    """The weights of a bank, and the way back.

    ``error`` is the estimated relative error of every layer's solve. ``factors`` are (A, S) with
    W = A'S for layers of a single member that were solved in the dual form: rows may go through
    both instead of W.
    """

    def __init__(
        self,
        bank: Bank,
        architecture: Architecture,
        manner: Manner,
        designs: Designs,
        *,
        ridge: Float[Tensor, "m layers"],
        kept: Sequence[Float[Tensor, "p _"]] = (),
    ) -> None:
        """``kept`` are the factors of dropout on the hidden targets, the same for all members."""
        self._bank = bank
        self._manner = manner
        self._ridge = ridge
        self._kept = kept
        self._act = IN_PLACE[architecture.activation]
        hidden = [H * keep for H, keep in zip(bank.hidden, kept, strict=True)] if kept else None
        self._hidden = bank.hidden if hidden is None else tuple(hidden)
        self._inputs = _through(unit_rows, bank.inputs, architecture.normalize_inputs)
        softened = _through(
            lambda Y: soft_labels(Y, architecture.temperature),
            bank.outputs,
            architecture.temperature > 0,
        )
        self._outputs = softened
        self._designs = self._fill(designs)
        targets = [*self._hidden, softened.value]
        form, precision = manner.form, manner.precision
        self._solve = LayerSolve(self._designs, targets, ridge, form=form, precision=precision)
        self.error = self._solve.error
        self._first = self._solve.weights[0]
        self.weights = list(self._solve.weights)
        if bank.scale is not None:
            self.weights[0] = scaled_rows(self._first, bank.scale)

    @property
    def factors(self) -> list[tuple[Tensor, Tensor] | None]:
        """A pair for each layer where there is one."""
        if len(self._designs[0]) > 1:
            return []
        pairs = zip(self._designs, self._solve.duals, strict=True)
        found = [None if S is None else (A[0], S[0]) for A, S in pairs]
        if self._bank.scale is not None:
            found[0] = None
        return found

    def _fill(self, designs: Designs) -> list[Tensor]:
        filled = [designs.take(0, self._inputs.value)]
        filled[0][..., 1:].copy_(self._inputs.value)
        for layer, H in enumerate(self._hidden, start=1):
            A = designs.take(layer, H)
            self._act.forward(H, A[..., 1:])
            filled.append(A)
        return filled

    def pullback(
        self, gradients: Sequence[Tensor], *, with_ridge: bool, condition_penalty: float = 0.0
    ) -> tuple[list[Tensor | None], "Penalty | None"]:
        """From dL/dW to the gradients of ``bank.trained``, in that order; and what was penalised.

        ``condition_penalty`` times the spread of every layer's system is added to the loss.
        """
        gradients, scale = list(gradients), self._bank.scale
        d_scale = None
        if scale is not None:
            d_scale = (gradients[0][..., 1:, :] * self._first[..., 1:, :]).sum(-1)
            gradients[0] = scaled_rows(gradients[0], scale)
        pulled = self._solve.pullbacks(gradients, with_ridge=with_ridge)
        penalty = self._penalised(pulled, condition_penalty) if condition_penalty else None
        d_designs = [dA[..., 1:] for dA, _, _ in pulled]
        d_targets = [dT for _, dT, _ in pulled]
        for layer, H in enumerate(self._hidden):
            G = d_designs[layer + 1]
            A = self._designs[layer + 1][..., 1:]
            self._act.backward(G, A if self._act.from_output else H)
            d_targets[layer] += G
        for dH, keep in zip(d_targets, self._kept, strict=False):
            dH.mul_(keep)
        d_ridge = None
        if with_ridge:
            by_layer = torch.stack([d for _, _, d in pulled if d is not None], dim=-1)
            if penalty is not None:
                by_layer = by_layer + penalty.d_ridge
            slope = torch.sigmoid(self._bank.raw_ridge) * self._bank.learnable_ridge
            d_ridge = by_layer.to(slope) * slope
        *d_hidden, d_outputs = d_targets
        found = [
            self._inputs.back(d_designs[0]).contiguous(),
            *d_hidden,
            self._outputs.back(d_outputs),
            d_ridge,
        ]
        return (found if scale is None else [*found, d_scale]), penalty

    def _penalised(
        self, pulled: Sequence[tuple[Tensor, Tensor, Tensor | None]], strength: float
    ) -> "Penalty":
        """Add the gradient of the penalty to those in the designs."""
        total: Tensor | float = 0.0
        errors, d_ridges = [], []
        precision = self._manner.precision
        ridges = self._ridge.unbind(-1)
        for A, ridge, (dA, _, _) in zip(self._designs, ridges, pulled, strict=True):
            with torch.enable_grad():
                design = A.to(precision).detach().requires_grad_()
                strengths = ridge.to(precision).detach().requires_grad_()
                value, error = spread(design, strengths, form=self._manner.form)
                by_design, by_ridge = torch.autograd.grad(value.sum(), (design, strengths))
            dA.add_(by_design.to(dA.dtype), alpha=strength)
            total = total + strength * value.detach()
            errors.append(error)
            d_ridges.append(strength * by_ridge)
        return Penalty(torch.as_tensor(total), torch.stack(errors, -1), torch.stack(d_ridges, -1))


@dataclass(frozen=True)
class Penalty:
    """What a penalty adds to the loss of every member, the errors of its solves, its gradient."""

    value: Float[Tensor, " m"]
    error: Float[Tensor, "m layers"]
    d_ridge: Float[Tensor, "m layers"]


@dataclass(frozen=True)
class _Changed:
    """A tensor on its way into a solve, and the gradient on its way back."""

    value: Tensor
    back: Callable[[Tensor], Tensor]


def _through(change: Callable[[Tensor], Tensor], tensor: Tensor, wanted: bool) -> _Changed:
    """The tensor changed or, if that is not wanted, as it is."""
    if not wanted:
        return _Changed(tensor, lambda gradient: gradient)
    with torch.enable_grad():
        leaf = tensor.detach().requires_grad_()
        value = change(leaf)

    def back(gradient: Tensor) -> Tensor:
        return torch.autograd.grad((value * gradient).sum(), leaf)[0]

    def tracked(gradient: Tensor) -> Tensor:
        with torch.enable_grad():
            return back(gradient)

    return _Changed(value.detach(), tracked)
