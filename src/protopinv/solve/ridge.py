"""ridge(A, T; ridge) = (A'A + ridge I)^-1 A'T, differentiable in A, T and ridge.

The derivative belongs to the solve, not to the factorisation: differentiating through a Cholesky
costs more, and through an SVD gives NaN for repeated singular values (duplicate prototypes).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from protopinv.solve.forms import FORMS, Form, Pulled
from protopinv.solve.systems import exact_type


@dataclass(frozen=True)
class Solution:
    """Weights of each layer and the estimated relative error of each: the status of the solve.

    ``error`` stays on the device and is inf where a factorisation failed; whoever may wait for the
    device reads it and decides.
    """

    weights: tuple[Tensor, ...]
    error: Float[Tensor, "*members layers"]


class LayerSolve:
    """W_l = ridge(A_l, T_l; ridge_l) for all layers, and gradients the way back.

    The layers of one form are solved together. ``precision`` is the type the systems are solved in;
    weights and gradients come in the type of the designs.
    """

    def __init__(
        self,
        designs: Sequence[Float[Tensor, "*members p _"]],
        targets: Sequence[Float[Tensor, "*members p _"]],
        ridges: Float[Tensor, "*members layers"],
        *,
        form: str = "auto",
        precision: torch.dtype | None = None,
    ) -> None:
        self._outside = designs[0].dtype
        self._inside = exact_type(precision or self._outside)
        smaller = ["dual" if A.shape[-2] <= A.shape[-1] else "primal" for A in designs]
        forms = smaller if form == "auto" else [form] * len(designs)
        self._groups: list[tuple[list[int], Form]] = []
        solved: dict[int, tuple[Tensor, Tensor, Tensor | None]] = {}
        for name in dict.fromkeys(forms):
            layers = [i for i, chosen in enumerate(forms) if chosen == name]
            group = FORMS[name](
                [designs[i].to(self._inside) for i in layers],
                _chosen(ridges, layers).to(self._inside),
                [targets[i].to(self._inside) for i in layers],
            )
            self._groups.append((layers, group))
            duals: list[Tensor | None] = [*group.duals] or [None] * len(layers)
            parts = zip(group.weights, group.error.unbind(-1), duals, strict=True)
            solved |= zip(layers, parts, strict=True)
        all_weights, errors, all_duals = zip(*(solved[i] for i in range(len(forms))), strict=True)
        self.weights = [W.to(self._outside) for W in all_weights]
        self.error = group.error if len(self._groups) == 1 else torch.stack(errors, dim=-1)
        self.duals: list[Tensor | None] = list(all_duals)

    def pullbacks(self, gradients: Sequence[Tensor], *, with_ridge: bool) -> list[Pulled]:
        """From the gradient in W of every layer to those in A, T and the ridge."""
        pulled: dict[int, Pulled] = {}
        for layers, group in self._groups:
            inside = [gradients[i].to(self._inside) for i in layers]
            pulled |= zip(layers, group.pullbacks(inside, with_ridge=with_ridge), strict=True)
        return [
            (dA.to(self._outside), dT.to(self._outside), d_ridge)
            for dA, dT, d_ridge in (pulled[i] for i in range(len(gradients)))
        ]


def _chosen(
    ridges: Float[Tensor, "*members layers"], layers: Sequence[int]
) -> Float[Tensor, "*members _"]:
    """The ridges of some layers; indexing with a list would make a GPU wait for the host."""
    if layers[-1] - layers[0] + 1 == len(layers):
        return ridges[..., layers[0] : layers[-1] + 1]
    return torch.stack([ridges[..., i] for i in layers], dim=-1)


def solve_layers(
    designs: Sequence[Float[Tensor, "*members p _"]],
    targets: Sequence[Float[Tensor, "*members p _"]],
    ridges: Float[Tensor, "*members layers"],
    *,
    form: str = "auto",
    precision: torch.dtype | None = None,
) -> Solution:
    """W_l = ridge(A_l, T_l; ridge_l) for all layers, differentiable.

    Tensors may have leading axes, such as the members of a population, each with systems of its
    own.
    """
    error, *weights = _RidgeSolve.apply(form, precision, ridges, *designs, *targets)
    return Solution(tuple(weights), error)


def ridge_solve(
    A: Float[Tensor, "p d"],
    T: Float[Tensor, "p h"],
    ridge: Float[Tensor, ""],
    *,
    form: str = "auto",
    precision: torch.dtype | None = None,
) -> Solution:
    """W = (A'A + ridge I)^-1 A'T for one layer."""
    return solve_layers([A], [T], ridge[None], form=form, precision=precision)


class _RidgeSolve(torch.autograd.Function):
    """(form, precision, ridges, *designs, *targets) -> (error, *weights).

    Only the weights have a derivative.
    """

    @staticmethod
    def forward(
        ctx: Any, form: str, precision: torch.dtype | None, ridges: Tensor, *matrices: Tensor
    ) -> tuple[Tensor, ...]:
        layers = len(matrices) // 2
        designs = [A.detach() for A in matrices[:layers]]
        ctx.solve = LayerSolve(designs, matrices[layers:], ridges, form=form, precision=precision)
        ctx.mark_non_differentiable(ctx.solve.error)
        ctx.set_materialize_grads(False)
        ctx.ridge_type = ridges.dtype
        # Fresh views, so that the saved factor does not hold the outputs that hold the factor.
        return ctx.solve.error, *(W.view_as(W) for W in ctx.solve.weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        with_ridge = ctx.needs_input_grad[2]
        dense = [
            torch.zeros_like(W) if dW is None else dW
            for W, dW in zip(ctx.solve.weights, gradients, strict=True)
        ]
        pulled = ctx.solve.pullbacks(dense, with_ridge=with_ridge)
        d_designs, d_targets, d_ridges = zip(*pulled, strict=True)
        d_ridge = torch.stack(d_ridges, dim=-1).to(ctx.ridge_type) if with_ridge else None
        return None, None, d_ridge, *d_designs, *d_targets
