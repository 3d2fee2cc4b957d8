"""How unevenly a ridge system treats its directions, as a number that can be trained down."""

import torch
from jaxtyping import Float
from torch import Tensor


def spread(A: Float[Tensor, "p d"], ridge: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """log(mean / geometric mean) of the eigenvalues of AA' + ridge I (A'A for p > d).

    Zero if and only if all are equal, that is for a condition number of one. Unlike the condition
    number itself it is smooth and needs no singular values: a trace and a determinant.
    """
    G = A @ A.T if A.shape[0] <= A.shape[1] else A.T @ A
    n = len(G)
    system = G + ridge * torch.eye(n, dtype=G.dtype, device=G.device)
    factor, info = torch.linalg.cholesky_ex(system)
    diagonal = system.diagonal()  # the derivative of trace() reads the device from the host
    value: Tensor = diagonal.mean().log() - 2 * factor.diagonal().log().sum() / n
    return torch.where(info == 0, value, torch.nan)
