"""The inverse of symmetric positive definite matrices, by block Gauss-Jordan elimination.

A library's Cholesky factor and triangular solves of a few hundred rows take dozens of small
launches one after another, and layers wait for each other. Here every block of columns is one
launch for all of them, and the pivots say whether a matrix was positive definite.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# The fastest of what was tried on an H200.
BLOCK = 32
WARPS = 4


def sweep_inverse(systems: Tensor) -> tuple[Tensor, Tensor]:
    """K^-1 of each float32 K, and eps ||K|| ||K^-1||, inf where K is not positive definite."""
    systems = systems.contiguous()
    batch, n, _ = systems.shape
    blocks = triton.cdiv(n, BLOCK)
    pivots = systems.new_empty(batch, blocks)
    # of |K| and |K^-1|, by block of columns
    sums = systems.new_empty(batch, 2, blocks, n)
    before, after = systems, torch.empty_like(systems)
    spare = torch.empty_like(systems)
    for block in range(blocks):
        _eliminate[(blocks, blocks, batch)](
            before, after, pivots, sums, n, block, B=BLOCK, num_warps=WARPS
        )
        before, after = after, spare if block == 0 else before
    error, eps = systems.new_empty(batch), torch.finfo(torch.float32).eps
    rounded = {"P": triton.next_power_of_2(n), "N": triton.next_power_of_2(blocks)}
    _estimate[(batch,)](pivots, sums, error, n, blocks, eps, **rounded)
    return before, error


@triton.jit
def _tile(M, i, k, n, B: tl.constexpr):
    """Block (i, k), zero outside the matrix."""
    rows = i * B + tl.arange(0, B)
    columns = k * B + tl.arange(0, B)
    inside = (rows[:, None] < n) & (columns[None, :] < n)
    return tl.load(M + rows[:, None] * n + columns[None, :], mask=inside, other=0.0)


@triton.jit
def _picked(values, mask):
    """The value of each column where the mask is set: as bits, whose zeros cost no addition."""
    bits = tl.where(mask, values.to(tl.int32, bitcast=True), 0)
    return tl.sum(bits, 0).to(tl.float32, bitcast=True)


@triton.jit
def _inverse(D, B: tl.constexpr):
    """The inverse of a symmetric block, and its lowest pivot, -inf if one is not positive.

    Rows are columns as well all the way. The loop is unrolled: where a row lies is known then.
    """
    at = tl.arange(0, B)
    down = at[:, None]
    across = at[None, :]
    lowest = float("inf")
    for p in tl.static_range(B):
        row = _picked(D, down == p)
        pivot = _picked(row, at == p)
        # a pivot that is no number must show: min would drop it
        lowest = tl.where(pivot > 0, tl.minimum(lowest, pivot), float("-inf"))
        scaled = row / pivot
        new = D - row[:, None] * scaled[None, :]
        new = tl.where(down == p, scaled[None, :], new)
        new = tl.where(across == p, scaled[:, None], new)
        D = tl.where((down == p) & (across == p), -1.0 / pivot, new)
    return -D, lowest


@triton.jit(do_not_specialize=["n", "j"])
def _eliminate(BEFORE, AFTER, PIVOTS, SUMS, n, j, B: tl.constexpr):
    """Block (i, k) after the elimination of block column j; every program inverts the pivot."""
    i = tl.program_id(0)
    k = tl.program_id(1)
    blocks = tl.num_programs(0)
    batch = tl.program_id(2)
    M = BEFORE + batch * n * n
    down = tl.arange(0, B)[:, None]
    across = tl.arange(0, B)[None, :]
    # all that is needed is on its way while the pivot is inverted
    D = _tile(M, j, j, n, B)
    here = _tile(M, i, k, n, B)
    left = _tile(M, i, j, n, B)
    above = _tile(M, j, k, n, B)
    D, lowest = _inverse(tl.where((down == across) & (j * B + down >= n), 1.0, D), B)
    if i == j:
        if k == j:
            result = D
            tl.store(PIVOTS + batch * blocks + j, lowest)
        else:
            result = tl.dot(D, above, input_precision="ieee")
    else:
        left = tl.dot(left, D, input_precision="ieee")
        result = -left if k == j else here - tl.dot(left, above, input_precision="ieee")
    rows = i * B + down
    columns = k * B + across
    to = AFTER + batch * n * n + rows * n + columns
    tl.store(to, result, mask=(rows < n) & (columns < n))
    rows = i * B + tl.arange(0, B)
    sums = SUMS + (batch * 2 * blocks + k) * n + rows
    if j == 0:
        tl.store(sums, tl.sum(tl.abs(here), 1), mask=rows < n)
    if j == blocks - 1:
        # a block may reach beyond the matrix
        result = tl.where(columns < n, result, 0.0)
        tl.store(sums + blocks * n, tl.sum(tl.abs(result), 1), mask=rows < n)


@triton.jit(do_not_specialize=["n", "blocks"])
def _estimate(PIVOTS, SUMS, ERROR, n, blocks, eps, P: tl.constexpr, N: tl.constexpr):
    """eps times the largest row sums of |K| and |K^-1|; inf where a pivot was not positive."""
    batch = tl.program_id(0)
    rows = tl.arange(0, P)[None, :]
    block = tl.arange(0, N)
    at = (batch * 2 * blocks + block[:, None]) * n + rows
    inside = (block[:, None] < blocks) & (rows < n)
    norm = tl.max(tl.sum(tl.load(SUMS + at, mask=inside, other=0.0), 0))
    inverse_norm = tl.max(tl.sum(tl.load(SUMS + blocks * n + at, mask=inside, other=0.0), 0))
    pivots = tl.load(PIVOTS + batch * blocks + block, mask=block < blocks, other=float("inf"))
    error = eps * norm * inverse_norm
    good = (tl.min(pivots) > 0) & (error < float("inf"))
    tl.store(ERROR + batch, tl.where(good, error, float("inf")))
