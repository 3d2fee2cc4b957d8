"""The last layer, the loss and the way back through both.

In torch that is a dozen passes over the last hidden layer. Here it is two: one reads it and leaves
the gradient in the outputs, one reads it again and leaves the gradient in its place.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

# The fastest of what was tried on an H200; larger tiles do not fit the registers.
ROWS = 64
ROWS_BACK = 32
COLUMNS = 64
WARPS = 4
GROUPS = 264


@dataclass(frozen=True)
class LastLayer:
    """Loss and gradients of every member, still by tile and by group of rows."""

    sums: Tensor
    parts: Tensor

    def finish(self, dW: Tensor, dz: Tensor) -> Tensor:
        """The losses; their gradients in W and the column sums of those in Z are put.

        ``dW`` is (m, 1 + h, k) and ``dz`` (m, h), of which only the last axis must be dense.
        """
        (m, wide, tiles), (_, groups, h, _) = self.sums.shape, self.parts.shape
        loss, tile = self.sums.new_empty(m), finishing(wide)
        tensors = (self.sums, self.parts, loss, dW, dz)
        sizes = (h, dW.shape[2], dz.stride(0), tiles, groups)
        _finish[(triton.cdiv(h, tile["C"]) + 1, m)](*tensors, *sizes, K=wide, **tile)
        return loss


def finishing(wide: int) -> dict[str, int]:
    """Columns that a program finishes, and how many tiles and groups it reads at once."""
    return {"C": max(1, 64 // wide), "T": max(16, 8192 // wide), "G": 32}


def last_layer(
    Z: Tensor,
    W: Tensor,
    labels: Tensor,
    weight: Tensor | None,
    activation: str,
    *,
    smoothing: float,
    scale: float,
) -> LastLayer:
    """Z (n, m h), what the activation is given, is replaced by the gradient of the loss in it.

    The units of all m members lie side by side in Z. W (m, 1 + h, k) has the bias first. The loss
    is ``scale`` times its sum over rows, each by its ``weight``, which is one row of weights for
    all members or one each. Products are made in the number type of Z, sums in float32, always in
    the same order.
    """
    n, (m, h, k) = len(Z), (W.shape[0], W.shape[1] - 1, W.shape[2])
    wide = max(16, triton.next_power_of_2(k + 1))
    tiles = triton.cdiv(n, ROWS)
    groups = min(GROUPS, triton.cdiv(n, ROWS_BACK))
    G = Z.new_empty(m, n, wide)
    sums = torch.empty(m, wide, tiles, device=Z.device)
    parts = torch.empty(m, groups, h, wide, device=Z.device)
    weights, sizes = W.contiguous(), (n, h, k)
    counted = sums if weight is None else weight
    between = 0 if len(counted) == 1 else counted.stride(0)
    tile = {"K": wide, "C": COLUMNS, "ACTIVATION": activation, "num_warps": WARPS}
    tensors = (Z, weights, labels, counted, G, sums)
    numbers = (*sizes, between, scale, smoothing)
    _forward[(tiles, m)](*tensors, *numbers, R=ROWS, WEIGHED=weight is not None, **tile)
    blocks = (triton.cdiv(h, COLUMNS), groups, m)
    _backward[blocks](Z, weights, G, parts, *sizes, R=ROWS_BACK, **tile)
    return LastLayer(sums, parts)


@triton.jit
def _act(z, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return tl.maximum(z, 0.0)
    elif ACTIVATION == "silu":
        return z * tl.sigmoid(z)
    elif ACTIVATION == "gelu":
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    elif ACTIVATION == "tanh":
        return 2.0 * tl.sigmoid(2.0 * z) - 1.0
    else:
        return tl.sigmoid(z)


@triton.jit
def _slope(z, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        return tl.where(z > 0, 1.0, 0.0)
    elif ACTIVATION == "silu":
        s = tl.sigmoid(z)
        return s * (1.0 + z * (1.0 - s))
    elif ACTIVATION == "gelu":
        density = 0.3989422804014327 * tl.exp(-0.5 * z * z)
        return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density
    elif ACTIVATION == "tanh":
        t = 2.0 * tl.sigmoid(2.0 * z) - 1.0
        return 1.0 - t * t
    else:
        s = tl.sigmoid(z)
        return s * (1.0 - s)


# Sizes of tables are all different: a kernel made for each would be compiled again and again.
@triton.jit(do_not_specialize=["n", "k", "between"])
def _forward(
    Z, W, Y, V, G, SUMS, n, h, k, between, scale, smoothing,
    K: tl.constexpr, R: tl.constexpr, C: tl.constexpr, ACTIVATION: tl.constexpr,
    WEIGHED: tl.constexpr,
):  # fmt: skip
    """The gradient in the outputs of a tile of rows, its sums and its loss, of one member."""
    tile = tl.program_id(0)
    member = tl.program_id(1)
    in_row = tl.num_programs(1) * h
    W += member * (1 + h) * k
    rows = tile * R + tl.arange(0, R)
    inside = rows < n
    classes = tl.arange(0, K)
    valid = classes < k
    outputs = tl.zeros((R, K), dtype=tl.float32)
    for start in range(0, h, C):
        columns = start + tl.arange(0, C)
        in_z = rows.to(tl.int64)[:, None] * in_row + member * h + columns[None, :]
        z = tl.load(Z + in_z, mask=inside[:, None] & (columns[None, :] < h), other=0.0)
        a = _act(z.to(tl.float32), ACTIVATION).to(z.dtype)
        in_w = (1 + columns[:, None]) * k + classes[None, :]
        w = tl.load(W + in_w, mask=(columns[:, None] < h) & valid[None, :], other=0.0)
        outputs += tl.dot(a, w.to(z.dtype), input_precision="ieee")
    outputs += tl.load(W + classes, mask=valid, other=0.0).to(tl.float32)[None, :]
    outputs = tl.where(valid[None, :], outputs, float("-inf"))
    outputs -= tl.max(outputs, 1)[:, None]
    powers = tl.exp(outputs)
    total = tl.sum(powers, 1)
    logs = tl.where(valid[None, :], outputs - tl.log(total)[:, None], 0.0)
    label = tl.load(Y + rows, mask=inside, other=0)
    target = tl.where(classes[None, :] == label[:, None], 1.0 - smoothing, 0.0)
    target += tl.where(valid[None, :], smoothing / k, 0.0)
    counts = tl.where(inside, scale, 0.0)
    if WEIGHED:
        counts *= tl.load(V + member * between + rows, mask=inside, other=0.0)
    loss = tl.sum(-target * logs * counts[:, None])
    g = (powers / total[:, None] - target) * counts[:, None]
    in_g = (member * n + rows.to(tl.int64))[:, None] * K + classes[None, :]
    tl.store(G + in_g, g.to(G.dtype.element_ty), mask=inside[:, None])
    sums = tl.where(classes == k, loss, tl.sum(g, 0))
    # tiles lie next to each other: the sum over them is several times faster
    tl.store(SUMS + (member * K + classes) * tl.num_programs(0) + tile, sums)


@triton.jit(do_not_specialize=["n", "k"])
def _backward(
    Z, W, G, PARTS, n, h, k,
    K: tl.constexpr, R: tl.constexpr, C: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """A block of a member's columns through every tile of a group: Z becomes its gradient."""
    columns = tl.program_id(0) * C + tl.arange(0, C)
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    member = tl.program_id(2)
    in_row = tl.num_programs(2) * h
    W += member * (1 + h) * k
    classes = tl.arange(0, K)
    in_w = (1 + columns[:, None]) * k + classes[None, :]
    w = tl.load(W + in_w, mask=(columns[:, None] < h) & (classes[None, :] < k), other=0.0)
    kind = Z.dtype.element_ty
    w = tl.trans(w.to(kind))
    products = tl.zeros((C, K), dtype=tl.float32)
    sums = tl.zeros((C,), dtype=tl.float32)
    for tile in range(group, tl.cdiv(n, R), groups):
        rows = tile * R + tl.arange(0, R)
        inside = (rows[:, None] < n) & (columns[None, :] < h)
        in_z = rows.to(tl.int64)[:, None] * in_row + member * h + columns[None, :]
        z = tl.load(Z + in_z, mask=inside, other=0.0).to(tl.float32)
        in_g = (member * n + rows.to(tl.int64))[:, None] * K + classes[None, :]
        g = tl.load(G + in_g, mask=rows[:, None] < n, other=0.0)
        dz = tl.dot(g, w, input_precision="ieee") * _slope(z, ACTIVATION)
        a = tl.trans(_act(z, ACTIVATION).to(kind))
        products += tl.dot(a, g, input_precision="ieee")
        sums += tl.sum(dz, 0)
        tl.store(Z + in_z, dz.to(kind), mask=inside)
    products = tl.where(classes[None, :] == k, sums[:, None], products)
    in_parts = ((member * groups + group) * h + columns[:, None]) * K + classes[None, :]
    tl.store(PARTS + in_parts, products, mask=columns[:, None] < h)


@triton.jit(do_not_specialize=["k", "between", "tiles", "groups"])
def _finish(
    SUMS, PARTS, LOSS, DW, DZ, h, k, between, tiles, groups,
    K: tl.constexpr, C: tl.constexpr, T: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """Sums over tiles, by the last program, and over groups, for a few columns by each other.

    The place behind the classes holds the loss of a tile, and the sums of a group.
    """
    block = tl.program_id(0)
    member = tl.program_id(1)
    classes = tl.arange(0, K)
    SUMS += member * K * tiles
    PARTS += member * groups * h * K
    LOSS += member
    DW += member * (1 + h) * k
    DZ += member * between
    if block == tl.num_programs(0) - 1:
        by_tile = tl.zeros((K, T), dtype=tl.float32)
        for start in range(0, tiles, T):
            tile = (start + tl.arange(0, T))[None, :]
            in_sums = classes[:, None] * tiles + tile
            by_tile += tl.load(SUMS + in_sums, mask=tile < tiles, other=0.0)
        last = tl.sum(by_tile, 1)
        tl.store(LOSS + classes * 0, last, mask=classes == k)
        tl.store(DW + classes, last, mask=classes < k)
    else:
        columns = block * C + tl.arange(0, C)
        inside = (columns[:, None] < h) & (classes[None, :] < k)
        by_group = tl.zeros((G, C, K), dtype=tl.float32)
        for start in range(0, groups, G):
            group = (start + tl.arange(0, G))[:, None, None]
            in_parts = group * h * K + columns[None, :, None] * K + classes[None, None, :]
            there = (group < groups) & (columns[None, :, None] < h)
            by_group += tl.load(PARTS + in_parts, mask=there, other=0.0)
        total = tl.sum(by_group, 0)
        of_z = tl.sum(tl.where(classes[None, :] == k, total, 0.0), 1)
        to = DW + (1 + columns[:, None]) * k + classes[None, :]
        tl.store(to, total, mask=inside)
        tl.store(DZ + columns, of_z, mask=columns < h)
