"""Rows through weights and the gradient back, written out: no graph is built for rows.

The derivative of a feed-forward network is short, and writing it out saves what autograd would
allocate for every chunk: activations stay in buffers.

Several members of a population share one pass. Behind every layer their units lie side by side, so
that what is done to each unit by itself does not know of members at all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.kernels import side_by_side, usable
from protopinv.objective import Objective, Outputs
from protopinv.train.machine import ALONE, Ranks
from protopinv.train.products import Layer, WideLayer, as_layers, put_sum
from protopinv.train.rows import AnyRows, Rows

# More than these do not fit the kernel for the last layer.
MOST_CLASSES = 127
# In float32 the kernel is the faster way up to so many hidden units of all rows.
MOST_EXACT_UNITS = 2**24


_aten = torch.ops.aten


@dataclass(frozen=True)
class InPlace:
    """An activation into a buffer, and the gradient behind it turned into the one before it.

    ``backward`` is given that gradient, which it overwrites, and either what the activation was
    given or, for ``from_output``, what it answered; then the buffer may be the input itself.
    """

    forward: Callable[[Tensor, Tensor], Any]
    backward: Callable[[Tensor, Tensor], Any]
    from_output: bool


def _gelu(Z: Tensor, out: Tensor) -> None:
    """On a CPU torch leaves a float32 buffer with gaps as it was."""
    if out.is_contiguous():
        _aten.gelu.out(Z, out=out)
    else:
        out.copy_(_aten.gelu(Z))


def _in_place(name: str, *, from_output: bool) -> InPlace:
    """An activation of which torch has both."""
    forward, back = getattr(_aten, name).out, getattr(_aten, f"{name}_backward").grad_input
    return InPlace(
        lambda Z, out: forward(Z, out=out),
        lambda G, A: back(G, A, grad_input=G),
        from_output,
    )


IN_PLACE = {
    "relu": InPlace(
        lambda Z, out: torch.clamp_min(Z, 0, out=out),
        lambda G, A: _aten.threshold_backward.grad_input(G, A, 0, grad_input=G),
        from_output=True,
    ),
    "silu": _in_place("silu", from_output=False),
    "gelu": replace(_in_place("gelu", from_output=False), forward=_gelu),
    "tanh": _in_place("tanh", from_output=True),
    "sigmoid": _in_place("sigmoid", from_output=True),
}


@dataclass
class Buffers:
    """Memory of a chunk, made once for each size of chunk."""

    tensors: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    def take(self, use: str, layer: int, like: Tensor, *shape: int) -> Tensor:
        """An empty tensor of this shape, the same one for the same use in the same layer."""
        key = (use, layer, *shape)
        if key not in self.tensors:
            self.tensors[key] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return self.tensors[key]


@dataclass(frozen=True)
class Passed:
    """Mean loss of every member over its rows, and its exact gradient in every W.

    Where members hold rows out, ``held`` are their mean score and loss over those.
    """

    loss: Float[Tensor, " m"]
    gradients: list[Tensor]
    held: tuple[Float[Tensor, " m"], Float[Tensor, " m"]] | None = None


@torch.no_grad()
def data_pass(
    rows: AnyRows,
    weights: Sequence[Float[Tensor, "m _ _"]],
    activation: str,
    objective: Objective,
    *,
    chunk: int,
    factors: Sequence[tuple[Tensor, Tensor] | None] = (),
    augment: Callable[[Rows], Rows] | None = None,
    buffers: Buffers | None = None,
    ranks: Ranks = ALONE,
) -> Passed:
    """Sums over chunks of rows, so that memory does not grow with their number.

    Products with rows are made in the number type of the rows, bfloat16 say; loss and gradients
    are those of the weights. With ``factors`` of weights rows go through these where it is cheaper.
    Chunks are added up in float64: so it does not matter who of several ``ranks`` has which.
    """
    buffers = Buffers() if buffers is None else buffers
    gradients = [torch.empty_like(W) for W in weights]
    sums: list[Tensor] = []
    totals: list[Tensor] | None = None
    for part in rows.chunks(chunk):
        if sums and totals is None:  # one chunk alone need not be added to anything
            totals = [tensor.to(torch.float64, copy=True) for tensor in (*sums, *gradients)]
        if len(part) == 0:  # a rank whose rows are all in other batches
            torch._foreach_zero_(gradients)
            n_sums = 1 if part.held is None else 3
            sums = [weights[0].new_zeros(len(weights[0])) for _ in range(n_sums)]
            continue
        seen = part if augment is None else augment(part)
        layers = as_layers(weights, factors, seen.X)
        through = _Chunk(seen, layers, activation, gradients, buffers)
        sums = through(objective, 1 / rows.n_total)
        if totals is not None:
            torch._foreach_add_(totals, [*sums, *gradients])
    if ranks.size > 1 and totals is None:
        totals = [tensor.to(torch.float64, copy=True) for tensor in (*sums, *gradients)]
    if totals is not None:
        ranks.add_up(totals)
        for tensor, total in zip((*sums, *gradients), totals, strict=True):
            tensor.copy_(total)
    loss, *held = sums
    return Passed(loss, gradients, (held[0], held[1]) if held else None)


@dataclass
class _Chunk:
    """One chunk of rows: forward, head, backward.

    ``inputs`` are what each layer is given, and ``before`` what each activation is.
    """

    rows: Rows
    layers: Sequence[Layer]
    activation: str
    gradients: Sequence[Tensor]
    buffers: Buffers
    inputs: list[Tensor] = field(default_factory=list)
    before: list[Tensor] = field(default_factory=list)

    def __call__(self, objective: Objective, scale: float) -> list[Tensor]:
        """``scale`` times the loss, and where rows are held out the score and loss of these."""
        by_kernel = self._suits_kernel(objective)
        self._forward(last_activation=not by_kernel)
        if by_kernel:
            return self._head_by_kernel(objective, scale)
        G, values = self._head(objective, scale)
        put_sum(self.gradients[-1][:, 0], G)
        self._backward(len(self.layers) - 1, G)
        return values

    def _forward(self, *, last_activation: bool) -> None:
        """Through all layers but the last."""
        n, top, act = len(self.rows), len(self.layers) - 1, IN_PLACE[self.activation]
        self.inputs = [self.rows.X]
        for depth, layer in enumerate(self.layers[:-1]):
            X = self.inputs[-1]
            at_once = None
            if self.activation == "relu" and isinstance(layer, WideLayer):
                at_once = layer.rectified(X)
            if at_once is not None:
                self.before.append(at_once)
                self.inputs.append(at_once)
                continue
            like = (depth, layer.like, n, layer.width)
            Z = layer(X, partial(self.buffers.take, "before", *like))
            self.before.append(Z)
            if depth == top - 1 and not last_activation:
                return
            A = Z if act.from_output else self.buffers.take("behind", *like)
            act.forward(Z, A)
            self.inputs.append(A)

    def _head(self, objective: Objective, scale: float) -> tuple[Tensor, list[Tensor]]:
        """The gradient in the outputs, and the sums that go with it."""
        rows, W = self.rows, self.gradients[-1]
        outputs = self.layers[-1].outputs(self.inputs[-1])
        lying = outputs.to(W.dtype)
        judged = objective.judge(lying, rows.y)
        G = judged.gradient
        if rows.weight is None:
            loss = judged.losses.sum(1).mul_(scale)
            G.mul_(scale)
        else:
            share = rows.weight * scale
            loss = (judged.losses * share).sum(1)
            G.mul_(share[:, None])
        values = [loss]
        if rows.held is not None:
            values.append((objective.scores(lying, rows.y) * rows.held).sum(1))
            values.append((judged.plain * rows.held).sum(1))
        return G.view(-1, len(rows)).T.to(outputs.dtype), values

    def _backward(self, top: int, G: Tensor) -> None:
        """From the gradient behind layer ``top`` down to the first."""
        n, act = len(self.rows), IN_PLACE[self.activation]
        for depth in range(top, -1, -1):
            layer, total = self.layers[depth], self.gradients[depth]
            layer.put_gradient(total[:, 1:], self.inputs[depth], G)
            if depth > 0:
                below = self.layers[depth - 1]
                room = partial(self.buffers.take, "back", depth, below.like, n, below.width)
                G = layer.back(G, room)
                act.backward(G, self.before[depth - 1])
                put_sum(self.gradients[depth - 1][:, 0], G)

    def _head_by_kernel(self, objective: Any, scale: float) -> list[Tensor]:
        """Head and last layer in one kernel, beside the way back through the others."""
        from protopinv.kernels.head import last_layer

        top, Z = len(self.layers) - 1, self.before[-1]
        dW, dz = self.gradients[top], self.gradients[top - 1][:, 0]
        last = last_layer(
            Z,
            self.layers[-1].like.view(dW.shape),
            self.rows.y,
            self.rows.weight,
            self.activation,
            smoothing=objective.label_smoothing,
            scale=scale,
        )
        finish = partial(last.finish, dW, dz)
        loss, _ = side_by_side([finish, partial(self._backward, top - 1, Z)], Z.device)
        return [loss]

    def _suits_kernel(self, objective: Objective) -> bool:
        """Rows on a GPU, with labels of not too many classes, and a hidden layer.

        In float32 it must be few enough units.
        """
        rows, gradients = self.rows, self.gradients
        if objective.kernel != "softmax" or len(self.layers) < 2 or not usable(rows.X):
            return False
        is_small = len(rows) * self.layers[-2].width <= MOST_EXACT_UNITS
        return (
            (rows.X.dtype == torch.bfloat16 or (rows.X.dtype == torch.float32 and is_small))
            and rows.y.ndim == 1
            and rows.held is None
            and gradients[0].dtype == torch.float32
            and gradients[-1].shape[-1] <= MOST_CLASSES
        )


@torch.no_grad()
def outputs_by_chunk(
    rows: AnyRows, weights: Sequence[Float[Tensor, "m _ _"]], activation: str, *, chunk: int
) -> Iterator[tuple[Rows, Outputs]]:
    """Some rows at a time with what every member answers, by their weights."""
    act = IN_PLACE[activation]
    layers: list[Layer] = []
    for part in rows.chunks(chunk):
        if len(part) == 0:
            continue
        Z = part.X.to(weights[0].dtype)
        layers = layers or as_layers(weights, (), Z[..., :0, :])
        for layer in layers[:-1]:
            Z = layer(Z)
            act.forward(Z, Z)
        yield part, layers[-1].outputs(Z)


@torch.no_grad()
def score_and_loss(
    rows: AnyRows,
    weights: Sequence[Float[Tensor, "m _ _"]],
    activation: str,
    objective: Objective,
    *,
    chunk: int,
    ranks: Ranks = ALONE,
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """Mean score and mean loss of every member over the rows, by their weights."""
    sums = weights[0].new_zeros(2, len(weights[0]), dtype=torch.float64)
    for part, lying in outputs_by_chunk(rows, weights, activation, chunk=chunk):
        scores = objective.scores(lying, part.y)
        losses = objective.judge(lying, part.y).plain
        if part.weight is not None:
            scores, losses = scores * part.weight, losses * part.weight
        sums += torch.stack([scores.sum(1), losses.sum(1)])
    ranks.add_up([sums])
    score, loss = (sums / rows.n_total).to(weights[0].dtype).unbind()
    return score, loss
