"""Solve with symmetric positive definite systems, and say how far the solution may be off."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import usable

# Above this size a library's large products beat the kernel.
MOST_ROWS = 512
# A bound on the error this low needs no closer look.
CLEARLY_SOLVED = 1e-3
# With at most this share of columns, triangular solves take less than an explicit inverse.
THIN = 0.25

# K^-1 B from B.
Solver = Callable[[Tensor], Tensor]


def is_thin(n_columns: int, n: int, device: torch.device) -> bool:
    """Whether a right-hand side is better off without an explicit inverse, and without M = TS'."""
    return device.type == "cpu" and n_columns <= THIN * n


def factorise_each(
    systems: Float[Tensor, "layers *batch n n"],
    ridges: Float[Tensor, "layers *batch"],
    columns: Sequence[int],
) -> tuple[list[Solver], Float[Tensor, "layers *batch"]]:
    """What solves with each layer's systems, for so many right-hand sides; and the relative errors.

    With hundreds of right-hand sides a product with K^-1 is several times faster than two
    triangular solves. A system is at least its ridge, so eps tr(K) / ridge bounds the error; where
    that is not low enough, eps ||K|| ||K^-1|| says more.
    """
    if systems.is_cuda:
        inverses, error = invert(systems)
        return [inverse.matmul for inverse in inverses], error
    n = systems.shape[-1]
    factor, info = torch.linalg.cholesky_ex(systems)
    trace = systems.diagonal(dim1=-2, dim2=-1).sum(-1)
    bound = trace / ridges * torch.finfo(systems.dtype).eps
    if bool(info.any()) or not float(bound.max()) < CLEARLY_SOLVED:
        inverses, _, error = by_cholesky(systems)
        return [inverse.matmul for inverse in inverses], error
    solvers: list[Solver] = [
        partial(torch.cholesky_solve, input2=L)
        if is_thin(k, n, systems.device)
        else torch.cholesky_inverse(L).matmul
        for L, k in zip(factor, columns, strict=True)
    ]
    return solvers, bound


def invert(
    system: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch"]]:
    """K^-1 and the relative error of a solution by it, from the kernel where that is faster."""
    if usable(system) and system.dtype == torch.float32 and system.shape[-1] <= MOST_ROWS:
        from protopinv.kernels.sweep import sweep_inverse

        inverse, error = sweep_inverse(system.view(-1, *system.shape[-2:]))
        return inverse.view_as(system), error.view(system.shape[:-2])
    inverse, _, error = by_cholesky(system)
    return inverse, error


def by_cholesky(
    system: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch n n"], Float[Tensor, "*batch"]]:
    """K^-1 = L^-T L^-1, L with K = LL', and eps ||K|| ||K^-1||.

    The last is the relative error of a solution to first order, inf where the factorisation
    failed, from what is at hand anyway; row sums bound the spectral norms, by at most sqrt(n) each.

    Neither ``cholesky_ex`` nor ``solve_triangular`` reads the device from the host or raises;
    ``cholesky_inverse`` does both, and is twice as fast where that does not matter.
    """
    factor, info = torch.linalg.cholesky_ex(system)
    identity = torch.eye(system.shape[-1], dtype=system.dtype, device=system.device)
    if system.is_cuda:
        half = torch.linalg.solve_triangular(factor, identity.expand_as(system), upper=False)
        inverse = half.mT @ half
    else:
        if bool(info.any()):
            factor = torch.where((info == 0)[..., None, None], factor, identity)
        inverse = torch.cholesky_inverse(factor)
    norm, inverse_norm = (matrix.abs().sum(-1).amax(-1) for matrix in (system, inverse))
    error = torch.finfo(system.dtype).eps * norm * inverse_norm
    return inverse, factor, torch.where((info == 0) & error.isfinite(), error, torch.inf)
