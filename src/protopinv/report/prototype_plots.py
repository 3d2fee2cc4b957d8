"""Prototypes drawn by matplotlib: pictures, or bars of what each has of every feature."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from protopinv.report.figures import PANEL_INCHES, empty_figure
from protopinv.report.prototypes import Prototypes, prototypes_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_INCHES = 0.9
BAR_INCHES = 0.2
COLUMNS_OF_PICTURES, COLUMNS_OF_BARS = 10, 3


def plot_prototypes(model: Any, *, most: int | None = None, features: int = 12) -> "Figure":
    """Prototypes as pictures, or as bars of the features by which each differs most from the mean.

    Pictures are in the original pixels, and dark where these are large. Bars are as long as the
    network sees the difference, in standard deviations where columns are scaled one by one, and
    labelled with values in the units of the columns. The first ``most`` are shown, sorted by what
    they stand for: by default 50 pictures or 9 tables.
    """
    found = prototypes_of(model)
    answers = found.answers
    order = np.argsort(answers if answers.ndim == 1 else answers[:, 0], kind="stable").tolist()
    if found.image_shape is not None:
        return _pictures(found, order[: 50 if most is None else most])
    return _bars(found, order[: 9 if most is None else most], features)


def _pictures(found: Prototypes, rows: list[int]) -> "Figure":
    columns = min(COLUMNS_OF_PICTURES, len(rows))
    lines = math.ceil(len(rows) / columns)
    with empty_figure((PICTURE_INCHES * columns, 1.25 * PICTURE_INCHES * lines)) as figure:
        for place, row in enumerate(rows, start=1):
            axes = figure.add_subplot(lines, columns, place)
            picture = found.values[row].reshape(found.image_shape or (1, -1))
            if picture.ndim == 3:  # colours have a range of their own
                low, high = picture.min(), picture.max()
                picture = (picture - low) / max(high - low, 1e-300)
                picture = picture if picture.shape[2] in (3, 4) else picture.mean(axis=2)
            axes.imshow(picture, cmap="gray_r")
            axes.set_title(found.texts[row])
            axes.set_axis_off()
    return figure


def _bars(found: Prototypes, rows: list[int], most: int) -> "Figure":
    columns = min(COLUMNS_OF_BARS, len(rows))
    lines, n_bars = math.ceil(len(rows) / columns), min(most, len(found.names))
    size = (1.3 * PANEL_INCHES[0] * columns, (0.8 + BAR_INCHES * n_bars) * lines)
    with empty_figure(size) as figure:
        for place, row in enumerate(rows, start=1):
            axes = figure.add_subplot(lines, columns, place)
            order = np.argsort(np.abs(found.distance[row]))[-n_bars:]
            bars = axes.barh(range(n_bars), found.distance[row][order])
            axes.bar_label(bars, [f"{found.values[row][n]:.3g}" for n in order], padding=2)
            axes.set_yticks(range(n_bars), [found.names[n] for n in order])
            axes.margins(x=0.25)
            axes.grid(visible=False, axis="y")
            axes.set_title(found.texts[row])
    return figure
