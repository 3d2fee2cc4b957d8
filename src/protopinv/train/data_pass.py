"""Rows through weights and the gradient back, written out: no graph is built for rows.

The derivative of a feed-forward network is short, and writing it out saves what autograd would
allocate for every chunk: activations stay in buffers, and products add up in the gradient itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import usable
from protopinv.kernels.streams import side_by_side
from protopinv.network import propagate
from protopinv.train.losses import CrossEntropy
from protopinv.train.products import Layer, as_layer, product, put_product, put_sum
from protopinv.train.rows import Rows

_aten = torch.ops.aten
# More than these do not fit the kernel for the last layer.
MOST_CLASSES = 127


@dataclass(frozen=True)
class InPlace:
    """An activation into a buffer, and the gradient behind it turned into the one before it.

    ``backward`` is given that gradient, which it overwrites, and either what the activation was
    given or, for ``from_output``, what it answered; then the buffer may be the input itself.
    """

    forward: Callable[[Tensor, Tensor], Any]
    backward: Callable[[Tensor, Tensor], Any]
    from_output: bool


IN_PLACE = {
    "relu": InPlace(
        lambda Z, out: torch.clamp_min(Z, 0, out=out),
        lambda G, A: _aten.threshold_backward.grad_input(G, A, 0, grad_input=G),
        from_output=True,
    ),
    "silu": InPlace(
        lambda Z, out: _aten.silu.out(Z, out=out),
        lambda G, Z: _aten.silu_backward.grad_input(G, Z, grad_input=G),
        from_output=False,
    ),
    "gelu": InPlace(
        lambda Z, out: _aten.gelu.out(Z, out=out),
        lambda G, Z: _aten.gelu_backward.grad_input(G, Z, grad_input=G),
        from_output=False,
    ),
    "tanh": InPlace(
        lambda Z, out: torch.tanh(Z, out=out),
        lambda G, A: _aten.tanh_backward.grad_input(G, A, grad_input=G),
        from_output=True,
    ),
    "sigmoid": InPlace(
        lambda Z, out: torch.sigmoid(Z, out=out),
        lambda G, A: _aten.sigmoid_backward.grad_input(G, A, grad_input=G),
        from_output=True,
    ),
}


@dataclass
class Buffers:
    """Memory of a chunk, made once for each size of chunk."""

    kept: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    def take(self, use: str, layer: int, like: Tensor, *shape: int) -> Tensor:
        """An empty tensor of this shape, the same one for the same use in the same layer."""
        key = (use, layer, *shape)
        if key not in self.kept:
            self.kept[key] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return self.kept[key]


@torch.no_grad()
def data_pass(
    rows: Rows,
    weights: Sequence[Float[Tensor, "_ _"]],
    activation: str,
    loss: CrossEntropy,
    *,
    chunk: int,
    factors: Sequence[tuple[Tensor, Tensor] | None] = (),
    augment: Callable[[Rows], Rows] | None = None,
    buffers: Buffers | None = None,
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """Mean loss over the rows and its exact gradient in every W, summed over chunks of rows.

    Products with rows are made in the number type of the rows, bfloat16 say; loss and gradients
    are those of the weights. With ``factors`` of weights rows go through these where it is cheaper.
    """
    buffers = Buffers() if buffers is None else buffers
    gradients = [torch.empty_like(W) for W in weights]
    given = factors or [None] * len(weights)
    layers = [as_layer(W, pair, rows.X) for W, pair in zip(weights, given, strict=True)]
    through = partial(_chunk, layers, activation, loss, gradients, buffers, 1 / len(rows))
    values = [
        through(part if augment is None else augment(part), add=number > 0)
        for number, part in enumerate(rows.chunks(chunk))
    ]
    return sum(values[1:], start=values[0]), gradients


def _chunk(
    layers: Sequence[Layer],
    activation: str,
    loss: CrossEntropy,
    gradients: Sequence[Tensor],
    buffers: Buffers,
    scale: float,
    rows: Rows,
    *,
    add: bool,
) -> Tensor:
    """``scale`` times the loss of a chunk; its gradients are put, or added to those there are."""
    n, act, top = len(rows), IN_PLACE[activation], len(layers) - 1
    by_kernel = _suits_kernel(rows, layers) and gradients[0].dtype == torch.float32
    inputs: list[Tensor] = [rows.X]
    before: list[Tensor] = []
    for depth, layer in enumerate(layers[:-1]):
        at_once = layer.rectified(inputs[-1]) if activation == "relu" else None
        if at_once is not None:
            before.append(at_once)
            inputs.append(at_once)
            continue
        like = (depth, layer.W, n, layer.W.shape[1])
        Z = layer(inputs[-1], partial(buffers.take, "before", *like))
        before.append(Z)
        if by_kernel and depth == top - 1:
            break
        A = Z if act.from_output else buffers.take("behind", *like)
        act.forward(Z, A)
        inputs.append(A)

    def descend(top: int, G: Tensor) -> None:
        """From the gradient behind layer ``top`` down to the first."""
        for depth in range(top, -1, -1):
            put_product(gradients[depth][1:], inputs[depth].T, G, add=add)
            if depth > 0:
                W = layers[depth].W
                room = partial(buffers.take, "back", depth, W, n, W.shape[0] - 1)
                G = product(G, W[1:].T, room=room)
                act.backward(G, before[depth - 1])
                put_sum(gradients[depth - 1][0], G, add=add)

    if by_kernel:
        from protopinv.kernels.head import last_layer

        smoothing = loss.label_smoothing
        Z, W = before[-1], layers[-1].W
        last = last_layer(Z, W, rows.y, activation, smoothing=smoothing, scale=scale)
        finish = partial(last.finish, gradients[top], gradients[top - 1][0], add=add)
        value: Tensor
        value, _ = side_by_side([finish, partial(descend, top - 1, Z)], Z.device)
        return value
    outputs = layers[-1](inputs[-1])
    value, G = loss.total_and_gradient(outputs.to(gradients[0].dtype), rows.y, scale)
    G = G.to(outputs.dtype)
    put_sum(gradients[top][0], G, add=add)
    descend(top, G)
    return value


def _suits_kernel(rows: Rows, layers: Sequence[Layer]) -> bool:
    """Rows in bfloat16 on a GPU, with labels, of not too many classes, and a hidden layer."""
    plain = rows.X.dtype != torch.bfloat16 or rows.y.ndim != 1 or not usable(rows.X)
    return not plain and len(layers) > 1 and layers[-1].W.shape[1] <= MOST_CLASSES


@torch.no_grad()
def evaluate(
    rows: Rows,
    weights: Sequence[Float[Tensor, "_ _"]],
    activation: str,
    loss: CrossEntropy,
    *,
    chunk: int,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Mean score and mean loss over the rows."""
    sums = torch.zeros(2, dtype=weights[0].dtype, device=weights[0].device)
    for part in rows.chunks(chunk):
        outputs = propagate(part.X.to(weights[0].dtype), weights, activation)
        sums += torch.stack([loss.score(outputs, part.y).to(sums), loss.total(outputs, part.y)])
    score, mean_loss = (sums / len(rows)).unbind()
    return score, mean_loss
