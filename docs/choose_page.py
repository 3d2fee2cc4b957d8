"""docs/choose.md: when this is the right tool, from the contest of defaults and other records."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from results_page import recipe

from benchmarks.images.accuracy import meetings
from benchmarks.paper.text import NAMES as DATA
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
from benchmarks.tables.suite import Task
from protopinv.bench.markdown import markdown
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

SHORT = """\
| your data | take |
|---|---|
| a table of numbers whose target depends smoothly on its columns: measurements, physics, chemistry, sensors, spectra | this |
| a table with few rows, a hundred to a thousand | this; try a linear model beside it |
| a table whose target jumps, or depends on a few of very many columns: prices by rules, gradings, logs | LightGBM or CatBoost |
| several labels a row | LightGBM, a model for each label; this if one small model must do |
| a model that must be tiny, or run in C, in a browser, on a microcontroller | this |
| probabilities that will be acted on | this |
| a straight line in truth, or a model that must be explained number by number | ridge or logistic regression |
| photographs, sound, text | a network that was trained before; a CNN or transformer |
| small images: digits, symbols, patches | this, or a small CNN |
| a layer, a loss or a constraint of your own | PyTorch, or skorch |
| ranking, quantiles, survival, time series as such | other tools: there is nothing for it here |
"""
CONTEST = """\
Scores on this page are those of public tables on which none of our rules had been chosen, everybody with
their defaults, cross-validated, means of three seeds. [Accuracy](accuracy.md) has all of them, ranks, times
and conditions. Text was turned into columns of 0 and 1 for everybody; given as it is, the table adult
comes out better for us, see [Tables](tables.md#what-it-is-worth). Your table may differ from all of
these: an hour with two of the tools says more than this page.
"""
TREES_WIN = """\
Trees win where a target jumps with a column or hangs on a few categories of many: a smooth network needs
many units for one step. These are the {most} tables of each task where the best of four gradient boosters,
{trees}, is furthest ahead of our default, score in percent:
"""
WE_WIN = """\
A network wins where the target is smooth and columns act together. The {most} tables of each task where
our default is furthest ahead of the best of the four:
"""
LINEAR = """\
A linear model (ridge or logistic regression with default strength, on scaled columns) is as good as our
default, within {level:g} points, or better, on {classes} of {all_classes} tables with classes and on
{numbers} of {all_numbers} with numbers: {named}. It is fitted in a fraction of a second, so fit
it first; if the rest is not clearly better, keep it.
"""
LABELS = """\
With several labels a row, LightGBM with a model for each label is ahead on both tables of this half
(micro-F1 in percent):
"""
IMAGES = """\
No convolutional network was measured here; on photographs it is the tool. On small images this is what
the best network within {numbers:,} trained numbers reached on the official test set, with a stem of filters
that are not trained and with distorted copies of the images, next to an MLP with the same stem, copies
and search:
"""
TIME = """\
On the {tables} tables of the development half, all timed on one machine, LightGBM with its defaults took
{times:.2f} of the time that our default took to train, and `effort="quick"` took {quick:.2f}. If it is
training time that counts, take LightGBM, or a quick fit.
"""


def choose_page(newest: Mapping[str, Record]) -> tuple[str, dict[str, bytes]]:
    """The page, and the figure that the README shows."""
    record = contest_of(newest.values(), "confirmation")
    if record is None:
        raise LookupError("The page needs a record of the contest.")
    found = results(record)
    classes, numbers = (field_of(found, task) for task in ("classification", "regression"))
    sizes = {r.table: f"{r.rows:,} x {r.features}" for r in found}
    names = ", ".join(list(TREES.values())[:-1]) + f" and {list(TREES.values())[-1]}"
    lines = ["# Is it the right tool?", "", *SHORT.splitlines(), "", *CONTEST.splitlines(), ""]
    lines += ["![Everybody's defaults on public tables](figures/defaults.svg)", ""]
    lines += ["## Where trees are ahead", ""]
    lines += TREES_WIN.format(most=MOST, trees=names).splitlines()
    lines += ["", *_gaps(classes, numbers, sizes, ours_first=False)]
    lines += ["", "## Where this is ahead", "", *WE_WIN.format(most=MOST).splitlines()]
    lines += ["", *_gaps(classes, numbers, sizes, ours_first=True)]
    lines += ["", "## When a straight line will do", "", *_linear(classes, numbers)]
    lines += ["", "## Several labels", "", *LABELS.splitlines(), "", *_labels(found, sizes)]
    lines += ["", "## Images", "", *_images(newest)]
    lines += ["", "## Time to train", "", *_time(newest), ""]
    lines += [f"<sub>{recipe(part)}</sub>  " for part in record["parts"]]
    return "\n".join(lines) + "\n", {"defaults.svg": _figure(classes, numbers)}


def _gaps(
    classes: Field, numbers: Field, sizes: Mapping[str, str], *, ours_first: bool
) -> list[str]:
    """The tables with the largest differences from the best booster, one way or the other."""
    rows = []
    for field, measure in ((classes, "accuracy"), (numbers, "R2")):
        best = {table: _best_tree(field, place) for place, table in enumerate(field.tables)}
        ours = dict(zip(field.tables, field.column(REFERENCE).tolist(), strict=True))
        linear = dict(zip(field.tables, field.column("linear").tolist(), strict=True))
        ahead = {table: ours[table] - best[table][1] for table in field.tables}
        for table in sorted(ahead, key=lambda t: ahead[t], reverse=ours_first)[:MOST]:
            who, score = best[table]
            cells = [f"{100 * value:.1f}" for value in (ours[table], score, linear[table])]
            cells[1] += f", {TREES[who]}"
            rows.append([table, sizes[table], measure, *cells])
    return markdown(["table", "rows x columns", "measure", "ours", "best booster", "linear"], rows)


def _best_tree(field: Field, place: int) -> tuple[str, float]:
    scores = {name: float(field.column(name)[place]) for name in TREES}
    known = {name: score for name, score in scores.items() if not math.isnan(score)}
    best = max(known, key=lambda name: known[name])
    return best, known[best]


def _linear(classes: Field, numbers: Field) -> list[str]:
    level = {
        field.measure: [
            table
            for table, ours, line in zip(
                field.tables, field.column(REFERENCE), field.column("linear"), strict=True
            )
            if line >= ours - LEVEL
        ]
        for field in (classes, numbers)
    }
    (some_classes, some_numbers) = level.values()
    return LINEAR.format(
        level=100 * LEVEL,
        classes=len(some_classes),
        all_classes=len(classes.tables),
        numbers=len(some_numbers),
        all_numbers=len(numbers.tables),
        named=", ".join([*some_classes, *some_numbers]),
    ).splitlines()


def _labels(found: Sequence[Result], sizes: Mapping[str, str]) -> list[str]:
    task: Task = "multi-label"
    field = field_of(found, task)
    names = (*OURS, "lightgbm", "scikit-mlp", "linear")
    rows = [
        [table, sizes[table], *(f"{100 * field.column(name)[place]:.1f}" for name in names)]
        for place, table in enumerate(field.tables)
    ]
    return markdown(["table", "rows x columns", *names], rows)


def _images(newest: Mapping[str, Record]) -> list[str]:
    records = [
        newest[f"accuracy-stem-copies-{dataset}-cuda"] for dataset in ("mnist", "fashion-mnist")
    ]
    rows = [[DATA[m.dataset], str(m.ours), str(m.mlp)] for m in meetings(*records)]
    return [
        *IMAGES.format(numbers=records[0]["plan"]["most_trained"]).splitlines(),
        "",
        *markdown(["data", "protopinv %", "MLP %"], rows),
    ]


def _time(newest: Mapping[str, Record]) -> list[str]:
    record = contest_of(newest.values(), "development")
    if record is None:
        raise LookupError("The page needs a record of the development half.")
    found = results(record)
    fields = [field_of(found, task) for task in ("classification", "regression")]
    times = {}
    for name in ("lightgbm", "quick"):
        mine, ours = (
            sum(field.seconds(who) for field in fields if who in field.contestants)
            for who in (name, REFERENCE)
        )
        times[name] = mine / ours
    tables = sum(len(field.tables) for field in fields)
    text = TIME.format(tables=tables, times=times["lightgbm"], quick=times["quick"])
    return text.splitlines()


def _figure(classes: Field, numbers: Field) -> bytes:
    """A dot for each of some contestants: mean accuracy and mean R2, the best above."""
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "axes.grid.axis": "x"}):
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
    lowest = min(means[name] for name in names)
    for height, name in enumerate(names):
        colour = "tab:blue" if name in OURS else "0.4"
        axes.plot([lowest - 0.5, means[name]], [height, height], color=colour, linewidth=1)
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
    axes.set_xlim(lowest - 0.5, max(means[name] for name in names) + 0.35)
