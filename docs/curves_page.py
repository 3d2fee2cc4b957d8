"""The parts of docs/accuracy.md on learning curves, fits on a GPU, and what is shipped."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from results_page import recipe

from benchmarks.images.defaults import defaults_table
from benchmarks.tables.contestants import OURS
from benchmarks.tables.curves import curve_tables, curves_of, largest_step_down
from benchmarks.tables.shipped import shipped_table
from benchmarks.tables.standings import contest_of
from benchmarks.tables.suite import HALVES
from benchmarks.text import markdown, readable
from protopinv.report import Panel, Series, plot, save_figure

Record = Mapping[str, Any]
FIGURE = "curves.svg"
SLOWEST = 5
CURVES = """\
More rows of the same table must not make a model worse, wherever a rule changes: sizes of networks
grow from 3,000 rows on, and batches begin above 4,096. Each size is trained on with {seeds} seeds,
a smaller sample being part of every larger one, and scored on rows that none of them holds.

"""
GPU = """\
The same defaults on a GPU, on large tables of up to {most:,} rows, the slowest first. The first fit
of its kind on a machine also compiles kernels, which are then found on disk; it is told apart.
These fits ran beside others that kept the cores of the machine busy.

"""
MOST_GPU_ROWS = 50_000
SHIPPED = """\
A mean of several banks is one network: their layers lie beside each other in blocks, and what is
stored are the blocks. Times are those of `predict`, arrays in, labels or numbers out.

"""
IMAGES = """\
Images as arrays of (n, 28, 28), without options; trained on all 60,000 rows, scored on the official
test sets:

"""


def shipped_section(record: Record | None) -> list[str]:
    """What a model weighs, and how long it takes to predict."""
    if record is None:
        return []
    lines = ["", "### What is shipped", "", *SHIPPED.splitlines(), *shipped_table(record), ""]
    lines += ["`python -m benchmarks shipped` makes this table.", ""]
    return [*lines, f"<sub>{recipe(record)}</sub>"]


def curves_section(record: Record | None) -> tuple[list[str], dict[str, bytes]]:
    """What more rows give, and the figure by its name."""
    if record is None:
        return [], {}
    falls = {
        (table, who): largest_step_down(curve)
        for table, by_name in curves_of(record).items()
        for who, curve in by_name.items()
        if who in OURS
    }
    (table, who), (fall, after) = max(falls.items(), key=lambda item: item[1][0])
    worst = (
        f"The largest step down of ours is {100 * max(0.0, fall):.2f} points, of `{who}` on "
        f"{table} after {after:,} rows."
    )
    lines = ["", "### More rows", "", *CURVES.format(**record["plan"]).splitlines(), worst, ""]
    lines += [f"![Scores after more and more rows](figures/{FIGURE})", ""]
    lines += ["<details><summary>Every size</summary>", "", *curve_tables(record), "</details>", ""]
    lines += ["`python -m benchmarks curves --wheels FOLDER` makes this figure.", ""]
    return [*lines, f"<sub>{recipe(record)}</sub>"], {FIGURE: curves_figure(record)}


def curves_figure(record: Record) -> bytes:
    """A panel a table."""
    panels = [
        Panel(
            table,
            "rows",
            "accuracy, %" if _asks_for_classes(record, table) else "R2, %",
            [_series(who, curve) for who, curve in by_name.items() if who != "linear"],
            log="x",
            legend=place == 0,
        )
        for place, (table, by_name) in enumerate(curves_of(record).items())
    ]
    return save_figure(plot(panels, columns=3))


def _asks_for_classes(record: Record, table: str) -> bool:
    cells = record["cells"].items()
    return any(c["task"] == "classification" for key, c in cells if key.startswith(f"{table}/"))


def _series(who: str, curve: Mapping[int, Sequence[float]]) -> Series:
    sizes = sorted(curve)
    means = [100 * statistics.mean(curve[size]) for size in sizes]
    return Series(who, sizes, means)


def gpu_section(newest: Mapping[str, Record]) -> list[str]:
    """How long default fits of tables and images take on a GPU."""
    lines: list[str] = []
    parts = [
        part
        for half in HALVES
        if (found := contest_of(newest.values(), half, device="cuda")) is not None
        for part in found["parts"]
    ]
    if parts:
        lines += ["", *GPU.format(most=MOST_GPU_ROWS).splitlines(), *_slowest(parts), ""]
        lines += ["`python -m benchmarks contest --device cuda --contestants quick,balanced`, with"]
        lines += ["`--half` and `--tables`, makes it.", ""]
        lines += [f"<sub>{recipe(part)}</sub>  " for part in parts]
    images = newest.get("defaults-cuda")
    if images is not None:
        lines += ["", *IMAGES.splitlines(), *defaults_table(images), ""]
        lines += ["`python -m benchmarks defaults --device cuda` makes this table.", ""]
        lines += [f"<sub>{recipe(images)}</sub>"]
    return ["", "### On a GPU", *lines] if lines else []


def _slowest(parts: Sequence[Record]) -> list[str]:
    """The first fit of a table is the one that may compile."""
    taken: dict[tuple[str, str], list[float]] = {}
    shapes: dict[str, str] = {}
    for part in parts:
        for key, cell in part["cells"].items():
            table, who, _ = key.split("/")
            if cell["rows"] <= MOST_GPU_ROWS and "fit_seconds" in cell:
                taken.setdefault((who, table), []).extend(cell["fit_seconds"])
                shapes[table] = f"{cell['rows']:,} x {cell['features']}"
    medians = {key: statistics.median(times[1:] or times) for key, times in taken.items()}
    rows = []
    for who in dict.fromkeys(who for who, _ in medians):
        slowest = sorted((-value, table) for (w, table), value in medians.items() if w == who)
        rows += [
            [who, table, shapes[table], readable(-value), readable(taken[who, table][0])]
            for value, table in slowest[:SLOWEST]
        ]
    return markdown(["effort", "table", "rows x features", "fit", "the first"], rows)
