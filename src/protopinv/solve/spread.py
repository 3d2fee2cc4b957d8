"""How unevenly a ridge system treats its directions, as a number that can be trained down."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from protopinv.solve.cholesky import by_cholesky
from protopinv.solve.products import exact_type


def spread(
    A: Float[Tensor, "*members p d"], ridge: Float[Tensor, "*members"], *, form: str = "auto"
) -> tuple[Float[Tensor, "*members"], Float[Tensor, "*members"]]:
    """log(mean / geometric mean) of the eigenvalues of AA' + ridge I (A'A for p > d), and a status.

    Zero if and only if all are equal, that is for a condition number of one. Unlike the condition
    number itself it is smooth and needs no singular values: a trace and a determinant. The status
    is the relative error of the inverse that the derivative takes; "svd" finds both from
    singular values, for systems that have no Cholesky factor in their precision.
    """
    value, error = _Spread.apply(A, ridge, form)
    return value, error


class _Spread(torch.autograd.Function):
    """d log det K = tr(K^-1 dK), d log tr K = tr(dK) / tr(K)."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, ridge: Tensor, form: str) -> tuple[Tensor, Tensor]:
        ctx.wide, ctx.outside = A.shape[-2] <= A.shape[-1], A.dtype
        inside = exact_type(A.dtype)
        A, ridge = A.to(inside), ridge.to(inside)
        K = A @ A.mT if ctx.wide else A.mT @ A
        diagonal = K.diagonal(dim1=-2, dim2=-1)
        diagonal.add_(ridge[..., None])
        if form == "svd":
            inverse, log_determinant, error = _by_singular_values(A, ridge)
        else:
            inverse, factor, error = by_cholesky(K)
            log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        ctx.save_for_backward(A, inverse, diagonal.sum(-1))
        ctx.mark_non_differentiable(error)
        value = diagonal.mean(-1).log() - log_determinant / K.shape[-1]
        return value.to(ctx.outside), error.to(ctx.outside)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        A, inverse, trace = ctx.saved_tensors
        gradient = gradient.to(A.dtype)
        dK = inverse * (-gradient / inverse.shape[-1])[..., None, None]
        diagonal = dK.diagonal(dim1=-2, dim2=-1)
        diagonal.add_((gradient / trace)[..., None])
        dA = 2 * (dK @ A if ctx.wide else A @ dK)
        return dA.to(ctx.outside), diagonal.sum(-1).to(ctx.outside), None


def _by_singular_values(A: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """K^-1, log det K and an error of zero: K, which would lose half the digits, is not formed."""
    U, s, Vh = torch.linalg.svd(A, full_matrices=False)
    vectors = U if A.shape[-2] <= A.shape[-1] else Vh.mT
    values = s.square() + ridge[..., None]
    inverse = (vectors / values[..., None, :]) @ vectors.mT
    return inverse, values.log().sum(-1), torch.zeros_like(ridge)
