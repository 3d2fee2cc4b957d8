"""A torch module that does what the description says."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from protopinv.errors import ExportError
from protopinv.export.description import Description
from protopinv.export.encode import Encode
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    Convolve,
    NumberAnswer,
    Pick,
    Shift,
    Step,
    pooling,
)
from protopinv.network import ACTIVATIONS


def to_torch(description: Description) -> nn.Module:
    """From rows in float32 to outputs: logits of classes and labels, or numbers within bounds."""
    modules = [_module(step) for step in description.steps]
    answer = description.answer
    if isinstance(answer, NumberAnswer) and answer.low is not None and answer.high is not None:
        modules.append(_Bounds(answer.low, answer.high))
    return nn.Sequential(*modules)


def _module(step: Step) -> nn.Module:
    if isinstance(step, Encode):
        return _Encode(step)
    if isinstance(step, Pick):
        return _Pick(step)
    if isinstance(step, Shift):
        return _Shift(step)
    if isinstance(step, Bend):
        return _Bend(step)
    if isinstance(step, Affine):
        return _linear(step) if len(step.weights) == 1 else _Blocks(step)
    if isinstance(step, Activate):
        return _Activation(step.name)
    if isinstance(step, Convolve):
        return _Convolution(step)
    raise ExportError(
        f"A torch module can hold the steps it knows. {type(step).__name__} is none of them."
    )


def _float(numbers: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.array(numbers, dtype=np.float32))


def _linear(step: Affine) -> nn.Linear:
    """An ordinary layer; its first weights are not drawn, so torch's generator stays as it is."""
    layer: nn.Linear = skip_init(nn.Linear, step.n_inputs, step.n_outputs, bias=step.has_bias)
    with torch.no_grad():
        layer.weight.copy_(_float(step.weights[0].T))
        if step.has_bias:
            layer.bias.copy_(_float(step.bias))
    return layer


class _Encode(nn.Module):
    """Columns of a frame that were coded, outside of torch: nothing learns there."""

    def __init__(self, step: Encode) -> None:
        super().__init__()
        self.step = step

    def forward(self, X: Tensor) -> Tensor:
        """Their numbers."""
        return _float(self.step(X.double().numpy()))


class _Pick(nn.Module):
    columns: Tensor

    def __init__(self, step: Pick) -> None:
        super().__init__()
        self.register_buffer("columns", torch.from_numpy(step.columns))

    def forward(self, X: Tensor) -> Tensor:
        """Some of the features."""
        return X[:, self.columns]


class _Shift(nn.Module):
    centre: Tensor

    def __init__(self, step: Shift) -> None:
        super().__init__()
        self.register_buffer("centre", _float(step.centre))

    def forward(self, X: Tensor) -> Tensor:
        """Rows less the centre."""
        return X - self.centre


class _Bend(nn.Module):
    chosen: Tensor
    centre: Tensor
    width: Tensor

    def __init__(self, step: Bend) -> None:
        super().__init__()
        self.kind = step.kind
        chosen = np.zeros(step.n_inputs, dtype=bool)
        chosen[step.columns] = True
        centre, width = np.zeros(step.n_inputs), np.ones(step.n_inputs)
        centre[step.columns], width[step.columns] = step.centre, step.width
        self.register_buffer("chosen", torch.from_numpy(chosen))
        self.register_buffer("centre", _float(centre))
        self.register_buffer("width", _float(width))

    def forward(self, X: Tensor) -> Tensor:
        """Some columns bent."""
        Z = (X - self.centre) / self.width
        if self.kind == "squash":
            Z = torch.asinh(Z)
        else:
            Z = Z.clamp(-1e6, 1e6)
            Z = Z / (1 + (Z / 3).square()).sqrt()
        return torch.where(self.chosen, Z, X)


class _Blocks(nn.Module):
    """Several layers side by side."""

    def __init__(self, step: Affine) -> None:
        super().__init__()
        self.weight = nn.Parameter(_float(step.weights))
        self.bias = nn.Parameter(_float(step.bias))

    def forward(self, X: Tensor) -> Tensor:
        """Every block with its own inputs."""
        parts: Tensor = X.unflatten(1, self.weight.shape[:2]).movedim(1, 0) @ self.weight
        return parts.movedim(0, 1).flatten(1) + self.bias


class _Activation(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, X: Tensor) -> Tensor:
        """Every number by itself."""
        return ACTIVATIONS[self.name](X)


class _Convolution(nn.Module):
    down: Tensor
    across: Tensor

    def __init__(self, step: Convolve) -> None:
        super().__init__()
        self.step = step
        down, across = (
            pooling(windows, side)
            for windows, side in zip((step.rows, step.columns), step.inner, strict=True)
        )
        self.weight = nn.Parameter(_float(step.filters))
        self.register_buffer("down", _float(down))
        self.register_buffer("across", _float(across.T))

    def forward(self, X: Tensor) -> Tensor:
        """Maps, flat, to pooled maps, flat."""
        step = self.step
        if step.channels_last:
            X = X.unflatten(1, (step.height, step.width, step.channels)).permute(0, 3, 1, 2)
        else:
            X = X.unflatten(1, (step.channels, step.height, step.width))
        means = [
            functional.avg_pool2d(Z.mean(1, keepdim=True), step.size, 1) for Z in (X, X.square())
        ]
        variance = (means[1] - means[0].square()).clamp_min(0)
        Z = functional.conv2d(X, self.weight) * (variance + step.floor).rsqrt()
        whole, positive = (self.down @ each @ self.across for each in (Z, Z.relu()))
        return torch.cat([positive, positive - whole], dim=1).flatten(1)


class _Bounds(nn.Module):
    low: Tensor
    high: Tensor

    def __init__(self, low: NDArray[Any], high: NDArray[Any]) -> None:
        super().__init__()
        self.register_buffer("low", _float(low))
        self.register_buffer("high", _float(high))

    def forward(self, X: Tensor) -> Tensor:
        """Within bounds."""
        return torch.clamp(X, self.low, self.high)
