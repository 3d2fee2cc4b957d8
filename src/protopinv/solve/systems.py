"""Products and symmetric positive definite systems, and how far their solution may be off.

Products are exact, whatever a program has chosen for its own.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import usable

# With so few columns a product on a CPU is up to four times faster turned around.
NARROW = 16
# Above this size a library's large products beat the kernel.
MOST_ROWS = 512
# A bound on the error this low needs no closer look.
CLEARLY_SOLVED = 1e-3
# With at most this share of columns, triangular solves take less than an explicit inverse.
THIN = 0.25

# K^-1 B from B.
Solver = Callable[[Tensor], Tensor]


def exact_type(dtype: torch.dtype) -> torch.dtype:
    """The type to solve in: float64 for float32 where the process may round that further.

    ``torch.set_float32_matmul_precision`` and ``torch.backends.*.fp32_precision`` let float32
    products keep 11 or even 8 bits. A Gram matrix made that way is another one: its inverse is off
    by as many digits as the condition number has, and its estimated error says nothing of that. The
    settings belong to all threads of the process, so they are read and never changed.
    """
    if dtype != torch.float32:
        return dtype
    try:
        is_exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch refuses to answer once the newer settings say something else
        is_exact = False
    return dtype if is_exact else torch.float64


def times(A: Float[Tensor, "*batch a b"], B: Float[Tensor, "*batch b c"]) -> Tensor:
    """A B, each the way that is fastest for its shape."""
    # ``matmul`` would take as long to find out what it is given as a small product takes
    product = torch.bmm if A.ndim == 3 else torch.matmul
    if B.shape[-1] <= NARROW and not A.is_cuda:
        return product(B.mT, A.mT).mT
    return product(A, B)


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
