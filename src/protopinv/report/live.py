"""The model inside a page: its JavaScript, controls for a row, the nearest prototypes, a self-test.

The script is the one that ``export`` writes. A page holds about a megabyte of it; of an ensemble
that is larger, the page runs the first member alone, and says so. What is still larger has weights
of five digits.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.continual.editing import without_ignored
from protopinv.export.description import describe, front_steps
from protopinv.export.javascript import js_step, write_javascript
from protopinv.export.text import js_value
from protopinv.model import Model, merged_network
from protopinv.model_file.saving import made_up as made_up_rows
from protopinv.network import Network
from protopinv.objective import Numbers
from protopinv.report.prototypes import column_names
from protopinv.tables import Category, Text

MOST_SCRIPT = 1_000_000
TEST_ROWS = 100
# Made-up rows whose quantiles are the ranges of columns.
TYPICAL_ROWS = 1_000
# Of the generator that Python and the page share (Numerical Recipes' linear congruential one).
MULTIPLIER, INCREMENT, MODULUS, SEED = 1_664_525, 1_013_904_223, 2**32, 20_261_118

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Control:
    """A column that can be moved: its range, or its values, and where it starts."""

    name: str
    kind: str
    low: float
    high: float
    typical: float
    values: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Near:
    """(x levels) factor + bias: for each prototype a number that is largest for the nearest."""

    levels: Tensor
    factor: Tensor
    bias: Tensor


def controls(model: Model, X: Any) -> tuple[Control, ...]:
    """The range of each column: by the table, else by rows, else by rows that are made up."""
    if model.table is not None:
        return tuple(_of_column(column) for column in model.table.columns)
    rows = made_up_rows(model, TYPICAL_ROWS) if X is None else np.asarray(X).reshape(len(X), -1)
    low, typical, high = np.quantile(np.asarray(rows, dtype=np.float64), (0.01, 0.5, 0.99), 0)
    high = np.where(high > low, high, low + 1)
    columns = zip(column_names(model), low.tolist(), high.tolist(), typical.tolist(), strict=True)
    return tuple(Control(name, "number", *numbers) for name, *numbers in columns)


def _of_column(column: Any) -> Control:
    if isinstance(column, Category):
        return Control(column.name, "category", 0, 1, column.typical, tuple(column.values))
    high = column.high if column.high > column.low else column.low + 1
    kind = "number" if isinstance(column, Text) else column.kind
    kind = "boolean" if getattr(column, "boolean", False) else kind
    return Control(column.name, kind, column.low, high, column.typical)


def live(
    model: Model, moved: Sequence[Control], shown: Sequence[int], about: Sequence[str]
) -> tuple[str, int]:
    """The script of a page, and how many members of the ensemble it runs.

    ``shown`` are the prototypes that it may call near.
    """
    n_members = model.n_members
    running, script = model, write_javascript(describe(model), about)
    if len(script) > MOST_SCRIPT and n_members > 1 and model.bank is not None:
        first = replace(model, network=first_network(model), others=(), weight=1.0)
        running, n_members = first, 1
        script = write_javascript(describe(running), about)
    if len(script) > MOST_SCRIPT:
        script = write_javascript(describe(running), about, shorter=True)
    image = _image(model, moved)
    facts = {
        "task": model.task,
        "image": image,
        "controls": [asdict(control) for control in moved],
        "answers": _answers(running, made_up_codes(moved, is_image=image is not None)),
        "prototypes": list(shown),
        "generator": [MULTIPLIER, INCREMENT, MODULUS, SEED],
        "range": _range(model.objective),
    }
    steps = ",\n".join(_nearest(model, shown))
    page = f"const page = {js_value(facts)};\nconst nearestSteps = [{steps}];\n"
    return f"{script}\n{page}", n_members


def first_network(model: Model) -> Network:
    """The network of the first member alone, with the calibration of the ensemble."""
    features = None if model.steps is not None else model.features
    if features is not None and model.memory is not None:
        features = without_ignored(features, model.memory)
    first = model.prototypes.members([0])
    return merged_network(first, features, model.objective, model.config, model.calibration)


def _nearest(model: Model, shown: Sequence[int]) -> list[str]:
    """Steps from a row to 2 x.p - p.p for each prototype p shown: largest for the nearest.

    x is the row as the bank sees it: behind the front, scaled, and times the learned factors. A
    byte for each number of p tells well enough which are near.
    """
    if model.bank is None:
        return []
    bank, features = model.bank.member(0), model.features
    P = bank.inputs.double()[list(shown)]
    scale = torch.ones(P.shape[1]) if bank.scale is None else bank.scale.double()
    if model.steps is not None:  # near in the numbers that the steps are of
        P, scale = model.steps.restored(P), torch.ones(model.steps.n_inputs)
    V = (scale * P).T
    V = V if features.basis is None else features.basis.double() @ V
    V = features.scale.double()[:, None] * V
    bias = -(features.mean.double() @ V) * 2 - P.square().sum(1)
    factor = V.abs().amax(0).clamp_min(1e-30) / 127
    near = Near((V / factor).round().to(torch.int8), 2 * factor, bias)
    return [js_step(step) for step in (*front_steps(model), near)]


def made_up_codes(moved: Sequence[Control], *, is_image: bool) -> Array:
    """Made-up rows, by a generator that the page has too; categories as their places."""
    state, rows = SEED, np.empty((TEST_ROWS, len(moved)))
    for row in rows:
        for place, control in enumerate(moved):
            state = (MULTIPLIER * state + INCREMENT) % MODULUS
            share = state / MODULUS
            if control.kind == "category":
                row[place] = float(int(share * len(control.values)))
            elif control.kind == "boolean":
                row[place] = float(share >= 0.5)
            else:
                share = max(0.0, 2 * share - 1) if is_image else share
                row[place] = control.low + (control.high - control.low) * share
    return rows


def _answers(model: Model, codes: Array) -> list[list[float]]:
    """Predictions of Python for made-up rows: numbers, or probabilities."""
    outputs = model.outputs(codes)
    if isinstance(model.objective, Numbers):
        answers = model.objective.decode(outputs.numpy()).reshape(len(codes), -1)
    else:
        answers = model.probabilities(outputs)
    listed: list[list[float]] = answers.round(12).tolist()
    return listed


def _image(model: Model, moved: Sequence[Control]) -> dict[str, Any] | None:
    """The shape of images and the range of their pixels; None for tables."""
    if model.config.image_shape is None:
        return None
    height, width, channels = (*model.config.image_shape, 1)[:3]
    low, high = min(c.low for c in moved), max(c.high for c in moved)
    return {"height": height, "width": width, "channels": channels, "low": low, "high": high}


def _range(objective: Any) -> list[list[float]] | None:
    """Where numbers mostly lie, target by target; None for classes and labels."""
    if not isinstance(objective, Numbers):
        return None
    if objective.low is not None and objective.high is not None:
        return [list(pair) for pair in zip(objective.low, objective.high, strict=True)]
    pairs = zip(objective.centre, objective.spread, strict=True)
    return [[centre - 3 * spread, centre + 3 * spread] for centre, spread in pairs]
