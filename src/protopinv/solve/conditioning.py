"""How far a solution may be off, estimated on the device from what the solve computed anyway."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def cholesky_error(
    system: Float[Tensor, "*batch n n"],
    inverse: Float[Tensor, "*batch n n"],
    info: Int[Tensor, "*batch"],
) -> Float[Tensor, "*batch"]:
    """eps ||K|| ||K^-1||: first-order relative error of a Cholesky solution; inf where it failed.

    Maximum row sums bound the spectral norms from above, by at most sqrt(n) each.
    """
    condition = _row_sum_norm(system) * _row_sum_norm(inverse)
    error = torch.finfo(system.dtype).eps * condition
    return torch.where((info == 0) & error.isfinite(), error, torch.inf)


def svd_error(singular: Float[Tensor, " r"], ridge: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """eps s_max / sqrt(s_min^2 + ridge): the SVD form sees the square root of the condition."""
    ratio = singular[0] / (singular[-1].square() + ridge).sqrt()
    error = torch.finfo(singular.dtype).eps * ratio
    return torch.where(error.isfinite(), error, torch.inf)


def _row_sum_norm(matrix: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    return matrix.abs().sum(-1).amax(-1)
