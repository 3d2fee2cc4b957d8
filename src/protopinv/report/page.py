"""One self-contained page about a fitted model, with the model itself running in it."""

from collections.abc import Sequence
from datetime import date
from importlib.resources import files as resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from protopinv import __version__
from protopinv.errors import ConfigError
from protopinv.files import replacing, require_ending, require_file
from protopinv.optional import require
from protopinv.report import content, scores
from protopinv.report.charts import legend
from protopinv.report.live import Control, controls, live

ASSETS = resources("protopinv.report") / "assets"


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
    """Write a page about a fitted estimator to ``path``, whole or not at all, and give the path.

    With rows ``X`` and targets ``y`` the page says how good the model is on them, and which columns
    matter. It shows aggregates of them; with ``rows`` also the few rows that the model is most
    wrong about. ``name`` stands above it, the name of the file unless it is given.
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


def render(model: Any, X: Any, y: Any, *, name: str, rows: bool, today: date) -> str:
    """The page as text."""
    jinja2 = require("jinja2", extra="report", why="A report")
    moved = controls(model, None if X is None or model.table_ is not None else _flat(X))
    has_bank = hasattr(model, "bank_")
    found = None if X is None else scores.scores(model, X, y, with_rows=rows)
    is_image = model.config_.image_shape is not None
    falls = None
    if X is not None and not is_image:
        falls = scores.importance(model, X, y)
    order = _order(model, moved, falls)
    shown = content.shown_prototypes(model) if has_bank else []
    running = live(model, moved, shown, [f"{name}, written by protopinv {__version__}"])
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda file: (ASSETS / file).read_text(encoding="utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names = content.names_of(model)
    text: str = environment.get_template("page.html").render(
        name=name,
        today=today.isoformat(),
        facts=content.headline(model, model.model_.task),
        style=_asset("page.css"),
        script=Markup(running.script) + _asset("page.js"),  # escaped piece by piece by js_value
        running=running,
        is_image=is_image,
        order=order,
        names=names,
        classes=legend({each: f"s{place % 6}" for place, each in enumerate(names)}),
        charts=content.training_charts(model),
        scores=found,
        importance=None
        if falls is None
        else scores.importance_chart([control.name for control in moved], falls),
        prototypes=content.prototypes(model, shown, moved, order) if has_bank else [],
        n_prototypes=model.bank_.n_prototypes if has_bank else 0,
        front=content.front_story(model),
        allocation=content.allocation(model) if has_bank else None,
        solves=content.solves(model) if has_bank else [],
        table=None if model.table_ is None else model.table_,
        settings=content.settings(model),
        versions=content.versions(),
    )
    return text


def _asset(file: str) -> Markup:
    """A file of ours, as it is."""
    return Markup((ASSETS / file).read_text(encoding="utf-8"))


def _flat(X: Any) -> Any:
    rows = np.asarray(X)
    return rows.reshape(len(rows), -1)


def _order(model: Any, moved: Sequence[Control], falls: Any) -> list[int]:
    """Columns, the most telling first: by what shuffling costs, else by the first layer."""
    if falls is not None:
        return [int(place) for place in np.argsort(-falls, kind="stable")]
    if model.config_.image_shape is not None:
        return list(range(len(moved)))
    weights = model.network_.weights[0].double()[1:].norm(dim=1)
    size = (weights / model.features_.scale.double().abs().clamp_min(1e-30)).numpy()
    table = model.table_
    if table is not None:
        starts = np.cumsum([0, *(len(column.names) for column in table.columns)])
        size = np.array([size[a:b].max() for a, b in pairwise(starts.tolist())])
    return [int(place) for place in np.argsort(-size, kind="stable")]
