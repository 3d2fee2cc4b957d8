"""Prototypes as people can look at them: pictures, or values in the units of the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.bank import Bank
from protopinv.features import Bent, FeatureMap, Stem
from protopinv.tables import Category, Date, Number, Table
from protopinv.tables.columns import short
from protopinv.tables.parts import DAYS_A_YEAR

Array = NDArray[np.float64]

# Pictures that a stem would see as a prototype are found by so many steps of Adam.
STEPS, RATE = 200, 0.05
# What neighbouring pixels may differ by costs as much as this share of the distance.
ROUGHNESS = 0.02


def prototype_rows(estimator: Any) -> Array:
    """The prototypes of the first bank as rows of features, in the units of what came in.

    Scaling, projection, a learned factor for each feature and bent columns are taken back. A stem
    cannot be taken back: with one these are rows that it gives.
    """
    Z = seen_prototypes(estimator._bank().member(0))
    rows = estimator.features_.unproject(Z)
    front = estimator.front_
    restored: Array = (front.restored(rows) if isinstance(front, Bent) else rows).numpy()
    return restored


def seen_prototypes(bank: Bank) -> torch.Tensor:
    """Inputs of one bank, before its learned factor for each feature."""
    inputs = bank.inputs.double()
    if bank.scale is None:
        return inputs
    scale = bank.scale.double()
    return torch.where(scale.abs() > 1e-6, inputs / scale, 0)


def pictures(estimator: Any, chosen: Sequence[int]) -> Array:
    """Some prototypes as images of (height, width, channels).

    With a stem they are images that it sees as the prototype, found by descent from grey: many
    images look alike to it, and this is a smooth one.
    """
    shape = estimator.config_.image_shape
    height, width, channels = (*shape, 1)[:3]
    rows = torch.from_numpy(prototype_rows(estimator)[list(chosen)])
    if isinstance(estimator.front_, Stem):
        rows = _seen_alike(estimator.front_, estimator.features_, rows.float(), estimator.examples_)
    images: Array = rows.double().numpy().reshape(-1, height, width, channels)
    return images


def _seen_alike(
    stem: Stem, features: FeatureMap, wanted: torch.Tensor, examples: NDArray[Any]
) -> torch.Tensor:
    """Images whose features come near the wanted ones, each in the scale of its feature."""
    low, high = (float(examples.min()), float(examples.max())) if len(examples) else (0.0, 1.0)
    span = (high - low) or 1.0
    scale = features.scale.float()
    levels = torch.zeros(len(wanted), stem.n_inputs, requires_grad=True)
    optimizer = torch.optim.Adam([levels], lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        images = low + span * torch.sigmoid(4 * levels)
        off = ((stem(images) - wanted) * scale).square().mean(1)
        grid = stem.images(images) / span
        rough = grid.diff(dim=2).square().mean((1, 2, 3)) + grid.diff(dim=3).square().mean(
            (1, 2, 3)
        )
        (off + ROUGHNESS * rough * off.detach()).sum().backward()
        optimizer.step()
    return (low + span * torch.sigmoid(4 * levels)).detach()


@dataclass(frozen=True)
class Value:
    """What a prototype has in one column: a text, and where that lies between low and high."""

    column: str
    text: str
    share: float


def values_of(table: Table | None, names: Sequence[str], row: Array, ranges: Array) -> list[Value]:
    """Every column of one prototype. ``ranges`` has low and high for each, where it is a number."""
    if table is None:
        return [
            _number(name, float(value), low, high)
            for name, value, (low, high) in zip(names, row, ranges, strict=True)
        ]
    found, start = [], 0
    for column, (low, high) in zip(table.columns, ranges, strict=True):
        part = row[start : start + len(column.names)]
        start += len(column.names)
        if isinstance(column, Category):
            found.append(_category(column, part))
        elif isinstance(column, Date):
            found.append(_date(column, float(part[0]), low, high))
        else:
            found.append(_number(column.name, float(part[0]), low, high, column))
    return found


def _number(
    name: str, value: float, low: float, high: float, column: Number | None = None
) -> Value:
    share = (value - low) / (high - low) if high > low else 0.5
    if column is not None and column.boolean:
        return Value(name, "yes" if value > 0.5 else "no", min(1.0, max(0.0, value)))
    return Value(name, short(value), min(1.0, max(0.0, share)))


def _category(column: Category, part: Array) -> Value:
    """The value whose column is largest; where there are averages only, these."""
    if not column.is_one_hot:
        return Value(column.name, f"average {short(float(part[0]))}", float(np.clip(part[0], 0, 1)))
    best = int(part.argmax())
    text = column.names[best].removeprefix(f"{column.name} = ")
    return Value(column.name, text, float(np.clip(part[best], 0, 1)))


def _date(column: Date, years: float, low: float, high: float) -> Value:
    day = column.middle + years * DAYS_A_YEAR
    share = (day - low) / (high - low) if high > low else 0.5
    text = str(np.datetime64(int(np.clip(day, -700_000, 2_900_000)), "D"))
    return Value(column.name, text, min(1.0, max(0.0, share)))
