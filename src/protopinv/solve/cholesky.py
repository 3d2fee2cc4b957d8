"""Invert a symmetric positive definite system, and say how far the inverse may be off."""

import torch
from jaxtyping import Float
from torch import Tensor


def invert(
    system: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch"]]:
    """K^-1 and the relative error of a solution by it."""
    inverse, _, error = factorise(system)
    return inverse, error


def factorise(
    system: Float[Tensor, "*batch n n"],
) -> tuple[Float[Tensor, "*batch n n"], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """K^-1 = L^-T L^-1 with K = LL', log det K, and eps ||K|| ||K^-1||.

    The last is the relative error of a solution to first order, inf where the factorisation
    failed, from what is at hand anyway; row sums bound the spectral norms, by at most sqrt(n) each.
    Neither ``cholesky_ex`` nor ``solve_triangular`` reads the device from the host or raises;
    ``cholesky_inverse`` does both.
    """
    factor, info = torch.linalg.cholesky_ex(system)
    identity = torch.eye(system.shape[-1], dtype=system.dtype, device=system.device)
    half = torch.linalg.solve_triangular(factor, identity.expand_as(system), upper=False)
    inverse = half.mT @ half
    condition = _row_sum_norm(system) * _row_sum_norm(inverse)
    error = torch.finfo(system.dtype).eps * condition
    log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return inverse, log_determinant, torch.where((info == 0) & error.isfinite(), error, torch.inf)


def _row_sum_norm(matrix: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    return matrix.abs().sum(-1).amax(-1)
