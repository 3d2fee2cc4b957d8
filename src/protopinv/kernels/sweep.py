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
ESTIMATE_ROWS = 64


def sweep_inverse(systems: Tensor) -> tuple[Tensor, Tensor]:
    """K^-1 of each float32 K, and eps ||K|| ||K^-1||, inf where K is not positive definite."""
    systems = systems.contiguous()
    batch, n, _ = systems.shape
    blocks = triton.cdiv(n, BLOCK)
    pivots = systems.new_empty(batch, blocks)
    before, after = systems, torch.empty_like(systems)
    spare = torch.empty_like(systems)
    for block in range(blocks):
        _eliminate[(blocks, blocks, batch)](
            before, after, pivots, n, block, B=BLOCK, num_warps=WARPS
        )
        before, after = after, spare if block == 0 else before
    error = systems.new_empty(batch)
    _estimate[(batch,)](
        systems,
        before,
        pivots,
        error,
        n,
        blocks,
        torch.finfo(torch.float32).eps,
        P=triton.next_power_of_2(n),
        R=ESTIMATE_ROWS,
        num_warps=8,
    )
    return before, error


@triton.jit
def _tile(M, i, k, n, B: tl.constexpr):
    """Block (i, k), zero outside the matrix."""
    rows = i * B + tl.arange(0, B)
    columns = k * B + tl.arange(0, B)
    inside = (rows[:, None] < n) & (columns[None, :] < n)
    return tl.load(M + rows[:, None] * n + columns[None, :], mask=inside, other=0.0)


@triton.jit(do_not_specialize=["n", "j"])
def _eliminate(BEFORE, AFTER, PIVOTS, n, j, B: tl.constexpr):
    """Block (i, k) after the elimination of block column j; every program inverts the pivot."""
    i = tl.program_id(0)
    k = tl.program_id(1)
    blocks = tl.num_programs(0)
    batch = tl.program_id(2)
    M = BEFORE + batch * n * n
    at = tl.arange(0, B)
    down = at[:, None]
    across = at[None, :]
    D = _tile(M, j, j, n, B)
    D = tl.where((down == across) & (j * B + down >= n), 1.0, D)
    lowest = float("inf")
    for p in range(B):
        row = tl.sum(tl.where(down == p, D, 0.0), 0)
        column = tl.sum(tl.where(across == p, D, 0.0), 1)
        pivot = tl.sum(tl.where(at == p, row, 0.0), 0)
        # a pivot that is no number must show: min would drop it
        lowest = tl.where(pivot > 0, tl.minimum(lowest, pivot), float("-inf"))
        scaled = row / pivot
        new = D - column[:, None] * scaled[None, :]
        new = tl.where(down == p, scaled[None, :], new)
        new = tl.where(across == p, -column[:, None] / pivot, new)
        D = tl.where((down == p) & (across == p), 1.0 / pivot, new)
    if i == j:
        if k == j:
            result = D
            tl.store(PIVOTS + batch * blocks + j, lowest)
        else:
            result = tl.dot(D, _tile(M, j, k, n, B), input_precision="ieee")
    else:
        left = tl.dot(_tile(M, i, j, n, B), D, input_precision="ieee")
        if k == j:
            result = -left
        else:
            other = tl.dot(left, _tile(M, j, k, n, B), input_precision="ieee")
            result = _tile(M, i, k, n, B) - other
    rows = i * B + down
    columns = k * B + across
    to = AFTER + batch * n * n + rows * n + columns
    tl.store(to, result, mask=(rows < n) & (columns < n))


@triton.jit(do_not_specialize=["n", "blocks"])
def _estimate(K, INVERSE, PIVOTS, ERROR, n, blocks, eps, P: tl.constexpr, R: tl.constexpr):
    """eps times the largest row sums of |K| and |K^-1|; inf where a pivot was not positive."""
    batch = tl.program_id(0)
    columns = tl.arange(0, P)
    norm = 0.0
    inverse_norm = 0.0
    lowest = float("inf")
    for start in range(0, n, R):
        rows = start + tl.arange(0, R)
        inside = (rows[:, None] < n) & (columns[None, :] < n)
        at = batch * n * n + rows[:, None] * n + columns[None, :]
        here = tl.sum(tl.abs(tl.load(K + at, mask=inside, other=0.0)), 1)
        there = tl.sum(tl.abs(tl.load(INVERSE + at, mask=inside, other=0.0)), 1)
        norm = tl.maximum(norm, tl.max(here, 0))
        inverse_norm = tl.maximum(inverse_norm, tl.max(there, 0))
    for block in range(blocks):
        lowest = tl.minimum(lowest, tl.load(PIVOTS + batch * blocks + block))
    error = eps * norm * inverse_norm
    good = (lowest > 0) & (error < float("inf"))
    tl.store(ERROR + batch, tl.where(good, error, float("inf")))
