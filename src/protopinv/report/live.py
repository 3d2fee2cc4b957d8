"""The model inside a page: its JavaScript, controls for a row, the nearest prototypes, a self-test.

The script is the one that ``export`` writes. A page holds about a megabyte of it; of a mean of
several banks that is larger, the page runs the first bank alone, and says so. What is still larger
has weights of five digits.
"""

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.continual.learning import without_ignored
from protopinv.export.description import describe, front_steps
from protopinv.export.encode import Encode
from protopinv.export.javascript import step_text, write_javascript
from protopinv.export.steps import Step
from protopinv.export.text import js_floats, js_value
from protopinv.model import Model
from protopinv.model_file import made_up as made_up_rows
from protopinv.network import Network
from protopinv.objective import Numbers
from protopinv.tables import Category, Table
from protopinv.train.training import merged_network

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

    @property
    def n_values(self) -> int:
        """Of a category."""
        return len(self.values)


@dataclass(frozen=True)
class Live:
    """The text of the script, and how many of the banks it has."""

    script: str
    n_banks: int
    of_banks: int


def controls(estimator: Any, X: NDArray[Any] | None) -> tuple[Control, ...]:
    """What each column may be: by its table, else by rows, else by rows that are made up."""
    table: Table | None = estimator.table_
    if table is not None:
        return tuple(_of_column(column) for column in table.columns)
    names = getattr(estimator, "feature_names_in_", None)
    rows = made_up_rows(estimator.model_, TYPICAL_ROWS).numpy() if X is None else X
    low, typical, high = np.quantile(np.asarray(rows, dtype=np.float64), (0.01, 0.5, 0.99), 0)
    high = np.where(high > low, high, low + 1)
    return tuple(
        Control(
            f"x{number}" if names is None else str(names[number]),
            "number",
            float(low[number]),
            float(high[number]),
            float(typical[number]),
        )
        for number in range(len(low))
    )


def _of_column(column: Any) -> Control:
    if isinstance(column, Category):
        return Control(column.name, "category", 0, 1, column.typical, tuple(column.values))
    high = column.high if column.high > column.low else column.low + 1
    kind = "boolean" if getattr(column, "boolean", False) else column.kind
    return Control(column.name, kind, column.low, high, column.typical)


def live(
    estimator: Any, moved: Sequence[Control], shown: Sequence[int], about: Sequence[str]
) -> Live:
    """The script of a page; ``shown`` are the prototypes that it may call near."""
    model: Model = estimator.model_
    n_banks = of_banks = 1 if model.bank is None else model.bank.n_members
    network, script = model.network, write_javascript(describe(model), about)
    if len(script) > MOST_SCRIPT and of_banks > 1:
        network, n_banks = first_network(estimator), 1
        script = write_javascript(describe(replace(model, network=network)), about)
    if len(script) > MOST_SCRIPT:
        alone = describe(replace(model, network=network))
        script = write_javascript(alone, about, shorter=True)
    image = _image(estimator, moved)
    facts = {
        "task": model.task,
        "image": image,
        "controls": [asdict(control) for control in moved],
        "answers": _answers(estimator, network, made_up(moved, is_image=image is not None)),
        "prototypes": list(shown),
        "generator": [MULTIPLIER, INCREMENT, MODULUS, SEED],
        "range": _range(estimator.objective_),
    }
    steps = ",\n".join(_nearest(model, shown))
    page = f"const page = {js_value(facts)};\nconst nearestSteps = [{steps}];\n"
    return Live(f"{script}\n{page}", n_banks, of_banks)


def first_network(estimator: Any) -> Network:
    """The network of the first bank alone, as sure of its answers as the mean of all is."""
    features, memory = estimator.features_, estimator.memory_
    features = features if memory is None else without_ignored(features, memory)
    first, config = estimator.bank_.members([0]), estimator.config_
    calibration = estimator.model_.calibration
    return merged_network(first, features, estimator.objective_, config, calibration)


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
    V = (scale * P).T
    V = V if features.basis is None else features.basis.double() @ V
    V = features.scale.double()[:, None] * V
    bias = -(features.mean.double() @ V) * 2 - P.square().sum(1)
    read: list[Step] = []
    if model.table is not None and not model.table.is_plain:
        read = [Encode(model.table)]
    factor = V.abs().amax(0).clamp_min(1e-30) / 127
    levels = (V / factor).round().to(torch.int8).numpy()
    packed = base64.b64encode(levels.tobytes()).decode()
    near = (
        f'{{ type: "near", levels: new Int8Array(bytes("{packed}").buffer), '
        f"factor: {js_floats((2 * factor).numpy())}, bias: {js_floats(bias.numpy())} }}"
    )
    return [*map(step_text, [*read, *front_steps(model)]), near]


def made_up(moved: Sequence[Control], *, is_image: bool) -> Array:
    """Rows that nobody has seen, by a generator that the page has too; categories as places."""
    state, rows = SEED, np.empty((TEST_ROWS, len(moved)))
    for row in rows:
        for place, control in enumerate(moved):
            state = (MULTIPLIER * state + INCREMENT) % MODULUS
            share = state / MODULUS
            if control.kind == "category":
                row[place] = float(int(share * control.n_values))
            elif control.kind == "boolean":
                row[place] = float(share >= 0.5)
            else:
                share = max(0.0, 2 * share - 1) if is_image else share
                row[place] = control.low + (control.high - control.low) * share
    return rows


def _answers(estimator: Any, network: Network, codes: Array) -> list[list[float]]:
    """What Python says of rows that were made up, by the banks that the page has."""
    table, front = estimator.table_, estimator.front_
    rows = torch.from_numpy(codes if table is None else table.features(codes))
    outputs = network(rows if front is None else front.features(rows))
    if isinstance(estimator.objective_, Numbers):
        answers = estimator.objective_.decode(outputs.numpy()).reshape(len(codes), -1)
    else:
        answers = estimator.model_.probabilities(outputs)
    listed: list[list[float]] = answers.round(12).tolist()
    return listed


def _image(estimator: Any, moved: Sequence[Control]) -> dict[str, Any] | None:
    """The shape of images and the range of their pixels; None for tables."""
    shape = estimator.config_.image_shape
    if shape is None:
        return None
    height, width, channels = (*shape, 1)[:3]
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
