"""Products of rows with weights, each by the library and in the order that is fastest for it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import switched_on

# With so few columns, classes mostly, a product on a CPU is up to three times faster turned around.
NARROW = 16
# Multiplications from which on oneDNN makes up for its slow start; sooner with few columns.
LEAST_WORK = 2**24
LEAST_NARROW_WORK = 2**18
# Two thin products must save at least this share of the work of one: they write more.
SAVED = 0.2


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
    room: Callable[[], Tensor] | None = None,
) -> Float[Tensor, "n h"]:
    """X W + b, in the memory that ``room`` gives where the library can."""
    if ONE_DNN is not None and _suits(X, W):
        return ONE_DNN(X, W.T, b)
    if W.shape[1] <= NARROW and not X.is_cuda:
        W = W.T.contiguous().T  # laid out this way a narrow product is twice as fast
    out = None if room is None else room()
    return torch.mm(X, W, out=out) if b is None else torch.addmm(b, X, W, out=out)


def put_product(
    total: Float[Tensor, "d h"], A: Float[Tensor, "d n"], B: Float[Tensor, "n h"], *, add: bool
) -> None:
    """total = A B or, to ``add``, total += A B; in its number type as far as the device can."""
    if A.dtype == total.dtype and not (B.shape[1] <= NARROW and not A.is_cuda):
        total.addmm_(A, B, beta=int(add))
    elif A.is_cuda and total.dtype == torch.float32 and not add:
        torch.mm(A, B, out_dtype=total.dtype, out=total)
    elif A.is_cuda:
        _put(total, torch.mm(A, B, out_dtype=torch.float32), add=add)
    else:
        _put(total, product(B.T, A.T).T if B.shape[1] <= NARROW else torch.mm(A, B), add=add)


def put_sum(total: Float[Tensor, " h"], B: Float[Tensor, "n h"], *, add: bool) -> None:
    """The same with the sum of the rows of B; torch would turn all into another type first."""
    if B.dtype == total.dtype or B.is_cuda:
        _put(total, B.sum(0, dtype=total.dtype), add=add)
    else:
        _put(total, (B.new_ones(1, len(B)) @ B)[0], add=add)


def _put(total: Tensor, value: Tensor, *, add: bool) -> None:
    if add:
        total += value
    else:
        total.copy_(value)


@dataclass(frozen=True)
class Layer:
    """What rows go through: W itself, or its ``factors`` A' and S where that is less work.

    Only the way forward gains: the gradient in W takes as much work either way.
    """

    W: Float[Tensor, "_ _"]
    factors: tuple[Tensor, Tensor] | None = None

    def __call__(
        self, X: Float[Tensor, "n d"], room: Callable[[], Tensor] | None = None
    ) -> Float[Tensor, "n h"]:
        """[1, x] W for every row."""
        if self.factors is None:
            return product(X, self.W[1:], self.W[0], room)
        A, S = self.factors
        return product(product(X, A[1:], A[0]), S, room=room)

    def rectified(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "n h"] | None:
        """max(0, [1, x] W) for every row in one go; None where oneDNN is not there for it."""
        if ONE_DNN is None or not _suits(X, self.W[1:], types=(torch.float32, torch.bfloat16)):
            return None
        if self.factors is None:
            return ONE_DNN(X, self.W[1:].T, self.W[0], "relu")
        A, S = self.factors
        return ONE_DNN(product(X, A[1:], A[0]), S.T, None, "relu")


def as_layer(
    W: Float[Tensor, "_ _"], factors: tuple[Tensor, Tensor] | None, X: Float[Tensor, "n _"]
) -> Layer:
    """The cheaper way for rows like X.

    A GPU is better off with one large product. Factors in bfloat16 would lose digits: their product
    is a small difference of large numbers.
    """
    if factors is None or X.is_cuda or factors[0].dtype != X.dtype or not switched_on():
        return Layer(W.to(X.dtype))
    A, S = factors
    (p, d), h = A.shape, W.shape[1]
    return Layer(W, (A.T.contiguous(), S) if p * (d + h) <= (1 - SAVED) * d * h else None)
