"""The description of a trained network, from which every export is written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    Convolve,
    Encode,
    Pick,
    Rise,
    Shift,
    Step,
    Sum,
    in_turn,
    operations,
    sizes_of,
)
from protopinv.features import Stem, TailTransform
from protopinv.model import Model
from protopinv.model_file.packing import thin_factors
from protopinv.model_file.saving import made_up
from protopinv.objective import Numbers

Rows = NDArray[np.float64]

# A feature whose mean is so many standard deviations from zero has it taken off first: float32 has
# not enough digits for both.
FAR_FROM_ZERO = 8.0
# Features whose weights are smaller than the largest by this factor are not used. They are left out
# if they are more than a few.
UNUSED = 1e-12
MANY = 0.98
# Rows that go through all steps at once.
PIECE_ROWS = 1000


@dataclass(frozen=True, eq=False)
class Description:
    """A model as steps from a row to its outputs.

    ``examples`` are a few rows, ``deviations`` the scale of every feature that layers see.
    """

    model: Model
    steps: tuple[Step, ...]
    examples: Rows
    deviations: Rows

    @property
    def encode(self) -> Encode | None:
        """The step that encodes the columns of a frame, if rows come as such."""
        first = self.steps[0]
        return first if isinstance(first, Encode) else None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers a row has: before the first step, and after each."""
        return sizes_of(self.steps, self.model.n_features)

    @property
    def n_outputs(self) -> int:
        """Outputs of a row: one for each class, label or target."""
        return self.model.objective.n_outputs

    @property
    def labels(self) -> list[Any] | None:
        """The classes in the order of the outputs; None for labels and numbers."""
        labels = getattr(self.model.objective, "labels", None)
        return None if labels is None else list(labels.tolist())

    @property
    def bounds(self) -> Rows | None:
        """The lowest and the highest prediction of each target; None where there are no bounds."""
        objective = self.model.objective
        if not isinstance(objective, Numbers) or objective.low is None:
            return None
        return np.array([objective.low, objective.high], dtype=np.float64)

    @property
    def operations(self) -> int:
        """Additions and multiplications for one row."""
        return operations(self.steps, self.model.n_features)

    def rows(self, codes: Any) -> Rows:
        """Rows as the first step takes them, from those that ``Model.outputs`` takes."""
        rows = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes)
        if self.model.table is None:
            return rows
        if self.encode is None:
            return self.model.table.features(rows)
        return rows - self.encode.origins

    def outputs(self, X: NDArray[Any], dtype: torch.dtype = torch.float64) -> Rows:
        """Outputs of the network in arithmetic of this precision."""
        steps = [step.to(dtype) for step in self.steps]
        rows = torch.tensor(np.asarray(X, dtype=np.float64)).to(dtype)
        with torch.no_grad():
            pieces = [in_turn(steps, piece) for piece in rows.split(PIECE_ROWS)]
        return np.asarray(torch.cat(pieces).double().numpy())


def describe(model: Model, examples: Any = None) -> Description:
    """The network of a model: its front, then layers in their smallest form, or several of them.

    ``examples`` are rows as ``Model.outputs`` takes them; without any they are made up.
    """
    codes: Rows = np.asarray(made_up(model) if examples is None else examples, dtype=np.float64)
    mean, scale = _float64(model.features.mean), _float64(model.features.scale)
    if model.others or model.steps is not None:
        shift = tuple(_shift(mean, scale))
        centre = shift[0].centre if shift else torch.zeros_like(mean)
        branches = tuple(tuple(_branch(part, mean - centre, scale, centre)) for part in model.parts)
        last = (Sum(branches),) if len(branches) > 1 else branches[0]
        steps: tuple[Step, ...] = (*front_steps(model), *shift, *last)
    else:
        first, *others = (_affine(W) for W in model.network.weights)
        used = torch.arange(first.weight.shape[1])
        if not isinstance(model.front, Stem):
            used = _used(first, model, scale, codes)
        mean, scale = mean[used], scale[used]
        first = replace(first, weight=first.weight[:, used])
        shift = tuple(_shift(mean, scale))
        if shift:
            first = replace(first, bias=first.bias + shift[0].centre @ first.weight[0])
        layers = _layers(first, others, model.network.activation, scale)
        steps = (*front_steps(model, used), *shift, *layers)
    examples = codes - (steps[0].origins if isinstance(steps[0], Encode) else 0)
    return Description(model, steps, examples, deviations=1 / scale.numpy())


def _used(first: Affine, model: Model, scale: Tensor, codes: Rows) -> Tensor:
    """Features with weights; all of them if only few have none.

    A weight counts by how far its feature is known to vary: by its scale, or in the examples.
    """
    spread = 1 / scale
    if len(codes) and model.front is None:
        rows = torch.tensor(codes if model.table is None else model.table.features(codes))
        spread = torch.maximum(spread, (rows - rows.mean(0)).abs().amax(0))
    size = first.weight[0].abs().amax(1) * spread
    (used,) = (size > UNUSED * size.max()).nonzero(as_tuple=True)
    return used if 0 < len(used) < MANY * len(size) else torch.arange(len(size))


def front_steps(model: Model, used: Tensor | None = None) -> Iterator[Step]:
    """The steps before the network and its scaling, for the features that are used, or for all."""
    front = model.front
    if model.table is not None and not model.table.is_plain:
        yield Encode(model.table)
    if isinstance(front, Stem):
        yield from _stages(front)
        return
    used = torch.arange(model.n_inputs) if used is None else used
    if len(used) < model.n_inputs:
        yield Pick(used)
    if isinstance(front, TailTransform) and bool((chosen := front.chosen[used]).any()):
        kind = type(front).__name__.lower()
        centre = torch.where(chosen, front.centre[used], 0.0)
        yield Bend(kind, chosen, _float64(centre), _float64(front.width[used]))


def _stages(stem: Stem) -> Iterator[Convolve]:
    height, width, _ = stem.image_shape
    for number, stage in enumerate(stem.stages, start=1):
        pool = stem.pool if number == len(stem.stages) else 0
        step = Convolve(
            _float64(stage.filters), _float64(stage.floor), height, width, number == 1, pool
        )
        yield step
        height, width = step.pooled


def _shift(mean: Tensor, scale: Tensor) -> Iterator[Shift]:
    """What takes a centre off, where features are far from zero."""
    if bool((mean.abs() * scale > FAR_FROM_ZERO).any()):
        yield Shift(mean.float().double())


def _branch(part: Model, mean: Tensor, scale: Tensor, centre: Tensor) -> Iterator[Step]:
    """One model of an ensemble, its outputs times its weight, for rows less a centre.

    ``mean`` and ``scale`` are those of the features less the centre.
    """
    first, *others = (_affine(W) for W in part.network.weights)
    steps, activation = part.steps, part.network.activation
    if not others:
        first = _times(first, part.weight)
    else:
        others[-1] = _times(others[-1], part.weight)
    if steps is None:
        first = replace(first, bias=first.bias + centre @ first.weight[0])
        yield from _layers(first, others, activation, scale)
        return
    r, basis = len(steps.raw), part.features.basis
    low, high = _float64(steps.low), _float64(steps.high)
    own = torch.ones(steps.n_outputs, dtype=torch.float64)
    W = first.weight[0].clone()
    W[r:] *= _float64(steps.scale)[:, None]
    bias = first.bias - _float64(steps.mean) @ W[r:]
    if basis is None and steps.inside is None:
        # scaled features are numbers of the row, each by itself: their map goes into what follows
        low, high = (mean[steps.column] + each / scale[steps.column] for each in (low, high))
        W[:r] *= scale[steps.raw][:, None]
        bias = bias - mean[steps.raw] @ W[:r]
        own[:r] = scale[steps.raw]
    else:
        inside = None if steps.inside is None else steps.inside @ steps.inside.T
        turn = torch.diag(scale)
        for each in (basis, inside):
            turn = turn if each is None else turn @ _float64(each)
        yield Affine(turn[None], -mean @ turn)
    yield Rise(steps.raw, steps.column, low, high)
    yield from _layers(Affine(W[None], bias), others, activation, own)


def _times(layer: Affine, factor: float) -> Affine:
    return Affine(layer.weight * factor, layer.bias * factor)


def _layers(
    first: Affine, others: Sequence[Affine], activation: str, scale: Tensor
) -> Iterator[Step]:
    """Layers with the activation between them; the first may be two factors."""
    yield from _smallest(first, scale)
    for layer in others:
        if activation != "identity":
            yield Activate(activation)
        yield layer


def _affine(W: Tensor) -> Affine:
    blocks = _float64(W if W.ndim == 3 else W[None])
    return Affine(blocks[:, 1:], blocks[:, 0].reshape(-1))


def _smallest(layer: Affine, scale: Tensor) -> Sequence[Affine]:
    """The layer itself, or two factors of it if these are fewer numbers.

    Rows of the matrix are compared in the scale of their features.
    """
    (W,) = layer.weight
    factors = thin_factors(W / scale[:, None]) if W.any() else None
    if factors is None:
        return [layer]
    left, right = factors
    first = Affine((scale[:, None] * left)[None], left.new_zeros(left.shape[1]))
    return [first, replace(layer, weight=right[None])]


def _float64(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()
