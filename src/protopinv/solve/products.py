"""Products of the solves: exact, whatever a program has chosen for its own, and fast."""

import torch
from jaxtyping import Float
from torch import Tensor

# With so few columns a product on a CPU is up to four times faster turned around.
NARROW = 16


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
