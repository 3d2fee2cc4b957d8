"""Panels of lines or points as matplotlib Figures, and Figures as files or as parts of a page.

Matplotlib is imported when something is drawn.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

from protopinv.optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL_INCHES = (3.4, 2.7)
FEW_VALUES = 10
MANY_SERIES = 5
# Text as outlines and a fixed salt: the same data give the same file on every machine. A dollar
# sign in the name of a column is a dollar sign.
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "protopinv",
    "text.parse_math": False,
}
# Colours of matplotlib's default style, and the variables of a page's style sheet that take their
# places. Black text has no colour in the file and takes that of the style sheet.
PAGE_COLOURS = {
    "#1f77b4": "var(--s0)",
    "#ff7f0e": "var(--s1)",
    "#2ca02c": "var(--s2)",
    "#d62728": "var(--s3)",
    "#9467bd": "var(--s4)",
    "#8c564b": "var(--s5)",
    "#7f7f7f": "var(--quiet)",
    "#000000": "var(--quiet)",
    "#b0b0b0": "var(--quiet)",
}


@dataclass(frozen=True)
class Series:
    """Points with a name; ``spread`` is drawn as error bars, ``joined`` points as a line.

    A ``faint`` line stands behind the others, in the colour of the series of that number.
    """

    label: str
    x: Sequence[float | str]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    joined: bool = True
    names: Sequence[str] | None = None
    faint: int | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``log`` names the axes that are logarithmic: "x", "y" or "xy"."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log: str = ""
    legend: bool = True


def plot(
    panels: Sequence[Panel], columns: int, inches: tuple[float, float] = PANEL_INCHES
) -> "Figure":
    """All panels in a grid of so many columns, each so large."""
    with empty_figure(len(panels), columns, inches) as (figure, axes):
        for place, panel in zip(axes, panels, strict=True):
            _draw(place, panel)
    return figure


@contextmanager
def empty_figure(
    n: int = 1, columns: int = 1, inches: tuple[float, float] = PANEL_INCHES
) -> Iterator[tuple["Figure", list[Any]]]:
    """A figure and n axes in a grid, each so large; what is drawn in here has our style."""
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    from matplotlib.figure import Figure

    rows = -(-n // columns)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(columns * inches[0], rows * inches[1]), layout="constrained")
        yield figure, [figure.add_subplot(rows, columns, place) for place in range(1, n + 1)]


def save_figure(figure: "Figure", kind: str = "svg") -> bytes:
    """The figure as the bytes of a file, the same every time."""
    return _saved(figure, kind, STYLE, {"Date": None} if kind == "svg" else None)


def page_figure(figure: "Figure", title: str) -> str:
    """The figure as SVG inside a page: text stays text, and the page's style sheet colours it.

    Ids of shapes derive from the ``title``, which is read to those who cannot see the figure.
    """
    style = {**STYLE, "svg.fonttype": "none", "svg.hashsalt": title}
    silent = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a browser has letters that our font lacks
        text = _saved(figure, "svg", style, silent, transparent=True).decode()
    head, _, drawing = text[text.index("<svg") :].partition(">")
    box = re.findall(r'viewBox="[^"]*"', head)[0]
    drawing = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r'<g id="[^"]*">', "<g>", drawing).replace("xlink:href", "href")
    for colour, variable in PAGE_COLOURS.items():
        drawing = drawing.replace(colour, variable)
    name = escape(title)
    axes = "; ".join(f"{each.get_ylabel()} by {each.get_xlabel()}" for each in figure.axes)
    text = f"<title>{name}</title><desc>{escape(axes)}</desc>"
    return f'<svg class="chart" {box} role="img" aria-label="{name}">{text}{drawing}'


def _saved(
    figure: "Figure", kind: str, style: dict[str, Any], metadata: Any, **options: Any
) -> bytes:
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    buffer = BytesIO()
    with matplotlib.rc_context(style):
        figure.savefig(buffer, format=kind, metadata=metadata, **options)
    return buffer.getvalue()


def _draw(axes: Any, panel: Panel) -> None:
    for series in panel.series:
        _draw_series(axes, series)
    for axis in panel.log:
        getattr(axes, f"set_{axis}scale")("log")
        _plain_ticks(axes, axis, panel)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.legend and len(panel.series) > 1:
        beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
        many = sum(not series.label.startswith("_") for series in panel.series) > MANY_SERIES
        axes.legend(fontsize=7, frameon=False, **(beside if many else {}))


def _draw_series(axes: Any, series: Series) -> None:
    points, label = (series.x, series.y), series.label
    if series.faint is not None:
        behind = {"linewidth": 0.6, "alpha": 0.4, "zorder": 1.5}
        axes.plot(*points, f"C{series.faint}", label=label, **behind)
    elif series.joined:
        line = {"marker": "o" if len(series.x) <= 20 else None, "markersize": 3, "linewidth": 1.2}
        axes.errorbar(*points, yerr=series.spread, label=label, capsize=2, **line)
    else:
        axes.scatter(*points, label=label, s=8, alpha=0.6, linewidths=0)
    for name, *point in zip(series.names or (), *points, strict=False):
        axes.annotate(name, point, fontsize=6, xytext=(3, 2), textcoords="offset points")


def _plain_ticks(axes: Any, axis: str, panel: Panel) -> None:
    """Numbers as they are instead of powers of ten; on x the values themselves if they are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    place = getattr(axes, f"{axis}axis")
    values = sorted({x for series in panel.series for x in series.x if not isinstance(x, str)})
    if axis == "x" and len(values) <= FEW_VALUES:
        axes.set_xticks(values)
    elif axis == "y":
        place.set_major_locator(LogLocator(subs=(1, 2, 5)))
    place.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    place.set_minor_formatter(NullFormatter())
