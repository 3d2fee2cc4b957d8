"""docs/choose.md: when this is the right tool, from the contest of defaults and other records."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results_page import recipe

from benchmarks.images.accuracy import meetings
from benchmarks.tables.contestants import OURS, REFERENCE
from benchmarks.tables.standings import (
    LEVEL,
    Field,
    Result,
    contest_of,
    field_of,
    results,
    standings,
)
from benchmarks.tables.suite import Half
from benchmarks.tasks import NAMES as DATA
from benchmarks.text import markdown
from protopinv.optional import require
from protopinv.report.figures import STYLE, save_figure

Record = Mapping[str, Any]
TREES = {
    "catboost": "CatBoost",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "hist-gradient": "HistGradientBoosting",
}
# Those in the figure and in the README, from our own to the plainest.
SHOWN = {
    "best": 'effort="best"',
    "balanced": 'effort="balanced"',
    "quick": 'effort="quick"',
    "catboost": "CatBoost",
    "tabm": "TabM",
    "realmlp": "RealMLP-TD-S",
    "lightgbm": "LightGBM",
    "scikit-mlp": "scikit-learn's MLP, scaled",
}
MOST = 6  # tables that are named, either way

TEXT = Path(__file__).with_name("choose.txt")


def choose_page(newest: Mapping[str, Record]) -> tuple[str, dict[str, bytes]]:
    """The page, and the figure that the README shows."""
    record, earlier = (_contest(newest, half) for half in ("confirmation", "development"))
    found = results(record)
    fields = classes, numbers = _both(found)
    sizes = {r.table: f"{r.rows:,} x {r.features}" for r in found}
    *most, last = TREES.values()
    page = TEXT.read_text(encoding="utf-8").format(
        most=MOST,
        trees=f"{', '.join(most)} and {last}",
        trees_ahead=_gaps(fields, sizes, ours_first=False),
        ours_ahead=_gaps(fields, sizes, ours_first=True),
        labels=_labels(found, sizes),
        recipes="\n".join(f"<sub>{recipe(part)}</sub>  " for part in record["parts"]),
        **_linear(classes, numbers),
        **_images(newest),
        **_times(_both(results(earlier))),
    )
    return page, {"defaults.svg": _figure(classes, numbers)}


def _contest(newest: Mapping[str, Record], half: Half) -> Record:
    record = contest_of(newest.values(), half)
    if record is None:
        raise LookupError(f"The page needs a record of the contest on the {half} half.")
    return record


def _both(found: Sequence[Result]) -> tuple[Field, Field]:
    return field_of(found, "classification"), field_of(found, "regression")


def _gaps(fields: Sequence[Field], sizes: Mapping[str, str], *, ours_first: bool) -> str:
    """The tables with the largest differences from the best booster, one way or the other."""
    rows = []
    for field, measure in zip(fields, ("accuracy", "R2"), strict=True):
        best = {table: _best_tree(field, place) for place, table in enumerate(field.tables)}
        ours = dict(zip(field.tables, field.column(REFERENCE).tolist(), strict=True))
        linear = dict(zip(field.tables, field.column("linear").tolist(), strict=True))
        ahead = {table: ours[table] - best[table][1] for table in field.tables}
        for table in sorted(ahead, key=lambda t: ahead[t], reverse=ours_first)[:MOST]:
            who, score = best[table]
            cells = [f"{100 * value:.1f}" for value in (ours[table], score, linear[table])]
            cells[1] += f", {TREES[who]}"
            rows.append([table, sizes[table], measure, *cells])
    header = ["table", "rows x columns", "measure", "ours", "best booster", "linear"]
    return "\n".join(markdown(header, rows))


def _best_tree(field: Field, place: int) -> tuple[str, float]:
    scores = {name: float(field.column(name)[place]) for name in TREES}
    known = {name: score for name, score in scores.items() if not math.isnan(score)}
    best = max(known, key=lambda name: known[name])
    return best, known[best]


def _linear(classes: Field, numbers: Field) -> dict[str, Any]:
    """The tables where a linear model is level or ahead."""
    some_classes, some_numbers = (
        [
            table
            for place, table in enumerate(field.tables)
            if field.column("linear")[place] >= field.column(REFERENCE)[place] - LEVEL
        ]
        for field in (classes, numbers)
    )
    return {
        "level": 100 * LEVEL,
        "classes": len(some_classes),
        "all_classes": len(classes.tables),
        "numbers": len(some_numbers),
        "all_numbers": len(numbers.tables),
        "named": ", ".join([*some_classes, *some_numbers]),
    }


def _labels(found: Sequence[Result], sizes: Mapping[str, str]) -> str:
    field = field_of(found, "multi-label")
    names = (*OURS, "lightgbm", "scikit-mlp", "linear")
    rows = [
        [table, sizes[table], *(f"{100 * field.column(name)[place]:.1f}" for name in names)]
        for place, table in enumerate(field.tables)
    ]
    return "\n".join(markdown(["table", "rows x columns", *names], rows))


def _images(newest: Mapping[str, Record]) -> dict[str, Any]:
    records = [
        newest[f"accuracy-stem-copies-{dataset}-cuda"] for dataset in ("mnist", "fashion-mnist")
    ]
    rows = [[DATA[m.dataset], str(m.ours), str(m.mlp)] for m in meetings(*records)]
    return {
        "most_trained": records[0]["plan"]["most_trained"],
        "images": "\n".join(markdown(["data", "protopinv %", "MLP %"], rows)),
    }


def _times(fields: Sequence[Field]) -> dict[str, Any]:
    """Shares of the time of our default."""
    seconds = {
        name: sum(field.seconds(name) for field in fields)
        for name in ("lightgbm", "quick", REFERENCE)
    }
    return {
        "tables": sum(len(field.tables) for field in fields),
        "lightgbm": seconds["lightgbm"] / seconds[REFERENCE],
        "quick": seconds["quick"] / seconds[REFERENCE],
    }


def _figure(classes: Field, numbers: Field) -> bytes:
    """A dot for each of some contestants: mean accuracy and mean R2, the best above."""
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 2.5), layout="constrained")
        panels = (
            (classes, "accuracy, %, mean of {} tables"),
            (numbers, "R2, %, mean of {} tables"),
        )
        for place, (field, title) in enumerate(panels, start=1):
            axes = figure.add_subplot(1, 2, place)
            _dots(axes, field)
            axes.set_title(title.format(len(field.tables)))
    return save_figure(figure)


def _dots(axes: Any, field: Field) -> None:
    means = {s.name: 100 * s.mean for s in standings(field, REFERENCE) if s.mean is not None}
    names = sorted((name for name in SHOWN if name in means), key=lambda name: means[name])
    for height, name in enumerate(names):
        colour = "tab:blue" if name in OURS else "0.4"
        axes.plot([means[name]], [height], "o", color=colour, markersize=5)
        axes.annotate(
            f"{means[name]:.1f}",
            (means[name], height),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=colour,
        )
    axes.set_yticks(range(len(names)), [SHOWN[name] for name in names])
    axes.margins(x=0.15)
