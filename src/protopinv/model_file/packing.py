"""A network in fewer bytes: numbers of half, a quarter or an eighth of the size, and thin factors.

In float64 the layers are stored as they are. Otherwise the first layer is stored for rows that are
centred and scaled, whatever the units of the features, and as two factors where these are smaller.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from protopinv.errors import ConfigError
from protopinv.features import FeatureMap, Steps
from protopinv.network import Network

# Types of so few digits that every column has a scale.
SCALED = ("float16", "int8")
# Directions of a matrix that are smaller than the largest by this factor are rounding.
ROUNDING = 1e-10
# A matrix of more numbers is not written as factors: who reads it makes it whole again.
MOST_NUMBERS = 2**22
# Rounding may change a matrix by this share of it; more is no rounding.
ROUGHEST = 0.1


def entry_of(features: FeatureMap, steps: Steps | None) -> FeatureMap:
    """The map that is merged into the first layer; of a network that sees steps, none."""
    if steps is None:
        return features
    n = steps.n_outputs
    return FeatureMap(torch.zeros(n).double(), torch.ones(n).double())


def pack(network: Network, features: FeatureMap, dtype: str) -> dict[str, Tensor]:
    """Every tensor under a name, for a file, in a type that is smaller than float64."""
    packed: dict[str, Tensor] = {}
    for number, W in enumerate(network.weights):
        rows, bias = W[..., 1:, :], W[..., 0, :]
        if number == 0:
            rows, bias = rows / features.scale[:, None], bias + features.mean @ rows
        packed |= _layer(str(number), rows, bias, dtype, may_factor=number == 0)
    return packed


def unpack(
    tensors: Mapping[str, Tensor], features: FeatureMap, activation: str, dtype: str
) -> Network:
    """The network that ``pack`` was given, as exact as the numbers are."""
    if dtype == "float64":
        return Network.from_tensors(tensors, activation)
    weights: list[Tensor] = []
    while f"{len(weights)}.bias" in tensors:
        name = str(len(weights))
        rows, bias = _matrix(tensors, name), tensors[f"{name}.bias"].double()
        if bias.shape != (*rows.shape[:-2], rows.shape[-1]):
            raise ValueError("biases that are not one an output")
        if not weights:
            if not features.mean.shape == features.scale.shape == rows.shape[:1]:
                raise ValueError("a first layer for other features")
            rows = features.scale[:, None] * rows
            bias = bias - features.mean @ rows
        weights.append(torch.cat([bias.unsqueeze(-2), rows], dim=-2))
    return Network(tuple(weights), activation)


def types_of(names: Collection[str], dtype: str) -> dict[str, torch.dtype]:
    """Every tensor that ``pack`` would make of a network with these layers, and its type."""
    if dtype == "float64":
        return {str(layer): torch.float64 for layer in range(len(names))}
    types: dict[str, torch.dtype] = {}
    layer = 0
    while f"{layer}.bias" in names:
        types[f"{layer}.bias"] = torch.float32
        is_thin = f"{layer}.left" in names
        for name in (f"{layer}.left", f"{layer}.right") if is_thin else (str(layer),):
            types[name] = getattr(torch, dtype)
            if dtype in SCALED:
                types[f"{name}.scale"] = torch.float32
        layer += 1
    return types


def _layer(
    name: str, rows: Tensor, bias: Tensor, dtype: str, *, may_factor: bool
) -> dict[str, Tensor]:
    factors = None
    if may_factor and rows.numel() <= MOST_NUMBERS and bool(rows.any()):
        factors = thin_factors(rows)
    parts = {name: rows}
    if factors is not None:
        parts = {f"{name}.left": factors[0], f"{name}.right": factors[1]}
    packed = {f"{name}.bias": bias.float()}
    if not bool(packed[f"{name}.bias"].isfinite().all()):
        raise ConfigError(
            f"The biases of a model must fit into float32. The largest is "
            f"{float(bias.abs().max()):.3g}. Use float64."
        )
    for each, matrix in parts.items():
        packed |= _numbers(each, matrix, dtype)
    return packed


def _numbers(name: str, matrix: Tensor, dtype: str) -> dict[str, Tensor]:
    """A matrix as numbers of this type; those of few digits have a scale for each column."""
    packed = {name: matrix.to(getattr(torch, dtype))}
    if dtype in SCALED:
        most = 127 if dtype == "int8" else 1
        largest = matrix.abs().amax(-2, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        scale = (largest / most).float()
        numbers = matrix / scale.double()
        if dtype == "int8":
            numbers = numbers.round().clamp(-most, most)
        packed = {name: numbers.to(getattr(torch, dtype)), f"{name}.scale": scale}
    off = (_scaled(packed, name) - matrix).norm()
    if not bool(off <= ROUGHEST * matrix.norm()):
        raise ConfigError(
            f"The weights of a model must fit into its type of number. The largest is "
            f"{float(matrix.abs().max()):.3g}, which {dtype} cannot hold well. Use float64."
        )
    return packed


def _matrix(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    """The weights of a layer, whole, in float64."""
    if f"{name}.left" not in tensors:
        return _scaled(tensors, name)
    left, right = (_scaled(tensors, f"{name}.{side}") for side in ("left", "right"))
    if left.ndim != 2 or right.ndim != 2 or len(left) * right.shape[1] > MOST_NUMBERS:
        raise ValueError("factors of a matrix that is too large")
    return left @ right


def _scaled(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    numbers, scale = tensors[name], tensors.get(f"{name}.scale")
    if scale is None:
        return numbers.double()
    if scale.shape != (*numbers.shape[:-2], 1, numbers.shape[-1]):
        raise ValueError("scales that are not one a column")
    return numbers.double() * scale.double()


def thin_factors(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    """Two matrices whose product this is, if they have fewer numbers than it has.

    Weights that were solved from p prototypes, or behind a projection, have no more directions than
    there are of these. None where they would have more, or numbers overflow.
    """
    if not bool(matrix.isfinite().all()):
        return None
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    rank = max(1, int((sizes > ROUNDING * sizes[0]).sum()))
    if rank * sum(matrix.shape) >= matrix.numel():
        return None
    root = sizes[:rank].sqrt()
    return left[:, :rank] * root, root[:, None] * right[:rank]
