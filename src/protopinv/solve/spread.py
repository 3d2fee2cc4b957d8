"""How unevenly a ridge system treats its directions, as a number that can be trained down."""

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.solve.systems import by_cholesky, exact_type


def spread(
    A: Float[Tensor, "*members p d"], ridge: Float[Tensor, "*members"], *, form: str = "auto"
) -> tuple[Float[Tensor, "*members"], Float[Tensor, "*members"]]:
    """log(mean / geometric mean) of the eigenvalues of AA' + ridge I (A'A for p > d), and a status.

    Zero if and only if all are equal, that is for a condition number of one. Unlike the condition
    number itself it is smooth and needs no singular values: a trace and a determinant. The status
    is the relative error of the inverse that the derivative takes; "svd" finds both from
    singular values, for systems that have no Cholesky factor in their precision.
    """
    outside, inside = A.dtype, exact_type(A.dtype)
    A, ridge = A.to(inside), ridge.to(inside)
    K = A @ A.mT if A.shape[-2] <= A.shape[-1] else A.mT @ A
    K.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
    with torch.no_grad():
        if form == "svd":
            inverse, log_determinant, error = _by_singular_values(A, ridge)
        else:
            inverse, factor, error = by_cholesky(K)
            log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # zero, with the derivative of log det K, which is tr(K^-1 dK): no factor is differentiated
    log_determinant = log_determinant + (inverse * (K - K.detach())).sum((-2, -1))
    mean = K.diagonal(dim1=-2, dim2=-1).mean(-1)
    value = mean.log() - log_determinant / K.shape[-1]
    return value.to(outside), error.to(outside)


def _by_singular_values(A: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K^-1, log det K and an error of zero: K, which would lose half the digits, is not formed."""
    U, s, Vh = torch.linalg.svd(A, full_matrices=False)
    vectors = U if A.shape[-2] <= A.shape[-1] else Vh.mT
    values = s.square() + ridge[..., None]
    inverse = (vectors / values[..., None, :]) @ vectors.mT
    return inverse, values.log().sum(-1), torch.zeros_like(ridge)
