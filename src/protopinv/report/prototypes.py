"""The prototypes of a model as its user knows rows: pictures, or values in the columns' units."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.errors import ConfigError
from protopinv.features import Stem
from protopinv.report.figures import PANEL_INCHES, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE_INCHES = 0.9
BAR_INCHES = 0.2
COLUMNS_OF_PICTURES, COLUMNS_OF_BARS = 10, 3


@dataclass(frozen=True)
class Prototypes:
    """Prototypes of one bank, a row each, in the units of the rows that were trained on.

    ``distance`` is how far each feature is from its mean, as the network scales it; ``answers`` are
    what prototypes stand for: a class, labels, or numbers.
    """

    values: NDArray[np.float64]
    distance: NDArray[np.float64]
    names: tuple[str, ...]
    answers: NDArray[Any]
    image_shape: tuple[int, ...] | None

    @property
    def texts(self) -> list[str]:
        """The answers, to be read."""
        return list(map(_text, self.answers.tolist()))


def prototypes_of(model: Any, member: int = 0) -> Prototypes:
    """Where the prototypes of a fitted model are, in the space of its rows.

    Scaling and projection are taken back exactly: a row that is put there comes out of them as the
    prototype. Raises ConfigError for a model with a stem, which has no way back.
    """
    bank = model._bank().member(member).to("cpu", torch.float64)
    if isinstance(model.front_, Stem):
        raise ConfigError(
            "Prototypes can be shown where the features have a way back to rows. This model has a "
            "convolutional stem, which pools and rectifies, and has none. Train with stem=None "
            "(--stem none) to see prototypes."
        )
    inputs = bank.inputs
    if bank.scale is not None:  # rows enter the network as scale * x; what it ignores is not moved
        used = bank.scale.abs() > 1e-6 * bank.scale.abs().max()
        inputs = torch.where(used, inputs / torch.where(used, bank.scale, 1.0), 0.0)
    features = model.features_
    rows = features.unproject(inputs.to(features.mean.dtype)).double()
    distance = (rows - features.mean) * features.scale
    values = rows if model.front_ is None else model.front_.rows(rows)
    shape = model.config_.image_shape
    return Prototypes(
        values.numpy(),
        distance.numpy(),
        _feature_names(model, values.shape[1]),
        _answers(model, bank.outputs),
        None if shape is None else tuple(shape),
    )


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


def _feature_names(model: Any, n: int) -> tuple[str, ...]:
    if model.table_ is not None:
        return tuple(model.table_.feature_names)
    names = getattr(model, "feature_names_in_", None)
    return tuple(f"column {i + 1}" for i in range(n)) if names is None else tuple(map(str, names))


def _answers(model: Any, outputs: torch.Tensor) -> NDArray[Any]:
    """Outputs of prototypes as predictions are given: a class, labels or numbers in their units."""
    n = outputs.shape[1]
    as_is = torch.cat([torch.zeros(1, n), torch.eye(n)]).double()
    scaling = model.objective_.fold(as_is)
    found: NDArray[Any] = model.objective_.decode((scaling[0] + outputs @ scaling[1:]).numpy())
    return found


def _text(answer: Any) -> str:
    parts = answer if isinstance(answer, list) else [answer]
    return ", ".join(f"{part:.3g}" if isinstance(part, float) else str(part) for part in parts)
