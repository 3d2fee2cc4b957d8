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
    if the loss or a gradient is not finite, counted in ``failures[1]``.
    """
    programs = [triton.cdiv(gradient.numel(), BLOCK) for gradient in gradients]
    wrong = torch.empty(sum(programs), dtype=torch.int32, device=loss.device)
    skip = torch.empty((), dtype=torch.bool, device=loss.device)
    report = torch.empty_like(loss)

    def look(gradient: Tensor, flags: Tensor) -> None:
        _flag[(len(flags),)](gradient.contiguous(), flags, gradient.numel(), B=BLOCK, num_warps=4)

    flags = wrong.split(programs)
    works = [partial(look, *each) for each in zip(gradients, flags, strict=True)]
    side_by_side(works, loss.device)
    layers = error.numel()
    _judge[(1,)](
        loss,
        error,
        wrong,
        failures,
        skip,
        report,
        layers,
        len(wrong),
        tolerance,
        L=triton.next_power_of_2(layers),
        P=triton.next_power_of_2(len(wrong)),
        num_warps=1,
    )
    return skip, report


@triton.jit
def _flag(G, WRONG, n, B: tl.constexpr):
    """1 for a block of numbers that are not all finite, else 0."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(G + at, mask=at < n, other=0.0)
    tl.store(WRONG + tl.program_id(0), tl.max(tl.where(tl.abs(g) < float("inf"), 0, 1), 0))


@triton.jit(do_not_specialize=["layers", "blocks"])
def _judge(
    LOSS, ERROR, WRONG, FAILURES, SKIP, REPORT, layers, blocks, tolerance,
    L: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    layer = tl.arange(0, L)
    block = tl.arange(0, P)
    errors = tl.load(ERROR + layer, mask=layer < layers, other=0.0)
    unsolved = tl.max(tl.where(errors < tolerance, 0, 1), 0)
    wrong = tl.max(tl.load(WRONG + block, mask=block < blocks, other=0), 0)
    loss = tl.load(LOSS)
    broken = tl.where((tl.abs(loss) < float("inf")) & (wrong == 0), 0, 1)
    skip = tl.maximum(unsolved, broken)
    tl.store(FAILURES, tl.load(FAILURES) + unsolved)
    tl.store(FAILURES + 1, tl.load(FAILURES + 1) + broken * (1 - unsolved))
    tl.store(SKIP, skip > 0)
    tl.store(REPORT, tl.where(skip > 0, float("nan"), loss))
