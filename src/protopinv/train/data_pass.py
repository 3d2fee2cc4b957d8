"""Rows through weights and the gradient back, written out: no graph is built for rows.

The derivative of a feed-forward network is short, and writing it out saves what autograd would
allocate for every chunk: activations stay in buffers, and products add up in the gradient itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.network import propagate
from protopinv.train.losses import CrossEntropy
from protopinv.train.rows import Rows

_aten = torch.ops.aten
# With so few columns, classes mostly, a product on a CPU is up to three times faster turned around.
NARROW = 16


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
    augment: Callable[[Rows], Rows] | None = None,
    buffers: Buffers | None = None,
) -> tuple[Float[Tensor, ""], list[Tensor]]:
    """Mean loss over the rows and its exact gradient in every W, summed over chunks of rows.

    Products with rows are made in the number type of the rows, bfloat16 say; loss and gradients
    are those of the weights.
    """
    buffers = Buffers() if buffers is None else buffers
    gradients = [torch.zeros_like(W) for W in weights]
    total = torch.zeros((), dtype=weights[0].dtype, device=weights[0].device)
    weights = [W.to(rows.X.dtype) for W in weights]
    for part in rows.chunks(chunk):
        seen = part if augment is None else augment(part)
        total += _chunk(seen, weights, activation, loss, gradients, buffers)
    torch._foreach_mul_(gradients, 1 / len(rows))
    return total / len(rows), gradients


def _chunk(
    rows: Rows,
    weights: Sequence[Tensor],
    activation: str,
    loss: CrossEntropy,
    gradients: Sequence[Tensor],
    buffers: Buffers,
) -> Tensor:
    """The loss of a chunk, its gradients added to those there are."""
    n, act = len(rows), IN_PLACE[activation]
    inputs: list[Tensor] = [rows.X]
    kept: list[Tensor] = []
    for W in weights[:-1]:
        Z = buffers.take("before", len(kept), W, n, W.shape[1])
        torch.addmm(W[0], inputs[-1], W[1:], out=Z)
        A = Z if act.from_output else buffers.take("behind", len(kept), W, n, W.shape[1])
        act.forward(Z, A)
        inputs.append(A)
        kept.append(Z)
    last = weights[-1][1:].T.contiguous()  # laid out this way a narrow product is twice as fast
    outputs = inputs[-1] @ last.T + weights[-1][0]
    value, G = loss.total_and_gradient(outputs.to(gradients[0].dtype), rows.y)
    G = G.to(outputs.dtype)
    for layer in reversed(range(len(weights))):
        gradients[layer][0] += G.sum(0, dtype=gradients[layer].dtype)
        _add_product(gradients[layer][1:], inputs[layer].T, G)
        if layer > 0:
            W = weights[layer]
            back = buffers.take("back", layer, W, n, W.shape[0] - 1)
            torch.mm(G, W[1:].T, out=back)
            act.backward(back, kept[layer - 1])
            G = back
    return value


def _add_product(total: Tensor, A: Tensor, B: Tensor) -> None:
    """total += A B, summed in the number type of the total as far as the device can."""
    if A.is_cuda and A.dtype != total.dtype:
        total += torch.mm(A, B, out_dtype=total.dtype)
    elif A.dtype != total.dtype or B.shape[1] <= NARROW:
        total += torch.mm(B.T, A.T).T
    else:
        total.addmm_(A, B)


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
        outputs = propagate(part.X, weights, activation)
        sums += torch.stack([loss.score(outputs, part.y).to(sums), loss.total(outputs, part.y)])
    score, mean_loss = (sums / len(rows)).unbind()
    return score, mean_loss
