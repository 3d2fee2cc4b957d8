"""Whether a step may be taken: two dozen tiny operations of torch in a few launches."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def verdict(
    loss: Tensor, error: Tensor, gradients: Sequence[Tensor], failures: Tensor, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Whether to skip the step, and its loss, NaN if so.

    It is skipped if the error of a solve is not below the tolerance, counted in ``failures[0]``, or
    if the loss or a gradient is not finite, counted in ``failures[1]``.
    """
    wrong = torch.zeros((), dtype=torch.int32, device=loss.device)
    skip = torch.empty((), dtype=torch.bool, device=loss.device)
    report = torch.empty_like(loss)
    for gradient in gradients:
        n = gradient.numel()
        _flag[(triton.cdiv(n, BLOCK),)](gradient.contiguous(), wrong, n, B=BLOCK, num_warps=4)
    layers = error.numel()
    _judge[(1,)](
        loss,
        error,
        wrong,
        failures,
        skip,
        report,
        layers,
        tolerance,
        P=triton.next_power_of_2(layers),
        num_warps=1,
    )
    return skip, report


@triton.jit
def _flag(G, WRONG, n, B: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * B + tl.arange(0, B)
    g = tl.load(G + at, mask=at < n, other=0.0)
    finite = tl.abs(g) < float("inf")
    if tl.max(tl.where(finite, 0, 1), 0) > 0:
        tl.atomic_max(WRONG, 1)


@triton.jit(do_not_specialize=["layers"])
def _judge(  # type: ignore[no-untyped-def]
    LOSS, ERROR, WRONG, FAILURES, SKIP, REPORT, layers, tolerance, P: tl.constexpr
):
    at = tl.arange(0, P)
    errors = tl.load(ERROR + at, mask=at < layers, other=0.0)
    unsolved = tl.max(tl.where(errors < tolerance, 0, 1), 0)
    loss = tl.load(LOSS)
    finite = (tl.abs(loss) < float("inf")) & (tl.load(WRONG) == 0)
    broken = tl.where(finite, 0, 1)
    skip = tl.maximum(unsolved, broken)
    tl.store(FAILURES, tl.load(FAILURES) + unsolved)
    tl.store(FAILURES + 1, tl.load(FAILURES + 1) + broken * (1 - unsolved))
    tl.store(SKIP, skip > 0)
    tl.store(REPORT, tl.where(skip > 0, float("nan"), loss))
