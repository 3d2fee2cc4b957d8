"""The figures of docs/results.md, as the bytes of their files."""

import math
import statistics
from collections.abc import Mapping

from benchmarks.paper.ablation_findings import CONSTANT, COSINE
from benchmarks.paper.evidence import (
    MEASURES,
    Ablations,
    allocation_of,
    gap_correlation,
    gap_points,
)
from benchmarks.paper.sweeps import SWEEPS
from benchmarks.tasks import NAMES
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
    """Points against the first setting with their margins, for every knob that has an order."""
    panels = [
        _sweep_panel(ablations, sweep, axis, log)
        for sweep, axis, log in (
            ("prototypes", "prototypes", "x"),
            ("width", "units", "x"),
            ("depth", "hidden layers", ""),
            ("dropout", "rate", ""),
            ("temperature", "T", ""),
            ("penalty", "λ₃", ""),
        )
    ]
    return save_figure(plot(panels, columns=3))


def _sweep_panel(ablations: Mapping[str, Ablations], sweep: str, axis: str, log: str) -> Panel:
    series = []
    for dataset, data in ablations.items():
        first, *_ = data.labels(sweep)
        labels = sorted(data.labels(sweep), key=lambda label: float(label.split()[0]))
        found = [data.difference(sweep, label, first) for label in labels]
        x: list[float | str] = [float(label) if log else label for label in labels]
        margins = [0.0 if math.isinf(each.margin) else each.margin for each in found]
        series.append(Series(NAMES[dataset], x, [each.mean for each in found], margins))
    return Panel(SWEEPS[sweep].title, axis, "points against the first", series, log)


def schedule_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """Held-out accuracy by epoch: cosine, and the best constant rate."""
    panels = []
    for dataset, data in ablations.items():
        series = []
        for label in (COSINE, "cosine, no warm-up", CONSTANT):
            curves = [cell["every_epoch"] for cell in data.runs("schedule", label)]
            means = [100 * statistics.mean(scores) for scores in zip(*curves, strict=True)]
            skipped = min(9, len(means) - 1)
            y = means[skipped:]
            series.append(Series(label, list(range(skipped + 1, len(means) + 1)), y))
        panels.append(Panel(NAMES[dataset], "epoch", "held-out accuracy %", series))
    return save_figure(plot(panels, columns=2))


def conditioning_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """kappa and effective rank of the prototype inputs by epoch, with and without the penalty."""
    panels = []
    for dataset, data in ablations.items():
        for number, title in (("condition", "κ of [1, X]"), ("effective_rank", "effective rank")):
            series = []
            for penalty in SHOWN_PENALTIES:
                trace = data.runs("condition", penalty)[0].get("trace", [])
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
            rank = gap_correlation(data, measure, "error_gap").mean
            series = Series("", [a for a, _ in points], [b for _, b in points], joined=False)
            title = f"{NAMES[dataset]}: rank correlation {rank:+.2f}"
            axis = MEASURES[measure] + (f" ({beyond} runs at infinity)" if beyond else "")
            panels.append(Panel(title, axis, "gap in error, points", [series], "x"))
    return save_figure(plot(panels, columns=3))


def allocation_figure(ablations: Mapping[str, Ablations]) -> bytes:
    """How prototypes move between classes, a line a class, and where they end, a point a class."""
    panels = []
    for dataset, data in ablations.items():
        trace = data.runs("condition", "0.0")[0].get("trace", [])
        epochs = [point["epoch"] for point in trace]
        moving = [
            Series(name, epochs, [point["counts"][label] for point in trace])
            for label, name in enumerate(CLASSES[dataset])
        ]
        title = f"{NAMES[dataset]}, one run"
        panels.append(Panel(title, "epoch", "prototypes of the class", moving))
    for dataset, data in ablations.items():
        runs = allocation_of(data)
        x = [
            statistics.mean(values) for values in zip(*(r["ambiguity"] for r in runs), strict=True)
        ]
        y = [statistics.mean(values) for values in zip(*(r["end"] for r in runs), strict=True)]
        series = Series("", x, y, joined=False, names=CLASSES[dataset])
        labels = ("ambiguity of the class", "prototypes at the end")
        panels.append(Panel(f"{NAMES[dataset]}: 15 a class at the start", *labels, [series]))
    return save_figure(plot(panels, columns=2))
