"""One description of a trained network, from which every export is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.export.encode import Encode
from protopinv.export.steps import (
    Activate,
    Affine,
    Answer,
    Bend,
    ClassAnswer,
    Convolve,
    LabelAnswer,
    NumberAnswer,
    Pick,
    Rows,
    Shift,
    Step,
    Windows,
)
from protopinv.features import Squash, Stem, TailTransform
from protopinv.model import Model
from protopinv.model_file import made_up
from protopinv.model_file.packing import thin_factors
from protopinv.objective import Classes, Numbers, Objective
from protopinv.tables import Table

# A feature whose mean is so many standard deviations from zero has it taken off first: float32 has
# not enough digits for both.
FAR_FROM_ZERO = 8.0
# Features whose weights are smaller than the largest by this factor are not used. They are left out
# if they are more than a few.
UNUSED = 1e-12
MANY = 0.98


@dataclass(frozen=True, eq=False)
class Description:
    """Steps from a row to outputs, and what the outputs stand for.

    ``examples`` are a few rows, ``deviations`` the scale of every feature that layers see.
    """

    steps: tuple[Step, ...]
    answer: Answer
    feature_names: tuple[str, ...] | None
    facts: Mapping[str, Any]
    examples: Rows
    deviations: Rows
    table: Table | None

    @property
    def encode(self) -> Encode | None:
        """What makes numbers of the columns of a frame, if rows come as such."""
        first = self.steps[0]
        return first if isinstance(first, Encode) else None

    def rows(self, codes: Any) -> Rows:
        """Rows as the first step takes them, from those that ``Model.outputs`` takes."""
        rows = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes)
        if self.table is None:
            return rows
        return self.table.features(rows) if self.encode is None else rows - self.encode.origins

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        return self.steps[0].n_inputs

    @property
    def operations(self) -> int:
        """Arithmetic for one row."""
        return sum(step.operations for step in self.steps)

    @cached_property
    def labels(self) -> list[str]:
        """Names of the outputs, as text."""
        if isinstance(self.answer, ClassAnswer):
            return [str(label) for label in self.answer.labels.tolist()]
        return [str(number) for number in range(self.answer.n_outputs)]

    def outputs(self, X: NDArray[Any]) -> Rows:
        """What the network answers, in float64."""
        rows: Rows = np.asarray(X, dtype=np.float64)
        for step in self.steps:
            rows = step(rows)
        return rows


def describe(model: Model, examples: Any = None) -> Description:
    """The network of a model: its front, then layers in their smallest form.

    ``examples`` are rows as ``Model.outputs`` takes them; without any they are made up.
    """
    codes: Rows = np.asarray(made_up(model) if examples is None else examples, dtype=np.float64)
    mean, scale = (_array(part) for part in (model.features.mean, model.features.scale))
    first, *others = (_affine(W) for W in model.network.weights)
    used = np.arange(first.n_inputs)
    if not isinstance(model.front, Stem):
        used = _used(first, model, scale, codes)
    mean, scale = mean[used], scale[used]
    first = replace(first, weights=first.weights[:, used])
    layers = _layers(first, others, model.network.activation, mean, scale)
    read = [] if model.table is None or model.table.is_plain else [Encode(model.table)]
    steps = [*read, *_front(model, used), *layers]
    for one, next_one in pairwise(steps):
        if one.n_outputs != next_one.n_inputs:
            raise AssertionError("steps must follow each other")
    return Description(
        tuple(steps),
        _answer(model.objective),
        _names(model),
        {"task": model.task, "activation": model.network.activation},
        codes - (0 if not read else read[0].origins),
        1 / scale,
        model.table,
    )


def _names(model: Model) -> tuple[str, ...] | None:
    if model.table is not None:
        return tuple(column.name for column in model.table.columns)
    return None if model.feature_names is None else tuple(model.feature_names)


def _answer(objective: Objective) -> Answer:
    if isinstance(objective, Classes):
        return ClassAnswer(objective.labels)
    if isinstance(objective, Numbers):
        low, high = (
            None if bound is None else np.array(bound, dtype=np.float64)
            for bound in (objective.low, objective.high)
        )
        return NumberAnswer(objective.n_outputs, low, high)
    return LabelAnswer(objective.n_outputs)


def _used(first: Affine, model: Model, scale: Rows, codes: Rows) -> NDArray[np.int64]:
    """Features with weights; all of them if only few have none.

    A weight counts by how far its feature is known to vary: by its scale, or in the examples.
    """
    spread = 1 / scale
    if len(codes) and model.front is None:
        rows = codes if model.table is None else model.table.features(codes)
        spread = np.maximum(spread, np.abs(rows - rows.mean(axis=0)).max(axis=0))
    size = np.abs(first.weights[0]).max(axis=1) * spread
    used = np.flatnonzero(size > UNUSED * size.max())
    return used if 0 < len(used) < MANY * len(size) else np.arange(len(size))


def front_steps(model: Model) -> tuple[Step, ...]:
    """What stands before the network and its scaling, for all features."""
    return tuple(_front(model, np.arange(model.n_inputs)))


def _front(model: Model, used: NDArray[np.int64]) -> Iterator[Step]:
    front = model.front
    if isinstance(front, Stem):
        yield from _stages(front)
        return
    if len(used) < model.n_inputs:
        yield Pick(used, model.n_inputs)
    if isinstance(front, TailTransform):
        columns = np.flatnonzero(front.chosen.numpy()[used])
        kind = "squash" if isinstance(front, Squash) else "clip"
        centre, width = (_array(part)[used][columns] for part in (front.centre, front.width))
        if len(columns):
            yield Bend(kind, columns, centre, width, len(used))


def _stages(stem: Stem) -> Iterator[Convolve]:
    height, width, _ = stem.image_shape
    for number, stage in enumerate(stem.stages):
        size = stage.filters.shape[-1]
        inner = height - size + 1, width - size + 1
        last = number == len(stem.stages) - 1
        rows, columns = (_fields(side, stem.pool) if last else _pairs(side) for side in inner)
        filters, floor = _array(stage.filters), float(stage.floor)
        yield Convolve(filters, floor, height, width, rows, columns, channels_last=number == 0)
        height, width = len(rows), len(columns)


def _pairs(side: int) -> Windows:
    """Two next to each other; an odd one at the end is left out."""
    return tuple((2 * number, 2 * number + 2) for number in range(side // 2))


def _fields(side: int, pool: int) -> Windows:
    """So many fields on a side, which overlap where they do not come out even."""
    return tuple((n * side // pool, -(-(n + 1) * side // pool)) for n in range(pool))


def _layers(
    first: Affine, others: Sequence[Affine], activation: str, mean: Rows, scale: Rows
) -> Iterator[Step]:
    """Layers with the activation between them; the first may be two factors."""
    if bool((np.abs(mean) * scale > FAR_FROM_ZERO).any()):
        centre = mean.astype(np.float32).astype(np.float64)
        yield Shift(centre)
        first = replace(first, bias=first.bias + centre @ first.weights[0])
    yield from smallest(first, scale)
    before = first
    for layer in others:
        yield Activate(activation, before.n_outputs)
        yield layer
        before = layer


def _affine(W: Tensor) -> Affine:
    weights = _array(W if W.ndim == 3 else W[None])
    return Affine(weights[:, 1:], weights[:, 0].reshape(-1))


def smallest(layer: Affine, scale: Rows) -> Sequence[Affine]:
    """The layer itself, or two factors of it if these are fewer numbers.

    Rows of the matrix are compared in the scale of their features.
    """
    (W,) = layer.weights
    factors = thin_factors(torch.from_numpy(W / scale[:, None])) if W.any() else None
    if factors is None:
        return [layer]
    left, right = (factor.numpy() for factor in factors)
    first = Affine((scale[:, None] * left)[None], np.zeros(left.shape[1]))
    return [first, replace(layer, weights=right[None])]


def _array(tensor: Tensor) -> Rows:
    return tensor.detach().cpu().double().numpy()
