"""What a page tells of a model, section by section: plain values and charts, no HTML of its own."""

import base64
import io
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from protopinv import __version__
from protopinv.features import Stem
from protopinv.objective import Classes, Labels, Numbers
from protopinv.optional import require
from protopinv.report.charts import Axes, Line, bars, lines, number
from protopinv.report.live import Control
from protopinv.report.prototypes import prototypes_of
from protopinv.report.values import Value, values_of
from protopinv.train.config import TrainConfig

# Prototypes that are shown, and columns of each.
MOST_PROTOTYPES = 48
MOST_VALUES = 8
# On a page a pixel of an image is so many.
PICTURE_SIDE = 84


@dataclass(frozen=True)
class Prototype:
    """One prototype: what it speaks for, and a picture or its values."""

    number: int
    says: str
    group: int
    picture: str | None
    values: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A name and a text."""

    name: str
    text: str


def names_of(estimator: Any) -> list[str]:
    """Of the outputs: classes, labels or targets."""
    objective = estimator.objective_
    if isinstance(objective, Classes):
        return [str(label) for label in estimator.classes_.tolist()]
    word = "label" if isinstance(objective, Labels) else "target"
    if objective.n_outputs == 1:
        return ["prediction"]
    return [f"{word} {place}" for place in range(objective.n_outputs)]


def headline(estimator: Any, task: str) -> list[Fact]:
    """What matters first."""
    history, network = estimator.history_, estimator.network_
    facts = [Fact("task", task)]
    if history.kept_score is not None:
        measure = estimator.objective_.measure
        facts.append(Fact(f"{measure} on rows held out in training", f"{history.kept_score:.4f}"))
    facts.append(Fact("columns", f"{estimator.n_features_in_:,}"))
    if hasattr(estimator, "bank_"):
        bank = estimator.bank_
        word = "bank" if bank.n_members == 1 else f"banks of {bank.n_prototypes}"
        count = bank.n_prototypes if bank.n_members == 1 else bank.n_members
        facts.append(Fact("prototypes", f"{count} {word}" if bank.n_members > 1 else str(count)))
    facts.append(Fact("layers", " → ".join(map(str, network.sizes))))
    facts.append(Fact("numbers to predict with", f"{estimator.n_shipped_:,}"))
    facts.append(Fact("trained in", f"{history.seconds:.3g} s, {history.n_epochs} epochs"))
    return facts


def training_charts(estimator: Any) -> list[Markup]:
    """Loss of every bank and fold, learning rate, ridge."""
    history = estimator.history_
    drawn = [
        Line("each bank", [row[place] for row in history.member_loss], "thin s0")
        for place in range(len(history.member_loss[0]) if history.member_loss else 0)
    ]
    drawn += [
        Line("each fold, rows left out", [row[place] for row in history.fold_loss], "thin s1")
        for place in range(len(history.fold_loss[0]) if history.fold_loss else 0)
    ]
    drawn.append(Line("training rows", history.loss, "s0"))
    if history.validation_loss:
        drawn.append(Line("held-out rows", history.validation_loss, "s1"))
    found = [lines("Loss by epoch", Axes("epoch", "loss"), drawn)]
    if history.validation_score:
        measure = estimator.objective_.measure
        score = [Line(measure, history.validation_score, "s1")]
        found.append(lines("Score on held-out rows", Axes("epoch", f"{measure}, held out"), score))
    found.append(lines("Learning rate", Axes("epoch", "learning rate"), [Line("", history.lr)]))
    ridges = np.asarray(history.ridge, dtype=np.float64)
    learned = ridges.ndim == 2 and bool((ridges != ridges[:1]).any())  # others are in the table
    if learned and np.isfinite(ridges).all() and (ridges > 0).all():
        drawn = [
            Line(f"layer {place + 1}", ridge.tolist(), f"s{place % 6}")
            for place, ridge in enumerate(ridges.T)
        ]
        found.append(lines("Ridge by layer", Axes("epoch", "ridge", log=True), drawn))
    return found


def shown_prototypes(estimator: Any) -> list[int]:
    """Those with the clearest outputs, as many of each class as there is room for."""
    outputs = estimator.bank_.member(0).outputs.double().numpy()
    if len(outputs) <= MOST_PROTOTYPES:
        return sorted(range(len(outputs)), key=lambda place: (_group(outputs[place]), place))
    group = [_group(row) for row in outputs]
    clear = sorted(range(len(outputs)), key=lambda place: -float(np.abs(outputs[place]).max()))
    room = max(1, MOST_PROTOTYPES // len(set(group)))
    kept: list[int] = []
    for place in clear:
        if sum(group[other] == group[place] for other in kept) < room:
            kept.append(place)
    return sorted(kept[:MOST_PROTOTYPES], key=lambda place: (group[place], place))


def _group(outputs: NDArray[np.float64]) -> int:
    return int(outputs.argmax())


def prototypes(
    estimator: Any, shown: Sequence[int], moved: Sequence[Control], order: Sequence[int]
) -> list[Prototype]:
    """Pictures, or values of the columns that matter most, first in ``order``."""
    found = prototypes_of(estimator, chosen=shown)
    groups = estimator.bank_.member(0).outputs.argmax(dim=1).tolist()
    if found.image_shape is not None:
        images = _encoded(found.values.reshape(len(shown), *(*found.image_shape, 1)[:3]))
        return [
            Prototype(place, text, groups[place], image)
            for place, text, image in zip(shown, found.texts, images, strict=True)
        ]
    ranges = np.array([[control.low, control.high] for control in moved])
    names = [control.name for control in moved]
    told = []
    for place, text, row in zip(shown, found.texts, found.values, strict=True):
        values = values_of(estimator.table_, names, row, ranges)
        first = tuple(values[column] for column in order[:MOST_VALUES])
        told.append(Prototype(place, text, groups[place], None, first))
    return told


def _encoded(images: NDArray[np.float64]) -> list[str]:
    """Images as PNG inside an address, each stretched to its own range."""
    require("PIL", extra="report", why="Drawing prototypes")
    from PIL import Image

    found = []
    for image in images:
        low, high = np.quantile(image, (0.01, 0.99))
        levels = np.clip((image - low) / max(high - low, 1e-12), 0, 1)
        pixels = (255 * levels).round().astype(np.uint8)
        pixels = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, :3]
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
        found.append(f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}")
    return found


def allocation(estimator: Any) -> Markup | None:
    """How many prototypes speak for each class; None for numbers."""
    if isinstance(estimator.objective_, Numbers):
        return None
    outputs = estimator.bank_.outputs.double().numpy()
    counts = np.bincount(outputs.argmax(axis=2).ravel(), minlength=outputs.shape[2])
    counts = counts / estimator.bank_.n_members
    most = counts.max() or 1
    names = names_of(estimator)
    told = [(name, n / most, f"{n:.3g}") for name, n in zip(names, counts.tolist(), strict=True)]
    return bars("Prototypes for each class", told)


@dataclass(frozen=True)
class Solve:
    """How one layer's solve stands, as texts."""

    layer: int
    ridge: str
    condition: str
    system: str
    rank: str
    freedom: str


def solves(estimator: Any) -> list[Solve]:
    """One for each layer of the first bank."""
    return [
        Solve(
            place,
            number(layer.ridge),
            number(layer.condition) if np.isfinite(layer.condition) else "infinite",
            number(layer.system_condition),
            f"{layer.effective_rank:.1f}",
            f"{layer.degrees_of_freedom:.1f} of {len(layer.singular_values)}",
        )
        for place, layer in enumerate(estimator.diagnose().layers, start=1)
    ]


def settings(estimator: Any) -> list[Fact]:
    """Every hyperparameter as it was used, with the sentence that explains it."""
    used = asdict(estimator.config_)
    return [Fact(item.name, repr(used[item.name])) for item in fields(TrainConfig)]


def versions() -> list[Fact]:
    """Of what made the page."""
    packages = ("torch", "numpy", "scikit-learn")
    told = [Fact("protopinv", __version__), Fact("Python", platform.python_version())]
    return told + [Fact(name, version(name)) for name in packages]


def front_story(estimator: Any) -> str | None:
    """What stands before the network, for readers of its prototypes."""
    if isinstance(estimator.front_, Stem):
        return (
            "This network sees images through a stem of fixed filters, which cannot be taken back. "
            "Each picture is an image that the stem sees as it sees the prototype; others would "
            "do as well."
        )
    return None
