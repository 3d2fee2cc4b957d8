"""One self-contained page about a fitted model, with the model itself running in it."""

import base64
import io
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv import __version__
from protopinv.errors import ConfigError
from protopinv.evaluation import Predictions, predictions, score
from protopinv.export.text import rendered
from protopinv.features import Stem
from protopinv.files import replacing, require_ending, require_file
from protopinv.model import Model
from protopinv.objective import Classes, Labels, Numbers
from protopinv.report.figures import Panel, empty_figure, page_figure, plot
from protopinv.report.live import Control, controls, live
from protopinv.report.plots import (
    calibration_panels,
    draw_predictions,
    history_panels,
    importance,
)
from protopinv.report.prototypes import answer_text, column_values, number, prototypes_of
from protopinv.rows import frame_columns, is_frame

Floats = NDArray[np.float64]

# A panel of a page, in inches.
PANEL = (5.2, 3.0)
# Permutation importance is measured on so many rows, and shown of so many columns.
IMPORTANCE_ROWS, MOST_IMPORTANT = 2_000, 20
# Rows of the largest loss that are listed, and confused pairs of classes.
HARDEST, CONFUSED = 10, 5
# A confusion matrix of more classes is listed, not drawn.
MOST_DRAWN = 24
# Prototypes that are shown, and columns of each.
MOST_PROTOTYPES, MOST_VALUES = 48, 8
NAMES = {
    "r2": "R2",
    "mae": "mean absolute error",
    "rmse": "root mean squared error",
    "n_rows": "rows",
}


def write_report(
    model: Any,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    name: str | None = None,
    rows: bool = False,
    today: date | None = None,
) -> Path:
    """Write a page about a fitted estimator to ``path``, whole or not at all, and return the path.

    With rows ``X`` and targets ``y`` the page shows how good the model is on them, and which
    columns matter. It shows aggregates of them; with ``rows`` also the few rows of the largest
    loss. ``name`` is the title, by default the name of the file.
    """
    path = Path(path)
    require_ending(path, "a report")
    require_file(path)
    if (X is None) != (y is None):
        raise ConfigError("A report needs rows and their targets. Got one of them. Give both.")
    text = render(model, X, y, name=name or path.stem, rows=rows, today=today or date.today())
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def render(estimator: Any, X: Any, y: Any, *, name: str, rows: bool, today: date) -> str:
    """The page as text."""
    model: Model = estimator.model_
    is_image = model.config.image_shape is not None
    moved = controls(model, X)
    falls, evaluation = None, None
    if X is not None:
        judged = predictions(estimator, X, y)
        evaluation = _evaluation(judged, X if rows else None)
        if not is_image:
            falls = importance(estimator, X, judged.truth, most_rows=IMPORTANCE_ROWS)
            falls = falls.importances_mean
    order = _order(model, moved, falls)
    shown = [] if model.bank is None else _shown_prototypes(model)
    script, n_members = live(model, moved, shown, [f"{name}, written by protopinv {__version__}"])
    return rendered(
        "protopinv.report",
        "page.html",
        name=name,
        today=today.isoformat(),
        model=model,
        facts=_headline(model),
        script=script,
        n_members=n_members,
        is_image=is_image,
        order=order,
        names=_output_names(model),
        charts=_training_charts(model),
        evaluation=evaluation,
        importance=None if falls is None else _important(moved, falls),
        prototypes=_prototypes(estimator, shown, moved, order) if shown else [],
        is_stem=isinstance(model.front, Stem),
        allocation=_allocation(model),
        layers=[] if model.bank is None else estimator.diagnose().layers,
        number=number,
        settings={key: repr(value) for key, value in asdict(model.config).items()},
        versions={
            "protopinv": __version__,
            "Python": platform.python_version(),
            **{package: version(package) for package in ("torch", "numpy", "scikit-learn")},
        },
    )


def _order(model: Model, moved: Sequence[Control], falls: Floats | None) -> list[int]:
    """Columns, the most important first: by permutation, else by the first layer."""
    if model.config.image_shape is not None:
        return list(range(len(moved)))
    if falls is None:
        falls = torch.stack([_strength(part) * part.weight for part in model.parts]).sum(0).numpy()
        if model.table is not None:
            starts = np.cumsum([0, *(len(column.names) for column in model.table.columns)])
            falls = np.array([falls[a:b].max() for a, b in pairwise(starts.tolist())])
    return [int(place) for place in np.argsort(-falls, kind="stable")]


def _strength(part: Model) -> torch.Tensor:
    """How large the weights of each feature are, by how far it varies."""
    weights: torch.Tensor = part.network.weights[0].double()[1:].norm(dim=1)
    if part.steps is None:
        return weights / part.features.scale.double().abs().clamp_min(1e-30)
    places = torch.cat([part.steps.raw, part.steps.column])
    squares = weights.new_zeros(part.steps.n_inputs).index_add_(0, places, weights.square())
    own: torch.Tensor = squares.sqrt()
    return own if part.features.basis is None else (part.features.basis.abs() @ own)


def _output_names(model: Model) -> list[str]:
    """Names of the classes, labels or targets."""
    if isinstance(model.objective, Classes):
        return [str(label) for label in model.classes.tolist()]
    if model.objective.n_outputs == 1:
        return ["prediction"]
    word = "label" if isinstance(model.objective, Labels) else "target"
    return [f"{word} {place}" for place in range(model.objective.n_outputs)]


def _headline(model: Model) -> dict[str, str]:
    """What matters first."""
    history, bank = model.history, model.bank
    facts = {"task": model.task}
    if history.kept_score is not None:
        measure = model.objective.measure
        facts[f"{measure} on rows held out in training"] = f"{history.kept_score:.4f}"
    facts["columns"] = f"{model.n_columns:,}"
    if bank is not None:
        several = f"{bank.n_members} members of {bank.n_prototypes}"
        facts["prototypes"] = str(bank.n_prototypes) if bank.n_members == 1 else several
    layers = [" → ".join(map(str, part.network.sizes)) for part in model.parts]
    facts["layers"] = "; ".join(layers)
    facts["model size (parameters)"] = f"{model.size:,}"
    facts["trained in"] = f"{history.seconds:.3g} s, {history.n_epochs} epochs"
    return facts


def _charts(panels: Sequence[Panel]) -> list[str]:
    return [page_figure(plot([panel], 1, PANEL), panel.title) for panel in panels]


def _training_charts(model: Model) -> list[str]:
    """Loss of every member and fold, score, learning rate; ridge where it was learned."""
    history = model.history
    ridges = np.asarray(history.ridge, dtype=np.float64)
    is_learned = ridges.ndim == 2 and bool((ridges != ridges[:1]).any())
    panels = history_panels(history) if history.n_epochs else []
    return _charts([panel for panel in panels if panel.title != "ridge" or is_learned])


def _evaluation(judged: Predictions, X: Any) -> dict[str, Any]:
    """Every figure of ``evaluate``; with rows ``X`` also what those of the largest loss hold."""
    result, names = score(judged), _output_names(judged.model)
    per = next(value for key, value in vars(result).items() if key.startswith("per_"))
    heads = [key for key in vars(per[0]) if key != "label"]
    confusion = np.asarray(getattr(result, "confusion", []), dtype=np.float64)
    if isinstance(judged.model.objective, Numbers):
        targets = zip(judged.truth.T, judged.predicted.T, names, strict=True)
        charts = [_predicted_chart(*target) for target in targets]
    else:
        charts = _charts(calibration_panels(result.calibration))
    return {
        "n_rows": result.n_rows,
        "measures": {
            NAMES.get(key, key.replace("_", " ")): number(value)
            for key, value in vars(result).items()
            if isinstance(value, float)
        },
        "table": [
            {"": name, **{NAMES.get(key, key): number(getattr(part, key)) for key in heads}}
            for name, part in zip(names, per, strict=True)
        ],
        "confusion": confusion.tolist() if len(confusion) <= MOST_DRAWN else [],
        "confused": _confused(confusion, names),
        "charts": charts,
        "hardest": _hardest(judged, X),
    }


def _predicted_chart(truth: Floats, predicted: Floats, name: str) -> str:
    name = "" if name == "prediction" else name
    with empty_figure(inches=PANEL) as (figure, (axes,)):
        draw_predictions(axes, truth, predicted, name)
    return page_figure(figure, f"predicted against true {name}".rstrip())


def _confused(confusion: Floats, names: Sequence[str]) -> list[str]:
    """The pairs of classes that are most often confused."""
    off = confusion * (1 - np.eye(len(confusion)))
    worst = np.argsort(-off, axis=None, kind="stable")[:CONFUSED].tolist()
    pairs = [divmod(place, len(off)) for place in worst if off.flat[place] > 0]
    return [f"{names[i]} predicted as {names[j]}: {number(off[i, j])} rows" for i, j in pairs]


def _hardest(judged: Predictions, X: Any) -> list[dict[str, str]]:
    """Rows of the largest loss by their number from 1 on; with ``X`` also what they hold."""
    rows, objective = [], judged.model.objective
    for place in np.argsort(-judged.losses, kind="stable")[:HARDEST].tolist():
        row = {"row": f"{place + 1}", "loss": number(float(judged.losses[place]))}
        if X is not None:
            values = _row_text(X, place)
            for name, answers in (("truth", judged.truth), ("prediction", judged.predicted)):
                row[name] = answer_text(objective, answers[place : place + 1].tolist()[0])
            row["values"] = values if len(values) < 400 else values[:400] + " ..."
        rows.append(row)
    return rows


def _row_text(X: Any, place: int) -> str:
    """One row, of a frame with the names of its columns."""
    if not is_frame(X):
        return ", ".join(f"{value:g}" for value in np.asarray(X[place]).ravel()[:40].tolist())
    return ", ".join(f"{name} = {column[place]}" for name, column in frame_columns(X).items())


def _important(moved: Sequence[Control], falls: Floats) -> list[tuple[str, float, str]]:
    """The most important columns as bars: name, share of the longest bar, and text."""
    order = np.argsort(-falls, kind="stable")[:MOST_IMPORTANT].tolist()
    longest = max(float(falls.max()), 1e-12)
    return [(moved[i].name, float(falls[i]) / longest, number(float(falls[i]))) for i in order]


def _shown_prototypes(model: Model) -> list[int]:
    """Those with the clearest outputs, as many of each class as there is room for."""
    outputs = model.prototypes.member(0).outputs.double().numpy()
    group, order = outputs.argmax(axis=1), np.arange(len(outputs))
    if len(outputs) > MOST_PROTOTYPES:
        room, seen = max(1, MOST_PROTOTYPES // len(np.unique(group))), Counter[int]()
        chosen = []
        for place in np.argsort(-np.abs(outputs).max(axis=1), kind="stable").tolist():
            seen[group[place]] += 1
            if seen[group[place]] <= room:
                chosen.append(place)
        order = np.array(sorted(chosen[:MOST_PROTOTYPES]))
    return sorted(order.tolist(), key=lambda place: int(group[place]))


def _prototypes(
    estimator: Any, shown: Sequence[int], moved: Sequence[Control], order: Sequence[int]
) -> list[dict[str, Any]]:
    """What each prototype stands for, with a picture, or the columns that are first in order."""
    model: Model = estimator.model_
    prototypes = prototypes_of(estimator, chosen=shown)
    groups = model.prototypes.member(0).outputs.argmax(dim=1)[list(shown)].tolist()
    cards: list[dict[str, Any]] = [
        {"number": place, "text": text, "group": group, "picture": None, "columns": []}
        for place, text, group in zip(shown, prototypes.texts, groups, strict=True)
    ]
    if prototypes.image_shape is not None:
        images = prototypes.values.reshape(len(shown), *(*prototypes.image_shape, 1)[:3])
        pictures = [{"picture": _encoded(image)} for image in images]
        return [card | picture for card, picture in zip(cards, pictures, strict=True)]
    ranges = np.array([[control.low, control.high] for control in moved])
    names = [control.name for control in moved]
    for card, row in zip(cards, prototypes.values, strict=True):
        values = column_values(model.table, names, row, ranges)
        card["columns"] = [values[column] for column in order[:MOST_VALUES]]
    return cards


def _encoded(image: Floats) -> str:
    """An image as PNG inside an address, stretched to its own range."""
    from PIL import Image

    low, high = np.quantile(image, (0.01, 0.99))
    levels = np.clip((image - low) / max(high - low, 1e-12), 0, 1)
    pixels = (255 * levels).round().astype(np.uint8)
    pixels = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, :3]
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _allocation(model: Model) -> list[tuple[str, float, str]]:
    """Prototypes of each class in a member on average, as bars; none for numbers."""
    if isinstance(model.objective, Numbers) or model.bank is None:
        return []
    outputs = model.bank.outputs
    counts = outputs.argmax(dim=2).flatten().bincount(minlength=outputs.shape[2])
    means = (counts / model.bank.n_members).tolist()
    names = _output_names(model)
    return [(name, n / max(means), f"{n:.3g}") for name, n in zip(names, means, strict=True)]
