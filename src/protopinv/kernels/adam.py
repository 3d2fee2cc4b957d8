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
    rates: Tensor,
    decays: Tensor,
    betas: tuple[float, float],
    eps: float,
) -> None:
    """In place, member by member, at ``factor`` times its rate; nothing where ``skip`` is true.

    Members come first in the tensors, and ``steps``, ``skip``, ``rates`` and ``decays`` have one
    number each. ``steps`` counts the updates, this one included.
    """
    m = len(tensor)
    n = tensor.numel() // m
    _update[(triton.cdiv(n, BLOCK), m)](
        tensor,
        gradient,
        mean,
        square,
        steps,
        skip,
        factor,
        rates,
        decays,
        n,
        *betas,
        eps,
        B=BLOCK,
    )


@triton.jit
def _update(
    X, G, MEAN, SQUARE, STEPS, SKIP, FACTOR, RATES, DECAYS, n, beta1, beta2, eps, B: tl.constexpr
):
    member = tl.program_id(1)
    inside = tl.program_id(0) * B + tl.arange(0, B) < n
    at = member * n + tl.program_id(0) * B + tl.arange(0, B)
    skip = tl.load(SKIP + member).to(tl.int32) != 0
    rate = tl.load(RATES + member) * tl.load(FACTOR)
    decay = tl.load(DECAYS + member)
    steps = tl.load(STEPS + member)
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
