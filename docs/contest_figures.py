"""Critical-difference diagrams: mean ranks on a line, and bars over those that may be the same."""

from collections.abc import Sequence
from typing import Any

from benchmarks.tables.standings import Field, cliques, critical_difference
from protopinv.optional import require
from protopinv.report import save_figure
from protopinv.report.figures import STYLE

WIDTH = 6.8  # inches
LINE = 0.22  # inches between two names
BAR = 0.13  # inches between two bars
BLACK, GREY, OURS_COLOUR = "black", "0.55", "tab:blue"


def difference_figure(field: Field, ours: Sequence[str]) -> bytes | None:
    """The diagram of a field; None with fewer than two who have a rank, or two tables."""
    if len(field.ranked) < 2 or len(field.tables) < 2:
        return None
    matplotlib = require("matplotlib", extra="report", why="Drawing a figure")
    from matplotlib.figure import Figure

    means = {name: float(ranks.mean()) for name, ranks in field.ranks().items()}
    names = sorted(means, key=lambda name: (means[name], name))
    least = critical_difference(len(names), len(field.tables))
    bars = cliques(list(means.values()), least)
    lines = -(-len(names) // 2)
    height = 0.75 + BAR * len(bars) + LINE * lines
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(0, height)
        place = _Ruler(len(names), height - 0.5)
        _ruler(axes, place, least)
        for number, (low, high) in enumerate(bars):
            y = place.y - BAR * (number + 1)
            ends = [place.x(low) - 0.04, place.x(high) + 0.04]
            axes.plot(ends, [y, y], color=BLACK, linewidth=2.5, solid_capstyle="butt")
        below = place.y - BAR * (len(bars) + 1)
        for number, name in enumerate(names):
            colour = OURS_COLOUR if name in ours else BLACK
            _name(axes, place, names, number, means[name], below, colour)
    return save_figure(figure)


class _Ruler:
    """Where a rank lies: the best on the left."""

    def __init__(self, most: int, y: float) -> None:
        self.most, self.y = most, y
        self.left, self.right = 1.9, WIDTH - 1.9

    def x(self, rank: float) -> float:
        return self.left + (rank - 1) / (self.most - 1) * (self.right - self.left)


def _ruler(axes: Any, place: _Ruler, least: float) -> None:
    axes.plot([place.left, place.right], [place.y, place.y], color=BLACK, linewidth=0.8)
    for rank in range(1, place.most + 1):
        x = place.x(rank)
        axes.plot([x, x], [place.y, place.y + 0.06], color=BLACK, linewidth=0.8)
        axes.text(x, place.y + 0.09, str(rank), ha="center", va="bottom")
    # The whole of a difference that is wider than the ruler cannot be shown.
    end = min(1 + least, float(place.most))
    y = place.y + 0.34
    axes.plot([place.x(1), place.x(end)], [y, y], color=GREY, linewidth=2)
    axes.text(place.x(1) - 0.08, y, f"critical difference {least:.2f}", ha="right", va="center")


def _name(
    axes: Any,
    place: _Ruler,
    names: Sequence[str],
    number: int,
    rank: float,
    below: float,
    colour: str,
) -> None:
    """The better half on the left, from the top; the others on the right, the last at the top."""
    half = -(-len(names) // 2)
    on_left = number < half
    y = below - LINE * (number if on_left else len(names) - 1 - number) - 0.05
    x = place.x(rank)
    end = place.left - 0.1 if on_left else place.right + 0.1
    axes.plot([x, x, end], [place.y, y, y], color=colour, linewidth=0.8)
    text = f"{names[number]}  {rank:.2f}" if on_left else f"{rank:.2f}  {names[number]}"
    side = "right" if on_left else "left"
    axes.text(end + (-0.05 if on_left else 0.05), y, text, ha=side, va="center", color=colour)
