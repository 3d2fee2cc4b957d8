"""Invert a symmetric positive definite system, and say how far the inverse may be off."""

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import usable

# Above this size a library's large products beat the kernel.
MOST_ROWS = 512


def invert(
    system: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch"]]:
    """K^-1 and the relative error of a solution by it, as ``factorise`` has it."""
    if usable(system) and system.dtype == torch.float32 and system.shape[-1] <= MOST_ROWS:
        from protopinv.kernels.sweep import sweep_inverse

        inverse, error = sweep_inverse(system.view(-1, *system.shape[-2:]))
        return inverse.view_as(system), error.view(system.shape[:-2])
    inverse, _, error = _by_cholesky(system)
    return inverse, error


def factorise(
    system: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """K^-1 = L^-T L^-1 with K = LL', log det K, and eps ||K|| ||K^-1||.

    The last is the relative error of a solution to first order, inf where the factorisation
    failed, from what is at hand anyway; row sums bound the spectral norms, by at most sqrt(n) each.
    """
    inverse, factor, error = _by_cholesky(system)
    return inverse, 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1), error


def _by_cholesky(system: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K^-1, L and the relative error.

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
    condition = _row_sum_norm(system) * _row_sum_norm(inverse)
    error = torch.finfo(system.dtype).eps * condition
    return inverse, factor, torch.where((info == 0) & error.isfinite(), error, torch.inf)


def _row_sum_norm(matrix: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    return matrix.abs().sum(-1).amax(-1)
