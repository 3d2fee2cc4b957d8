"""From the bank to weights, and the gradient back into the bank, both written out.

The numbers of ``solve_weights`` and autograd, without a graph: for small tables a graph takes
longer than the numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank
from protopinv.network import Architecture, scaled_rows, soft_labels, unit_rows
from protopinv.solve import LayerSolve, spread
from protopinv.train.data_pass import IN_PLACE


@dataclass(frozen=True)
class SolverSettings:
    """How a bank is solved: the form of the systems, and the number type they are solved in."""

    form: str
    precision: torch.dtype

    def __str__(self) -> str:
        method = "SVD" if self.form == "svd" else "Cholesky"
        return f"{method} in {str(self.precision).removeprefix('torch.')}"


class Penalty(NamedTuple):
    """What a penalty adds to the loss of every member, the errors of its solves, its gradient."""

    value: Float[Tensor, " m"]
    error: Float[Tensor, "m layers"]
    d_ridge: Float[Tensor, "m layers"]


class BankPass:
    """The weights of a bank, and the way back.

    ``error`` is the estimated relative error of every layer's solve. ``factors`` are (A, S) with
    W = A'S for layers of a single member that were solved in the dual form: rows may go through
    both instead of W. ``dropout`` has factors of the hidden targets, the same for all members.
    ``designs``, [1, X], [1, act(H_1)], ..., are memory that every pass overwrites; the ones stay.
    """

    def __init__(
        self,
        bank: Bank,
        architecture: Architecture,
        solver: SolverSettings,
        designs: list[Tensor],
        *,
        ridge: Float[Tensor, "m layers"],
        dropout: Sequence[Float[Tensor, "p _"]] = (),
    ) -> None:
        self._bank, self._solver, self._ridge, self._dropout = bank, solver, ridge, dropout
        self._act = IN_PLACE[architecture.activation]
        self._hidden = bank.hidden
        if dropout:
            self._hidden = tuple(H * keep for H, keep in zip(bank.hidden, dropout, strict=True))
        inputs, self._inputs_back = bank.inputs, None
        if architecture.normalize_inputs:
            inputs, self._inputs_back = _tracked(unit_rows, inputs)
        outputs, self._outputs_back = bank.outputs, None
        if architecture.temperature > 0:
            temperature = architecture.temperature
            outputs, self._outputs_back = _tracked(lambda Y: soft_labels(Y, temperature), outputs)
        for m, p, d in () if designs else [each.shape for each in (inputs, *self._hidden)]:
            designs.append(inputs.new_ones(m, p, d + 1))
        self._designs = designs
        designs[0][..., 1:].copy_(inputs)
        for H, design in zip(self._hidden, designs[1:], strict=True):
            self._act.forward(H, design[..., 1:])
        targets = [*self._hidden, outputs]
        form, precision = solver.form, solver.precision
        self._solve = LayerSolve(self._designs, targets, ridge, form=form, precision=precision)
        self.error = self._solve.error
        self.weights = list(self._solve.weights)
        if bank.scale is not None:
            self.weights[0] = scaled_rows(self.weights[0], bank.scale)

    @property
    def factors(self) -> list[tuple[Tensor, Tensor] | None]:
        """A pair for each layer where there is one."""
        if len(self._designs[0]) > 1:
            return []
        pairs = zip(self._designs, self._solve.duals, strict=True)
        factors = [None if S is None else (A[0], S[0]) for A, S in pairs]
        return factors if self._bank.scale is None else [None, *factors[1:]]

    def pullback(
        self, gradients: Sequence[Tensor], *, with_ridge: bool, condition_penalty: float = 0.0
    ) -> tuple[list[Tensor | None], Penalty | None]:
        """From dL/dW to the gradients of ``bank.trained``, in that order; and what was penalised.

        ``condition_penalty`` times the spread of every layer's system is added to the loss.
        """
        gradients, scale, d_scale = list(gradients), self._bank.scale, None
        if scale is not None:
            d_scale = (gradients[0][..., 1:, :] * self._solve.weights[0][..., 1:, :]).sum(-1)
            gradients[0] = scaled_rows(gradients[0], scale)
        pulled = self._solve.pullbacks(gradients, with_ridge=with_ridge)
        penalty = self._penalised(pulled, condition_penalty) if condition_penalty else None
        d_inputs = pulled[0][0][..., 1:]
        *d_hidden, d_outputs = (dT for _, dT, _ in pulled)
        for layer, (H, dH) in enumerate(zip(self._hidden, d_hidden, strict=True), start=1):
            G, A = pulled[layer][0][..., 1:], self._designs[layer][..., 1:]
            self._act.backward(G, A if self._act.from_output else H)
            dH.add_(G)
            if self._dropout:
                dH.mul_(self._dropout[layer - 1])
        d_ridge = None
        if with_ridge:
            by_layer = torch.stack([d for _, _, d in pulled if d is not None], dim=-1)
            if penalty is not None:
                by_layer = by_layer + penalty.d_ridge
            slope = torch.sigmoid(self._bank.raw_ridge) * self._bank.learnable_ridge
            d_ridge = by_layer.to(slope) * slope
        if self._inputs_back is not None:
            d_inputs = self._inputs_back(d_inputs)
        if self._outputs_back is not None:
            d_outputs = self._outputs_back(d_outputs)
        of_bank = [d_inputs.contiguous(), *d_hidden, d_outputs, d_ridge]
        return (of_bank if scale is None else [*of_bank, d_scale]), penalty

    def _penalised(
        self, pulled: Sequence[tuple[Tensor, Tensor, Tensor | None]], strength: float
    ) -> Penalty:
        """Add the gradient of the penalty to those in the designs."""
        total: Tensor | float = 0.0
        errors, d_ridges = [], []
        precision = self._solver.precision
        ridges = self._ridge.unbind(-1)
        for A, ridge, (dA, _, _) in zip(self._designs, ridges, pulled, strict=True):
            with torch.enable_grad():
                design = A.to(precision).detach().requires_grad_()
                strengths = ridge.to(precision).detach().requires_grad_()
                value, error = spread(design, strengths, form=self._solver.form)
                by_design, by_ridge = torch.autograd.grad(value.sum(), (design, strengths))
            dA.add_(by_design.to(dA.dtype), alpha=strength)
            total = total + strength * value.detach()
            errors.append(error)
            d_ridges.append(strength * by_ridge)
        return Penalty(torch.as_tensor(total), torch.stack(errors, -1), torch.stack(d_ridges, -1))


def _tracked(
    change: Callable[[Tensor], Tensor], tensor: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The changed tensor, and the way back of its gradient by autograd."""
    with torch.enable_grad():
        leaf = tensor.detach().requires_grad_()
        value = change(leaf)

    def back(gradient: Tensor) -> Tensor:
        with torch.enable_grad():
            return torch.autograd.grad((value * gradient).sum(), leaf)[0]

    return value.detach(), back
