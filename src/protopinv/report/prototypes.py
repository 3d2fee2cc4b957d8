"""The prototypes of a model as its user knows rows: pictures, or values in the columns' units."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.features import Bent, FeatureMap, Stem
from protopinv.objective import Labels

# Pictures that a stem would see as a prototype are found by so many steps of Adam.
STEPS, RATE = 200, 0.05
# What neighbouring pixels may differ by costs as much as this share of the distance.
ROUGHNESS = 0.02


@dataclass(frozen=True)
class Prototypes:
    """Prototypes of one bank, a row each, in the units of the rows that were trained on.

    ``distance`` is how far each feature is from its mean, as the network scales it; ``answers`` are
    what prototypes stand for, a class, labels, or numbers, and ``texts`` the same to be read.
    """

    values: NDArray[np.float64]
    distance: NDArray[np.float64]
    names: tuple[str, ...]
    answers: NDArray[Any]
    texts: tuple[str, ...]
    image_shape: tuple[int, ...] | None


def prototypes_of(model: Any, member: int = 0, chosen: Sequence[int] | None = None) -> Prototypes:
    """Where the prototypes of a fitted model are, in the space of its rows; all, or some of them.

    Scaling and projection are taken back exactly: a row that is put there comes out of them as the
    prototype. A stem has no way back. With one these are images that it sees nearly as it would see
    the prototype, found by descent from grey: many look alike to it, and this is a smooth one.
    """
    bank = model.model_.prototypes.member(member).to("cpu", torch.float64)
    kept = list(range(bank.n_prototypes)) if chosen is None else list(chosen)
    inputs = bank.inputs[kept]
    if bank.scale is not None:  # rows enter the network as scale * x; what it ignores is not moved
        used = bank.scale.abs() > 1e-6 * bank.scale.abs().max()
        inputs = torch.where(used, inputs / torch.where(used, bank.scale, 1.0), 0.0)
    features, front = model.features_, model.front_
    rows = features.unproject(inputs.to(features.mean.dtype)).double()
    distance = (rows - features.mean) * features.scale
    values = rows
    if isinstance(front, Stem):
        values = _seen_alike(front, features, rows.float(), model.model_.image_range).double()
    elif isinstance(front, Bent):
        values = front.restored(rows)
    answers = _answers(model, bank.outputs[kept])
    shape = model.config_.image_shape
    return Prototypes(
        values.numpy(),
        distance.numpy(),
        _feature_names(model, values.shape[1]),
        answers,
        tuple(_text(model.objective_, answer) for answer in answers.tolist()),
        None if shape is None else tuple(shape),
    )


def _seen_alike(
    stem: Stem, features: FeatureMap, wanted: torch.Tensor, image_range: tuple[float, float] | None
) -> torch.Tensor:
    """Images whose features come near the wanted ones, each in the scale of its feature."""
    low, high = image_range or (0.0, 1.0)
    span = (high - low) or 1.0
    scale = features.scale.float()
    levels = torch.zeros(len(wanted), stem.n_inputs, requires_grad=True)
    optimizer = torch.optim.Adam([levels], lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        images = low + span * torch.sigmoid(4 * levels)
        off = ((stem(images) - wanted) * scale).square().mean(1)
        grid = stem.images(images) / span
        rough = sum(grid.diff(dim=axis).square().mean((1, 2, 3)) for axis in (2, 3))
        (off + ROUGHNESS * rough * off.detach()).sum().backward()
        optimizer.step()
    return (low + span * torch.sigmoid(4 * levels)).detach()


def _feature_names(model: Any, n: int) -> tuple[str, ...]:
    if model.table_ is not None:
        return tuple(model.table_.feature_names)
    names = getattr(model, "feature_names_in_", None)
    return tuple(f"column {i + 1}" for i in range(n)) if names is None else tuple(map(str, names))


def _answers(model: Any, outputs: torch.Tensor) -> NDArray[Any]:
    """Outputs of prototypes as predictions are given: a class, labels or numbers in their units."""
    n = outputs.shape[1]
    as_is = torch.cat([torch.zeros(1, n), torch.eye(n)]).double()
    scaling = model.objective_.fold(as_is)
    found: NDArray[Any] = model.objective_.decode((scaling[0] + outputs @ scaling[1:]).numpy())
    return found


def _text(objective: Any, answer: Any) -> str:
    if isinstance(objective, Labels):
        there = [str(place) for place, label in enumerate(answer) if label]
        return f"labels {', '.join(there)}" if there else "no label"
    parts = answer if isinstance(answer, list) else [answer]
    return ", ".join(f"{part:.3g}" if isinstance(part, float) else str(part) for part in parts)
