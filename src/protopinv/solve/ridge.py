"""ridge(A, T; ridge) = (A'A + ridge I)^-1 A'T, differentiable in A, T and ridge.

The derivative belongs to the solve, not to the factorisation: differentiating through a Cholesky
costs more, and through an SVD gives NaN for repeated singular values (duplicate prototypes).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from protopinv.solve.dual import Dual
from protopinv.solve.exact import exact_products
from protopinv.solve.form import Form
from protopinv.solve.primal import Primal
from protopinv.solve.svd import SVD

FORMS: dict[str, Callable[[Sequence[Tensor], Tensor], Form]] = {
    "dual": Dual,
    "primal": Primal,
    "svd": SVD,
}


@dataclass(frozen=True)
class Solution:
    """Weights of each layer and the estimated relative error of each: the status of the solve.

    ``error`` stays on the device and is inf where a factorisation failed; whoever may wait for the
    device reads it and decides. ``factors`` are (A, S) with W = A'S for layers solved in the dual
    form, without a derivative: rows may go through both instead of W.
    """

    weights: tuple[Tensor, ...]
    error: Float[Tensor, " layers"]
    factors: tuple[tuple[Tensor, Tensor] | None, ...] = ()


def choose_form(p: int, d: int) -> str:
    """The smaller Cholesky system: p by p (dual) or d by d (primal)."""
    return "dual" if p <= d else "primal"


def solve_layers(
    designs: Sequence[Float[Tensor, "p _"]],
    targets: Sequence[Float[Tensor, "p _"]],
    ridges: Float[Tensor, " layers"],
    *,
    form: str = "auto",
    precision: torch.dtype | None = None,
) -> Solution:
    """W_l = ridge(A_l, T_l; ridge_l) for all layers, the layers of one form solved together.

    ``precision`` is the type the systems are solved in; the weights come back in the type of the
    designs.
    """
    given = designs[0].dtype
    inside = precision or given
    forms = [choose_form(*A.shape) if form == "auto" else form for A in designs]
    solved: dict[int, tuple[Tensor, Tensor]] = {}
    duals: dict[int, Tensor] = {}
    for name in dict.fromkeys(forms):
        layers = [i for i, chosen in enumerate(forms) if chosen == name]
        error, *found = _RidgeSolve.apply(
            name,
            _chosen(ridges, layers).to(inside),
            *(designs[i].to(inside) for i in layers),
            *(targets[i].to(inside) for i in layers),
        )
        weights, behind = found[: len(layers)], found[len(layers) :]
        solved.update(zip(layers, zip(weights, error.unbind(), strict=True), strict=True))
        duals.update(zip(layers, behind, strict=False))
    in_order = [solved[i] for i in range(len(designs))]
    same_form = len(set(forms)) == 1
    return Solution(
        tuple(W.to(given) for W, _ in in_order),
        error if same_form else torch.stack([one for _, one in in_order]),
        tuple((A.detach(), duals[i]) if i in duals else None for i, A in enumerate(designs)),
    )


def _chosen(ridges: Float[Tensor, " layers"], layers: Sequence[int]) -> Float[Tensor, " _"]:
    """The ridges of some layers; indexing with a list would make a GPU wait for the host."""
    return ridges if len(layers) == len(ridges) else torch.stack([ridges[i] for i in layers])


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
    """(form, ridges, *designs, *targets) -> (error, *weights, *duals), one factorisation for all.

    Only the weights have a derivative.
    """

    @staticmethod
    @exact_products()
    def forward(ctx: Any, form: str, ridges: Tensor, *matrices: Tensor) -> tuple[Tensor, ...]:
        layers = len(matrices) // 2
        ctx.factor = FORMS[form]([A.detach() for A in matrices[:layers]], ridges)
        weights = ctx.factor.weights(matrices[layers:])
        # Fresh views, so that the saved factor does not hold the outputs that hold the factor.
        duals = [S.view_as(S) for S in ctx.factor.duals]
        ctx.mark_non_differentiable(ctx.factor.error, *duals)
        ctx.set_materialize_grads(False)
        ctx.shapes = [W.shape for W in weights]
        return ctx.factor.error, *(W.view_as(W) for W in weights), *duals

    @staticmethod
    @once_differentiable
    @exact_products()
    def backward(ctx: Any, _: None, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        with_ridge = ctx.needs_input_grad[1]
        given = [
            ctx.factor.error.new_zeros(shape) if dW is None else dW
            for shape, dW in zip(ctx.shapes, gradients, strict=False)
        ]
        pulled = ctx.factor.pullbacks(given, with_ridge=with_ridge)
        d_designs, d_targets, d_ridges = zip(*pulled, strict=True)
        d_ridge = torch.stack(d_ridges) if with_ridge else None
        return None, d_ridge, *d_designs, *d_targets
