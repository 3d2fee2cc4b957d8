"""Figures: drawn, and the same bytes every time."""

import subprocess
import sys

from protopinv.report import Panel, Series, plot, save_figure


def panels() -> list[Panel]:
    lines = [Series("a", [1, 10, 100], [1.0, 2.0, 3.0], spread=[0.1, 0.1, 0.1])]
    points = [Series("", [0.1, 5.0], [1.0, 2.0], joined=False, names=["left", "right"])]
    many = [Series(str(i), ["x", "y"], [i, i + 1]) for i in range(8)]
    return [
        Panel("lines", "x", "y", [*lines, *lines], log="xy"),
        Panel("points", "x", "y", points),
        Panel("many", "x", "y", many),
    ]


def test_the_same_panels_give_the_same_file() -> None:
    first, second = (save_figure(plot(panels(), columns=2)) for _ in range(2))
    assert first == second
    assert first.startswith(b"<?xml")
    assert save_figure(plot(panels(), columns=2), "png").startswith(b"\x89PNG")


def test_a_figure_has_an_axis_for_every_panel() -> None:
    figure = plot(panels(), columns=2)
    assert [axes.get_title() for axes in figure.axes] == ["lines", "points", "many"]
    assert [text.get_text() for text in figure.axes[1].texts] == ["left", "right"]
    ticks = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert ticks == ["1", "10", "100"]


def test_without_matplotlib_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from protopinv.report import plot\n"
        "plot([], columns=1)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "pip install 'protopinv[report]'" in result.stderr
