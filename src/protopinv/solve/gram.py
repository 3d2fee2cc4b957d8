"""Ridge regression from sums over rows, for designs too long to hold."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def solve_gram(
    gram: Float[Tensor, "d d"], cross: Float[Tensor, "d k"], ridge: float
) -> tuple[Float[Tensor, "d k"], Int[Tensor, ""]]:
    """W = (A'A + ridge I)^-1 A'T from A'A and A'T, and a status: zero where it was solvable."""
    system = gram.clone()
    system.diagonal().add_(ridge)
    factor, status = torch.linalg.cholesky_ex(system)
    return torch.cholesky_solve(cross, factor), status
