"""Charts of a page as SVG: lines, bars and grids that take their colours from the page.

They are drawn here and not by matplotlib, whose pictures know one background only: a page is read
in light and dark, and in print.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

WIDTH, HEIGHT = 440, 250
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 40
TICKS = 5
# Longer lines are thinned out: a page shows so many points across.
MOST_POINTS = 300


@dataclass(frozen=True)
class Line:
    """Numbers with a name; ``role`` is a class of the style sheet: its colour and weight."""

    name: str
    y: Sequence[float]
    role: str = "s0"
    x: Sequence[float] | None = None


@dataclass(frozen=True)
class Axes:
    """What the numbers stand for; ``log`` is for y."""

    x: str
    y: str
    log: bool = False
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None


@dataclass
class _Plane:
    """Where numbers lie on the picture."""

    low: tuple[float, float]
    high: tuple[float, float]
    log: bool = False
    parts: list[Markup] = field(default_factory=list)

    def x(self, value: float) -> float:
        return LEFT + self._share(value, 0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        value = math.log10(value) if self.log else value
        return HEIGHT - BOTTOM - self._share(value, 1) * (HEIGHT - TOP - BOTTOM)

    def _share(self, value: float, axis: int) -> float:
        width = self.high[axis] - self.low[axis]
        return (value - self.low[axis]) / width if width > 0 else 0.5

    def add(self, text: str, *values: object) -> None:
        """A piece of SVG; what is put into it is escaped."""
        self.parts.append(Markup(text).format(*values))

    def picture(self, title: str) -> Markup:
        """All of it, with a title for those who cannot see it."""
        frame = Markup(
            '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>'
        ).format(WIDTH, HEIGHT, title, title)
        return frame + Markup("").join(self.parts) + Markup("</svg>")


def lines(title: str, axes: Axes, drawn: Sequence[Line]) -> Markup:
    """Lines over epochs or over numbers of their own, with their names above."""
    points = [(line, *_points(line, log=axes.log)) for line in drawn]
    points = [each for each in points if len(each[1])]
    if not points:
        return Markup('<p class="quiet">There is nothing to draw.</p>')
    plane = _plane(axes, points)
    _frame(plane, axes)
    for line, x, y in points:
        path = " ".join(f"{plane.x(a):.1f},{plane.y(b):.1f}" for a, b in zip(x, y, strict=True))
        plane.add('<polyline class="line {}" points="{}"/>', line.role, path)
    named = {line.name: line.role for line, *_ in points if line.name}
    return legend(named) + plane.picture(title)


def legend(named: dict[str, str]) -> Markup:
    """Names beside their colours; nothing for a single one."""
    if len(named) < 2:
        return Markup("")
    items = Markup("").join(
        Markup('<span class="{}"><i></i>{}</span>').format(role, name)
        for name, role in named.items()
    )
    return Markup('<p class="legend">{}</p>').format(items)


def _points(line: Line, *, log: bool) -> tuple[list[float], list[float]]:
    """Those that can be drawn, and not more than can be seen."""
    x = list(range(1, len(line.y) + 1)) if line.x is None else list(line.x)
    kept = [
        (float(a), float(b))
        for a, b in zip(x, line.y, strict=True)
        if math.isfinite(b) and (b > 0 or not log)
    ]
    every = max(1, math.ceil(len(kept) / MOST_POINTS))
    thinned = [*kept[:-1:every], *kept[-1:]]
    return [a for a, _ in thinned], [b for _, b in thinned]


def _plane(axes: Axes, points: Iterable[tuple[Line, list[float], list[float]]]) -> _Plane:
    xs, ys = [], []
    for _, x, y in points:
        xs += x
        ys += y
    x_range = axes.x_range or (min(xs), max(xs))
    y_range = axes.y_range or (min(ys), max(ys))
    if axes.log:
        y_range = (math.log10(y_range[0]), math.log10(y_range[1]))
    if y_range[0] == y_range[1]:
        room = 0.5 * (abs(y_range[0]) or 1.0)
        y_range = (y_range[0] - room, y_range[1] + room)
    return _Plane((x_range[0], y_range[0]), (x_range[1], y_range[1]), axes.log)


def _frame(plane: _Plane, axes: Axes) -> None:
    """Ticks with their numbers, and what the axes are."""
    for value in ticks(plane.low[1], plane.high[1]):
        at = plane.y(10**value if plane.log else value)
        text = number(10**value if plane.log else value)
        plane.add(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>',
            LEFT,
            WIDTH - RIGHT,
            round(at, 1),
            round(at, 1),
        )
        plane.add(
            '<text class="tick end" x="{}" y="{}">{}</text>', LEFT - 5, round(at + 3, 1), text
        )
    for value in ticks(plane.low[0], plane.high[0]):
        plane.add(
            '<text class="tick mid" x="{}" y="{}">{}</text>',
            round(plane.x(value), 1),
            HEIGHT - BOTTOM + 14,
            number(value),
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    plane.add('<text class="axis mid" x="{}" y="{}">{}</text>', middle, HEIGHT - 6, axes.x)
    plane.add(
        '<text class="axis mid" transform="translate(11 {}) rotate(-90)">{}</text>',
        (TOP + HEIGHT - BOTTOM) / 2,
        axes.y,
    )


def ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low]
    rough = span / TICKS
    power = 10 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def number(value: float) -> str:
    """As a person would write it."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def bars(title: str, shares: Sequence[tuple[str, float, str]]) -> Markup:
    """Names, a share from 0 to 1 and a text each, as rows of a table that reads without colours."""
    rows = Markup("").join(
        Markup(
            '<tr><th>{}</th><td class="bar"><span style="width:{}%"></span></td><td>{}</td></tr>'
        ).format(name, round(100 * min(1.0, max(0.0, share)), 1), text)
        for name, share, text in shares
    )
    return Markup('<table class="bars" aria-label="{}">{}</table>').format(title, rows)


def reliability(title: str, bins: Sequence[tuple[float, float, float]]) -> Markup:
    """How sure answers were against how often they were right; a dot for each group of rows.

    Every bin has the mean probability, the share that is right, and its share of all rows.
    """
    axes = Axes("probability of the answer", "share that is right", False, (0, 1), (0, 1))
    plane = _Plane((0, 0), (1, 1))
    _frame(plane, axes)
    plane.add(
        '<line class="line ideal" x1="{}" y1="{}" x2="{}" y2="{}"/>',
        plane.x(0),
        plane.y(0),
        plane.x(1),
        plane.y(1),
    )
    for sure, right, share in bins:
        size = 3 + 11 * math.sqrt(share)
        plane.add(
            '<circle class="dot" cx="{}" cy="{}" r="{}"/>',
            round(plane.x(sure), 1),
            round(plane.y(right), 1),
            round(size, 1),
        )
    return plane.picture(title)


def density(title: str, axes: Axes, counts: NDArray[np.float64]) -> Markup:
    """A grid of counts over x and y, darker where there are more, with the diagonal."""
    low, high = axes.x_range or (0.0, 1.0)
    plane = _Plane((low, low), (high, high))
    _frame(plane, axes)
    n = len(counts)
    width, height = (WIDTH - LEFT - RIGHT) / n, (HEIGHT - TOP - BOTTOM) / n
    most = counts.max() or 1.0
    for i, j in np.argwhere(counts > 0):
        plane.add(
            '<rect class="cell" x="{}" y="{}" width="{}" height="{}" opacity="{}"/>',
            round(LEFT + i * width, 1),
            round(HEIGHT - BOTTOM - (j + 1) * height, 1),
            round(width, 1),
            round(height, 1),
            round(float(0.12 + 0.88 * math.sqrt(counts[i, j] / most)), 2),
        )
    plane.add(
        '<line class="line ideal" x1="{}" y1="{}" x2="{}" y2="{}"/>',
        plane.x(low),
        plane.y(low),
        plane.x(high),
        plane.y(high),
    )
    return plane.picture(title)
