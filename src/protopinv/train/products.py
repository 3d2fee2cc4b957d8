"""Products of rows with weights, each by the library and in the order that is fastest for it."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import side_by_side, switched_on

# With so few columns, classes mostly, a product on a CPU is up to three times faster turned around.
NARROW = 16
# Multiplications from which on oneDNN makes up for its slow start; sooner with few columns.
LEAST_WORK = 2**24
LEAST_NARROW_WORK = 2**18
# Two thin products must save at least this share of the work of one: they write more.
SAVED = 0.2
# Entries on a side of a tile of a product on a GPU, how many blocks of threads fill one, and rows
# from which on a block has enough to do.
TILE = 64
BLOCKS = 1056
LEAST_ROWS = 256

# Memory to write to, made when it is asked for.
Room = Callable[[], Tensor]


def _one_dnn() -> Callable[..., Tensor] | None:
    """x, w, b, "none" or "relu" -> x w' + b by oneDNN; None without it.

    Torch offers it to its compiler only. In float32 it is about a tenth faster than what ``addmm``
    calls, for ten columns twice as fast.
    """
    if not torch.backends.mkldnn.is_available() or not hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    ):
        return None
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda x, w, b=None, then="none": linear(x, w, b, then, [], "")


ONE_DNN = _one_dnn()


def _suits(
    X: Float[Tensor, "n d"],
    W: Float[Tensor, "d h"],
    types: tuple[torch.dtype, ...] = (torch.float32,),
) -> bool:
    """Whether oneDNN is the better choice: it starts slowly, and crawls through rows with gaps."""
    (n, d), h = X.shape, W.shape[1]
    enough = n * d * h >= (LEAST_NARROW_WORK if min(n, h) <= NARROW else LEAST_WORK)
    return (
        enough
        and switched_on()
        and X.device.type == "cpu"
        and X.dtype in types
        and all(M.is_contiguous() or M.T.is_contiguous() for M in (X, W))
    )


def product(
    X: Float[Tensor, "n d"],
    W: Float[Tensor, "d h"],
    b: Float[Tensor, " h"] | None = None,
    room: Room | None = None,
) -> Float[Tensor, "n h"]:
    """X W + b, in the memory that ``room`` gives where the library can."""
    if ONE_DNN is not None and _suits(X, W):
        return ONE_DNN(X, W.T, b)
    if W.shape[1] <= NARROW and not X.is_cuda:
        W = W.T.contiguous().T  # laid out this way a narrow product is twice as fast
    out = None if room is None else room()
    return torch.mm(X, W, out=out) if b is None else torch.addmm(b, X, W, out=out)


def put_product(
    total: Float[Tensor, "d h"], A: Float[Tensor, "d n"], B: Float[Tensor, "n h"]
) -> None:
    """total = A B, in its number type as far as the device can."""
    if A.dtype == total.dtype and not (B.shape[1] <= NARROW and not A.is_cuda):
        total.addmm_(A, B, beta=0)
    elif A.is_cuda and total.dtype == torch.float32:
        torch.mm(A, B, out_dtype=total.dtype, out=total)
    elif A.is_cuda:
        total.copy_(torch.mm(A, B, out_dtype=torch.float32))
    else:
        total.copy_(product(B.T, A.T).T if B.shape[1] <= NARROW else torch.mm(A, B))


def put_sum(total: Float[Tensor, "m h"], B: Float[Tensor, "n mh"]) -> None:
    """total = the sum of the rows of B; torch would turn all into another type first."""
    if B.dtype == total.dtype or B.is_cuda:
        value = B.sum(0, dtype=total.dtype)
    else:
        value = (B.new_ones(1, len(B)) @ B)[0]
    total.copy_(value.view(total.shape))


def by_member(Z: Tensor, m: int) -> Float[Tensor, "m n h"]:
    """Rows whose members lie side by side, as a batch of matrices, without copying."""
    members: Tensor = Z if Z.ndim == 3 else Z.unflatten(1, (m, -1)).transpose(0, 1)
    return members


class WideLayer:
    """One product for all members: a single member's layer, or the first of several.

    Behind a layer the units of all members lie side by side; ``width`` counts them. For a single
    member rows may go through ``factors`` A' and S with W = A'S, where that is less work. Only the
    way forward gains: the gradient in W takes as much work either way.
    """

    def __init__(
        self, W: Float[Tensor, "m _ h"], factors: tuple[Tensor, Tensor] | None = None
    ) -> None:
        self.members, self.factors = len(W), factors
        self.W = self.like = W[0] if len(W) == 1 else W.transpose(0, 1).reshape(W.shape[1], -1)
        self.width = self.W.shape[1]

    def __call__(self, X: Tensor, room: Room | None = None) -> Float[Tensor, "n mh"]:
        """[1, x] W for every row, in the memory that ``room`` gives where the library can."""
        if self.factors is None:
            return product(X, self.W[1:], self.W[0], room)
        A, S = self.factors
        return product(product(X, A[1:], A[0]), S, room=room)

    def rectified(self, X: Tensor) -> Float[Tensor, "n mh"] | None:
        """max(0, [1, x] W) for every row in one go, where oneDNN is there for it."""
        if ONE_DNN is None or not _suits(X, self.W[1:], types=(torch.float32, torch.bfloat16)):
            return None
        if self.factors is None:
            return ONE_DNN(X, self.W[1:].T, self.W[0], "relu")
        A, S = self.factors
        return ONE_DNN(product(X, A[1:], A[0]), S.T, None, "relu")

    def outputs(self, X: Tensor) -> Float[Tensor, "m k n"]:
        """([1, x] W)' of a last layer: outputs before rows, as objectives take them."""
        return self(X).T.contiguous()[None]

    def back(self, G: Float[Tensor, "n mh"], room: Room) -> Float[Tensor, "n md"]:
        """G W': the gradient before the layer from the one behind it."""
        return product(G, self.W[1:].T, room=room)

    def put_gradient(
        self, total: Float[Tensor, "m d h"], X: Tensor, G: Float[Tensor, "n mh"]
    ) -> None:
        """total = X'G: the gradient in W without its first row."""
        if self.members == 1:
            put_product(total[0], X.T, G)
            return
        wide = torch.empty(X.shape[1], G.shape[1], dtype=total.dtype, device=total.device)
        put_product(wide, X.T, G)
        total.copy_(by_member(wide, self.members))


class BatchedLayer:
    """A layer of several members, each of which sees rows of its own; methods as of WideLayer."""

    def __init__(self, W: Float[Tensor, "m _ h"]) -> None:
        self.W = self.like = W
        self.width = W.shape[0] * W.shape[2]

    def __call__(self, X: Tensor, room: Room | None = None) -> Float[Tensor, "n mh"]:
        """[1, x] W for every row, members apart."""
        W, m = self.W, len(self.W)
        out = X.new_empty(X.shape[-2], self.width) if room is None else room()
        torch.baddbmm(W[:, :1], by_member(X, m), W[:, 1:], out=by_member(out, m))
        return out

    def outputs(self, X: Tensor) -> Float[Tensor, "m k n"]:
        """([1, x] W)', turned around before the product: for few outputs that is much faster."""
        turned = self.W.mT
        return torch.baddbmm(turned[..., :1], turned[..., 1:], by_member(X, len(self.W)).mT)

    def back(self, G: Float[Tensor, "n mh"], room: Room) -> Float[Tensor, "n md"]:
        """G W', members apart."""
        out, m = room(), len(self.W)
        torch.bmm(by_member(G, m), self.W[:, 1:].mT, out=by_member(out, m))
        return out

    def put_gradient(
        self, total: Float[Tensor, "m d h"], X: Tensor, G: Float[Tensor, "n mh"]
    ) -> None:
        """X'G, members apart."""
        A, B = by_member(X, len(self.W)).mT, by_member(G, len(self.W))
        if self.W.shape[2] <= NARROW and not A.is_cuda:
            total.copy_(torch.bmm(B.mT, A.mT).mT)
        elif A.is_cuda and A.dtype == total.dtype:
            total.copy_(long_product(A, B))
        elif A.dtype == total.dtype:
            total.baddbmm_(A, B, beta=0)
        elif A.is_cuda:
            total.copy_(torch.bmm(A, B, out_dtype=torch.float32))
        else:
            total.copy_(torch.bmm(A, B))


Layer = WideLayer | BatchedLayer


def as_layers(
    weights: Sequence[Float[Tensor, "m _ _"]],
    factors: Sequence[tuple[Tensor, Tensor] | None],
    X: Float[Tensor, "*members n _"],
) -> list[Layer]:
    """The cheapest way for rows like X, layer by layer.

    A GPU is better off with one large product than with factors. Factors in bfloat16 would lose
    digits: their product is a small difference of large numbers.
    """
    first, *others = (W.to(X.dtype) for W in weights)
    if len(first) > 1:
        at_first = WideLayer(first) if X.ndim == 2 else BatchedLayer(first)
        return [at_first, *map(BatchedLayer, others)]
    layers: list[Layer] = []
    for W, pair in zip((first, *others), factors or [None] * len(weights), strict=True):
        (_, d, h), thin = W.shape, None
        if pair is not None and switched_on() and not X.is_cuda and pair[0].dtype == X.dtype:
            (p, _), (A, S) = pair[0].shape, pair
            thin = (A.T.contiguous(), S) if p * (d + h) <= (1 - SAVED) * d * h else None
        layers.append(WideLayer(W, thin))
    return layers


def long_product(A: Float[Tensor, "m d n"], B: Float[Tensor, "m n h"]) -> Float[Tensor, "m d h"]:
    """A B of every member, for many rows n on a GPU.

    A library has one block of threads walk along all rows for every tile of the result. Here rows
    are cut into pieces, so that there are blocks enough to fill the device, and the pieces summed.
    """
    (m, d, n), h = A.shape, B.shape[2]
    tiles = m * -(-d // TILE) * -(-h // TILE)
    pieces = min(BLOCKS // tiles, n // LEAST_ROWS)
    if pieces < 2:
        return torch.bmm(A, B)
    rows = n // pieces
    cut = rows * pieces
    parts = A.new_empty(m, pieces, d, h)

    def member(i: int) -> None:
        left = A[i, :, :cut].unflatten(1, (pieces, rows)).transpose(0, 1)
        torch.bmm(left, B[i, :cut].unflatten(0, (pieces, rows)), out=parts[i])

    side_by_side([partial(member, i) for i in range(m)], A.device)
    total = parts.sum(1)
    return total if cut == n else total.baddbmm_(A[:, :, cut:], B[:, cut:])
