"""Activations into buffers, and the way back through them, without a graph."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

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
        _gelu,
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
