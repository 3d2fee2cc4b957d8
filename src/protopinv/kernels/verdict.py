"""Whether a step may be taken: two dozen tiny operations of torch in a few launches."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

import torch
import triton
import triton.language as tl
from torch import Tensor

from protopinv.kernels.streams import side_by_side

BLOCK = 4096


def verdict(
    loss: Tensor, error: Tensor, gradients: Sequence[Tensor], failures: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Which members' step to skip, and the losses, NaN for these. Members come first everywhere.

    A step is skipped if the error of a solve is not below the tolerance, counted in
    ``failures[:, 0]``, or if the loss or the norm of the gradients is not finite, counted in
    ``failures[:, 1]``.
    """
    m = len(loss)
    programs = [triton.cdiv(gradient.numel() // m, BLOCK) for gradient in gradients]
    blocks = sum(programs)
    squares = torch.empty(m, blocks, device=loss.device)
    skip = torch.empty(m, dtype=torch.bool, device=loss.device)
    report = torch.empty_like(loss)

    def square(gradient: Tensor, count: int, upto: int) -> None:
        _square[(count, m)](
            gradient.contiguous(),
            squares,
            gradient.numel() // m,
            upto - count,
            blocks,
            B=BLOCK,
            num_warps=4,
        )

    each = zip(gradients, programs, accumulate(programs), strict=True)
    side_by_side([partial(square, *given) for given in each], loss.device)
    layers = error.shape[1]
    _judge[(m,)](
        loss,
        error.contiguous(),
        squares,
        failures,
        skip,
        report,
        layers,
        blocks,
        tolerance,
        L=triton.next_power_of_2(layers),
        P=triton.next_power_of_2(blocks),
        num_warps=1,
    )
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
