"""The end of a step in a few launches: whether it may be taken, and AdamW's update.

Torch takes two dozen small operations for the one, and a whole tensor a block for the other.
Each saves more than a tenth of a step of one bank on an H200.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor

from protopinv.kernels import side_by_side

CHECK_BLOCK, UPDATE_BLOCK = 4096, 1024


def check_step(
    loss: Tensor, error: Tensor, gradients: Sequence[Tensor], failures: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Which members' step to skip, and the losses, NaN for these. Members come first everywhere.

    A step is skipped if the error of a solve is not below the tolerance, counted in
    ``failures[:, 0]``, or if the loss or the norm of the gradients is not finite, counted in
    ``failures[:, 1]``.
    """
    m = len(loss)
    programs = [triton.cdiv(gradient.numel() // m, CHECK_BLOCK) for gradient in gradients]
    blocks = sum(programs)
    squares = torch.empty(m, blocks, device=loss.device)
    skip = torch.empty(m, dtype=torch.bool, device=loss.device)
    report = torch.empty_like(loss)

    def square(gradient: Tensor, count: int, upto: int) -> None:
        sizes = (gradient.numel() // m, upto - count, blocks)
        _square[(count, m)](gradient.contiguous(), squares, *sizes, B=CHECK_BLOCK, num_warps=4)

    each = zip(gradients, programs, accumulate(programs), strict=True)
    side_by_side([partial(square, *part) for part in each], loss.device)
    layers = error.shape[1]
    tensors = (loss, error.contiguous(), squares, failures, skip, report)
    rounded = {"L": triton.next_power_of_2(layers), "P": triton.next_power_of_2(blocks)}
    _judge[(m,)](*tensors, layers, blocks, tolerance, **rounded, num_warps=1)
    return skip, report


@triton.jit(do_not_specialize=["offset", "blocks"])
def _square(G, SQUARES, n, offset, blocks, B: tl.constexpr):
    """The sum of the squares of a block of a member's numbers."""
    member = tl.program_id(1)
    at = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(G + member * n + at, mask=at < n, other=0.0)
    tl.store(SQUARES + member * blocks + offset + tl.program_id(0), tl.sum(g * g, 0))


@triton.jit(do_not_specialize=["layers", "blocks"])
def _judge(
    LOSS, ERROR, SQUARES, FAILURES, SKIP, REPORT, layers, blocks, tolerance,
    L: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(0)
    layer = tl.arange(0, L)
    block = tl.arange(0, P)
    errors = tl.load(ERROR + member * layers + layer, mask=layer < layers, other=0.0)
    unsolved = tl.max(tl.where(errors < tolerance, 0, 1), 0)
    every = tl.load(SQUARES + member * blocks + block, mask=block < blocks, other=0.0)
    squares = tl.sum(every, 0)
    loss = tl.load(LOSS + member)
    broken = tl.where(tl.abs(loss) + squares < float("inf"), 0, 1)
    skip = tl.maximum(unsolved, broken)
    to = FAILURES + 2 * member
    tl.store(to, tl.load(to) + unsolved)
    tl.store(to + 1, tl.load(to + 1) + broken * (1 - unsolved))
    tl.store(SKIP + member, skip > 0)
    tl.store(REPORT + member, tl.where(skip > 0, float("nan"), loss))


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
    tensors, members = (tensor, gradient, mean, square), (steps, skip, factor, rates, decays)
    programs = (triton.cdiv(n, UPDATE_BLOCK), m)
    _update[programs](*tensors, *members, n, *betas, eps, B=UPDATE_BLOCK)


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
