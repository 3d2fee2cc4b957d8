"""The figures of docs/results.md, as the bytes of their files."""

import math
import statistics
from collections.abc import Mapping

from benchmarks.paper.evidence import MEASURES, Ablations, gap_correlation, gap_points
from benchmarks.paper.sweeps import SWEEPS
from benchmarks.paper.names import NAMES
from benchmarks.paper.verdicts import COSINE, best_constant
from protopinv.report import Panel, Series, plot, save_figure

CLASSES = {
    "mnist": [str(digit) for digit in range(10)],
    "fashion-mnist": [
        "T-shirt",
        "trouser",
        "pullover",
        "dress",
        "coat",
        "sandal",
        "shirt",
        "sneaker",
        "bag",
        "boot",
    ],
}
SHOWN_PENALTIES = ("0.0", "0.1", "1.0")
SHOWN_MEASURES = ("kappa", "spectral_norm", "inverse_margin")


def sweep_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """Points against the recipe, for every knob that has an order."""
    panels = [
        _sweep_panel(ablations, sweep, axis, log)
        for sweep, axis, log in (
            ("prototypes", "prototypes", "x"),
            ("width", "units", "x"),
            ("dropout", "rate", ""),
            ("temperature", "T", ""),
            ("condition", "penalty", ""),
        )
    ]
    return save_figure(plot([*panels, _projection_panel(ablations)], columns=3))


def _sweep_panel(ablations: Mapping[str, Ablations], sweep: str, axis: str, log: str) -> Panel:
    series = []
    for dataset, data in ablations.items():
        scores = data.scores(sweep)
        base = data.mean("parts", "all trained")
        x: list[float | str] = [float(label) if log else label for label in scores]
        y = [score.mean - base for score in scores.values()]
        series.append(Series(NAMES[dataset], x, y, [score.sd or 0 for score in scores.values()]))
    return Panel(SWEEPS[sweep].title, axis, "points against the recipe", series, log)


def _projection_panel(ablations: Mapping[str, Ablations]) -> Panel:
    series = []
    for dataset, data in ablations.items():
        base = data.mean("parts", "all trained")
        for kind in ("PCA", "PLS"):
            found = {
                float(label.partition("-")[2]): score.mean - base
                for label, score in data.scores("projection").items()
                if label.startswith(kind)
            }
            name = f"{NAMES[dataset]}, {kind}"
            series.append(Series(name, list(found), list(found.values())))
    return Panel("Projection", "components", "points against the recipe", series, "x")


def schedule_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """Held-out accuracy by epoch: cosine, and the best constant rate."""
    panels = []
    for dataset, data in ablations.items():
        runs = data.runs("schedule")
        series = []
        for label in (COSINE, "cosine, no warm-up", best_constant(data)):
            curves = zip(*(cell["every_epoch"] for cell in runs[label]), strict=True)
            y = [100 * statistics.mean(scores) for scores in curves][9:]
            series.append(Series(label, list(range(10, len(y) + 10)), y))
        panels.append(Panel(NAMES[dataset], "epoch", "held-out accuracy %", series))
    return save_figure(plot(panels, columns=2))


def conditioning_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """kappa and effective rank of the prototype inputs by epoch, with and without the penalty."""
    panels = []
    for dataset, data in ablations.items():
        runs = data.runs("condition")
        for number, title in (("condition", "κ of [1, X]"), ("effective_rank", "effective rank")):
            series = []
            for penalty in SHOWN_PENALTIES:
                trace = runs[penalty][0]["trace"]
                x = [point["epoch"] for point in trace]
                y = [point["layers"][0][number] for point in trace]
                series.append(Series(f"penalty {penalty}", x, y))
            log = "y" if number == "condition" else ""
            panels.append(Panel(f"{NAMES[dataset]}: {title}", "epoch", title, series, log))
    return save_figure(plot(panels, columns=2))


def gap_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """Every run as a point: a measure against the gap in error."""
    panels = []
    for dataset, data in ablations.items():
        for measure in SHOWN_MEASURES:
            x, y = gap_points(data, measure, "error_gap")
            points = [(a, 100 * b) for a, b in zip(x, y, strict=True) if a < math.inf]
            beyond = len(x) - len(points)
            rank = gap_correlation(data, measure, "error_gap")
            series = Series("", [a for a, _ in points], [b for _, b in points], joined=False)
            title = f"{NAMES[dataset]}: rank correlation {rank:+.2f}"
            axis = MEASURES[measure] + (f" ({beyond} runs at infinity)" if beyond else "")
            panels.append(Panel(title, axis, "gap in error, points", [series], "x"))
    return save_figure(plot(panels, columns=3))


def allocation_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """How prototypes move between classes, a line a class, and where they end, a point a class."""
    panels = []
    for dataset, data in ablations.items():
        trace = data.runs("condition")["0.0"][0]["trace"]
        epochs = [point["epoch"] for point in trace]
        moving = [
            Series(name, epochs, [point["counts"][label] for point in trace])
            for label, name in enumerate(CLASSES[dataset])
        ]
        title = f"{NAMES[dataset]}, seed 0"
        panels.append(Panel(title, "epoch", "prototypes of the class", moving))
    for dataset, data in ablations.items():
        runs = [cell["allocation"] for cell in data.runs("parts")["all trained"]]
        x = [
            statistics.mean(values) for values in zip(*(r["ambiguity"] for r in runs), strict=True)
        ]
        y = [statistics.mean(values) for values in zip(*(r["end"] for r in runs), strict=True)]
        series = Series("", x, y, joined=False, names=CLASSES[dataset])
        labels = ("ambiguity of the class", "prototypes at the end")
        panels.append(Panel(f"{NAMES[dataset]}: 15 a class at the start", *labels, [series]))
    return save_figure(plot(panels, columns=2))
