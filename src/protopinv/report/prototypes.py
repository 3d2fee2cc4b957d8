"""The prototypes of a model as its user knows rows: pictures, or values in the columns' units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.features import FeatureMap, Stem, TailTransform
from protopinv.model import Model
from protopinv.objective import Labels, Objective
from protopinv.tables import Category, Column, Date, Number, Table
from protopinv.tables.columns import short
from protopinv.tables.parts import DAYS_A_YEAR

Floats = NDArray[np.float64]
# Pictures that a stem would see as a prototype are found by so many steps of Adam.
STEPS, RATE = 200, 0.05
# What neighbouring pixels may differ by costs as much as this share of the distance.
ROUGHNESS = 0.02
# Days that a calendar has names for.
FIRST_DAY, LAST_DAY = -700_000, 2_900_000


@dataclass(frozen=True)
class Prototypes:
    """Prototypes of one member, a row each, in the units of the rows that were trained on.

    ``distance`` is how far each feature is from its mean, as the network scales it; ``answers`` are
    what prototypes stand for, a class, labels, or numbers, and ``texts`` the same to be read.
    """

    values: Floats
    distance: Floats
    names: tuple[str, ...]
    answers: NDArray[Any]
    texts: tuple[str, ...]
    image_shape: tuple[int, ...] | None


def prototypes_of(model: Any, member: int = 0, chosen: Sequence[int] | None = None) -> Prototypes:
    """Where the prototypes of a fitted model are, in the space of its rows; all, or some of them.

    Scaling and projection are inverted exactly: a row that is put there comes out of them as the
    prototype. A stem has no inverse. With one these are images that it sees nearly as it would see
    the prototype, found by descent from grey: many look alike to it, and this is a smooth one.
    """
    fitted: Model = model.model_
    bank = fitted.prototypes.member(member).to("cpu", torch.float64)
    places = list(range(bank.n_prototypes)) if chosen is None else list(chosen)
    inputs = bank.inputs[places]
    if bank.scale is not None:  # rows enter the network as scale * x; what it ignores is not moved
        used = bank.scale.abs() > 1e-6 * bank.scale.abs().max()
        inputs = torch.where(used, inputs / torch.where(used, bank.scale, 1.0), 0.0)
    if fitted.steps is not None:
        inputs = fitted.steps.restored(inputs)
    features, front = fitted.features, fitted.front
    rows = features.unproject(inputs.to(features.mean.dtype)).double()
    distance = (rows - features.mean) * features.scale
    values = rows
    if isinstance(front, Stem):
        values = _seen_alike(front, features, rows.float(), fitted.image_range).double()
    elif isinstance(front, TailTransform):
        values = front.restored(rows)
    outputs, n = bank.outputs[places], bank.outputs.shape[1]
    # the scaling that the objective merges into the last layer, of each output by itself
    bias, *scaling = fitted.objective.fold(torch.cat([torch.zeros(1, n), torch.eye(n)]).double())
    answers = fitted.objective.decode((bias + outputs @ torch.stack(scaling)).numpy())
    shape = fitted.config.image_shape
    return Prototypes(
        values.numpy(),
        distance.numpy(),
        column_names(fitted) if fitted.table is None else tuple(fitted.table.feature_names),
        answers,
        tuple(answer_text(fitted.objective, answer) for answer in answers.tolist()),
        None if shape is None else tuple(shape),
    )


def column_names(model: Model) -> tuple[str, ...]:
    """The names of the columns that are used, numbered where they have none."""
    return model.used_names or tuple(f"column {n}" for n in range(1, model.n_inputs + 1))


def _seen_alike(
    stem: Stem, features: FeatureMap, targets: torch.Tensor, image_range: tuple[float, float] | None
) -> torch.Tensor:
    """Images whose features come near the targets, each in the scale of its feature."""
    low, high = image_range or (0.0, 1.0)
    span = (high - low) or 1.0
    scale = features.scale.float()
    levels = torch.zeros(len(targets), stem.n_inputs, requires_grad=True)
    optimizer = torch.optim.Adam([levels], lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        images = low + span * torch.sigmoid(4 * levels)
        off = ((stem(images) - targets) * scale).square().mean(1)
        grid = stem.images(images) / span
        rough = sum(grid.diff(dim=axis).square().mean((1, 2, 3)) for axis in (2, 3))
        (off + ROUGHNESS * rough * off.detach()).sum().backward()
        optimizer.step()
    return (low + span * torch.sigmoid(4 * levels)).detach()


def answer_text(objective: Objective, answer: Any) -> str:
    """A class, labels or numbers as text."""
    if isinstance(objective, Labels):
        labels = [str(place) for place, label in enumerate(answer) if label]
        return f"labels {', '.join(labels)}" if labels else "no label"
    parts = answer if isinstance(answer, list) else [answer]
    return ", ".join(number(part) if isinstance(part, float) else str(part) for part in parts)


def number(value: float) -> str:
    """A number as a person would write it."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else short(value)


@dataclass(frozen=True)
class Value:
    """What a prototype has in one column: a text, and where that lies between low and high."""

    column: str
    text: str
    share: float


def column_values(
    table: Table | None, names: Sequence[str], row: Floats, ranges: Floats
) -> list[Value]:
    """Every column of one prototype. ``ranges`` has low and high for each, where it is a number."""
    if table is None:
        return [
            Value(name, short(float(value)), _within(value, *span))
            for name, value, span in zip(names, row, ranges, strict=True)
        ]
    values, start = [], 0
    for column, span in zip(table.columns, ranges, strict=True):
        part = row[start : start + len(column.names)]
        start += len(column.names)
        values.append(Value(column.name, *_in_column(column, part, span)))
    return values


def _in_column(column: Column, part: Floats, span: Floats) -> tuple[str, float]:
    """Text and share: of a category the value whose column is largest, or its averages."""
    first = float(part[0])
    if isinstance(column, Category):
        part, names = part[column.n_ngrams :], column.names[column.n_ngrams :]
        if not column.is_one_hot:
            return f"average {short(float(part[0]))}", _within(float(part[0]), 0, 1)
        best = int(part.argmax())
        text = names[best].removeprefix(f"{column.name} = ")
        return text, _within(part[best], 0, 1)
    if isinstance(column, Date):
        day = column.middle + first * DAYS_A_YEAR
        date = np.datetime64(int(np.clip(day, FIRST_DAY, LAST_DAY)), "D")
        return str(date), _within(day, *span)
    if isinstance(column, Number) and column.boolean:
        return "yes" if first > 0.5 else "no", _within(first, 0, 1)
    return short(first), _within(first, *span)


def _within(value: float, low: float, high: float) -> float:
    """Where it lies between two others, from 0 to 1; prototypes may lie beyond."""
    return float(np.clip((value - low) / (high - low), 0, 1)) if high > low else 0.5
