"""One AdamW update of a tensor: torch's fused one gives a whole tensor to a single block."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024


def adam_update(
    tensor: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    steps: Tensor,
    skip: Tensor,
    factor: Tensor,
    rate: float,
    decay: float,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """In place, at ``factor`` times the rate; nothing where ``skip`` is true.

    ``steps`` counts the updates, this one included.
    """
    n = tensor.numel()
    _update[(triton.cdiv(n, BLOCK),)](
        tensor,
        gradient,
        mean,
        square,
        steps,
        skip,
        factor,
        n,
        rate,
        decay,
        *betas,
        eps,
        B=BLOCK,
    )


@triton.jit
def _update(
    X, G, MEAN, SQUARE, STEPS, SKIP, FACTOR, n, rate, decay, beta1, beta2, eps, B: tl.constexpr
):
    at = tl.program_id(0) * B + tl.arange(0, B)
    inside = at < n
    skip = tl.load(SKIP).to(tl.int32) != 0
    rate = rate * tl.load(FACTOR)
    steps = tl.load(STEPS)
    x = tl.load(X + at, mask=inside, other=0.0)
    g = tl.load(G + at, mask=inside, other=0.0)
    mean = tl.load(MEAN + at, mask=inside, other=0.0)
    square = tl.load(SQUARE + at, mask=inside, other=0.0)
    new_mean = beta1 * mean + (1 - beta1) * g
    new_square = beta2 * square + (1 - beta2) * g * g
    # 1 - beta^steps
    first = 1 - tl.exp(steps * tl.log(beta1))
    second = 1 - tl.exp(steps * tl.log(beta2))
    size = tl.sqrt(new_square / second) + eps
    new = x * (1 - rate * decay) - rate * (new_mean / first) / size
    tl.store(X + at, tl.where(skip, x, new), mask=inside)
    tl.store(MEAN + at, tl.where(skip, mean, new_mean), mask=inside)
    tl.store(SQUARE + at, tl.where(skip, square, new_square), mask=inside)
