"""Panels of lines or points; matplotlib is imported when something is drawn."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from protopinv.optional import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL_INCHES = (3.4, 2.7)
FEW_VALUES = 10
MANY_SERIES = 5
# Text as outlines and a fixed salt: the same data give the same file on every machine.
STYLE = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "protopinv",
}


@dataclass(frozen=True)
class Series:
    """Points with a name; ``spread`` is drawn as error bars, ``joined`` points as a line."""

    label: str
    x: Sequence[float | str]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    joined: bool = True
    names: Sequence[str] | None = None


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``log`` names the axes that are logarithmic: "x", "y" or "xy"."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log: str = ""
    legend: bool = True


def plot(panels: Sequence[Panel], columns: int) -> "Figure":
    """All panels in a grid of so many columns."""
    rows = -(-len(panels) // columns)
    size = (columns * PANEL_INCHES[0], rows * PANEL_INCHES[1])
    with empty_figure(size) as figure:
        for index, panel in enumerate(panels):
            _draw(figure.add_subplot(rows, columns, index + 1), panel)
    return figure


@contextmanager
def empty_figure(size: tuple[float, float]) -> Iterator["Figure"]:
    """A figure to draw in, of so many inches; what is drawn in here has our style."""
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=size, layout="constrained")


def save_figure(figure: "Figure", kind: str = "svg") -> bytes:
    """The figure as the bytes of a file, the same every time."""
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    buffer = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _draw(axes: Any, panel: Panel) -> None:
    for series in panel.series:
        if series.joined:
            marker = "o" if len(series.x) <= 20 else None
            axes.errorbar(
                series.x,
                series.y,
                yerr=series.spread,
                label=series.label,
                marker=marker,
                markersize=3,
                linewidth=1.2,
                capsize=2,
            )
        else:
            axes.scatter(series.x, series.y, label=series.label, s=8, alpha=0.6, linewidths=0)
        for name, x, y in zip(series.names or (), series.x, series.y, strict=False):
            axes.annotate(name, (x, y), fontsize=6, xytext=(3, 2), textcoords="offset points")
    for axis in panel.log:
        getattr(axes, f"set_{axis}scale")("log")
        _plain_ticks(axes, axis, panel)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.legend and len(panel.series) > 1:
        beside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
        many = len(panel.series) > MANY_SERIES
        axes.legend(fontsize=7, frameon=False, **(beside if many else {}))


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
