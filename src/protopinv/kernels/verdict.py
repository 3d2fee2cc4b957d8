"""Whether a step may be taken: two dozen tiny operations of torch in a few launches."""

from collections.abc import Sequence
from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from protopinv.kernels.streams import side_by_side

BLOCK = 4096


def verdict(
    loss: Tensor, error: Tensor, gradients: Sequence[Tensor], failures: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Whether to skip the step, and its loss, NaN if so.

    It is skipped if the error of a solve is not below the tolerance, counted in ``failures[0]``, or
    if the loss or the norm of the gradients is not finite, counted in ``failures[1]``.
    """
    programs = [triton.cdiv(gradient.numel(), BLOCK) for gradient in gradients]
    squares = torch.empty(sum(programs), device=loss.device)
    skip = torch.empty((), dtype=torch.bool, device=loss.device)
    report = torch.empty_like(loss)

    def square(gradient: Tensor, sums: Tensor) -> None:
        _square[(len(sums),)](gradient.contiguous(), sums, gradient.numel(), B=BLOCK, num_warps=4)

    parts = squares.split(programs)
    works = [partial(square, *each) for each in zip(gradients, parts, strict=True)]
    side_by_side(works, loss.device)
    layers = error.numel()
    _judge[(1,)](
        loss,
        error,
        squares,
        failures,
        skip,
        report,
        layers,
        len(squares),
        tolerance,
        L=triton.next_power_of_2(layers),
        P=triton.next_power_of_2(len(squares)),
        num_warps=1,
    )
    return skip, report


@triton.jit
def _square(G, SQUARES, n, B: tl.constexpr):
    """The sum of the squares of a block of numbers."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(G + at, mask=at < n, other=0.0)
    tl.store(SQUARES + tl.program_id(0), tl.sum(g * g, 0))


@triton.jit(do_not_specialize=["layers", "blocks"])
def _judge(
    LOSS, ERROR, SQUARES, FAILURES, SKIP, REPORT, layers, blocks, tolerance,
    L: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    layer = tl.arange(0, L)
    block = tl.arange(0, P)
    errors = tl.load(ERROR + layer, mask=layer < layers, other=0.0)
    unsolved = tl.max(tl.where(errors < tolerance, 0, 1), 0)
    squares = tl.sum(tl.load(SQUARES + block, mask=block < blocks, other=0.0), 0)
    loss = tl.load(LOSS)
    broken = tl.where(tl.abs(loss) + squares < float("inf"), 0, 1)
    skip = tl.maximum(unsolved, broken)
    tl.store(FAILURES, tl.load(FAILURES) + unsolved)
    tl.store(FAILURES + 1, tl.load(FAILURES + 1) + broken * (1 - unsolved))
    tl.store(SKIP, skip > 0)
    tl.store(REPORT, tl.where(skip > 0, float("nan"), loss))
