"""Figures of a fitted model, each a matplotlib Figure: how it was trained, how good it is.

In a notebook a figure shows itself; ``figure.savefig("name.png")`` writes it to a file. A page
about a model shows the panels of the same functions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ConfigError
from protopinv.estimators.rows import rows_to_predict
from protopinv.evaluation import (
    CalibrationBin,
    calibration_error,
    evaluate,
    plain_score,
    predictions,
)
from protopinv.objective import Classes, Numbers
from protopinv.report.figures import PANEL_INCHES, Panel, Series, empty_figure, plot
from protopinv.report.prototypes import Prototypes, column_names, prototypes_of
from protopinv.train.history import History

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

# Height of a bar, or of a row of a matrix, and side of a picture, in inches.
BAR_INCHES, PICTURE_INCHES = 0.22, 0.9
COLUMNS_OF_PICTURES, COLUMNS_OF_BARS = 10, 3
# Rows and columns of a grid that counts predictions.
GRID = 30


def plot_history(model: Any) -> "Figure":
    """Loss, validation score, learning rate and ridges by epoch, of a fitted model or a History.

    Means over the members of an ensemble, with the loss of each member and each fold behind; the
    epoch that was selected is marked.
    """
    return plot(history_panels(model if isinstance(model, History) else model.history_), columns=2)


def history_panels(history: History) -> list[Panel]:
    """Loss, score if there is validation, learning rate, ridge."""

    def series(label: str, y: Sequence[float], faint: int | None = None) -> Series:
        return Series(label, list(range(1, len(y) + 1)), y, faint=faint)

    def validated(label: str, y: list[float]) -> list[Series]:
        selected = history.kept_epoch
        if selected is None or selected >= len(y):
            return [series(label, y)] if y else []
        point = Series(f"selected: epoch {selected + 1}", [selected + 1], [y[selected]])
        return [series(label, y), point]

    losses = [series("training", history.loss), *validated("validation", history.validation_loss)]
    for faint, rows in enumerate((history.member_loss, history.fold_loss)):
        label = ("each member", "each fold, rows left out")[faint]
        for number, column in enumerate(zip(*rows, strict=True)):
            losses.append(series("_" if number else label, column, faint))
    panels = [Panel("loss", "epoch", "loss", losses)]
    if history.validation_score:
        scores = validated("score", history.validation_score)
        panels.append(Panel("validation score", "epoch", "score", scores))
    panels.append(Panel("learning rate", "epoch", "rate", [series("", history.lr)]))
    ridges = [
        series(f"layer {number}", values)
        for number, values in enumerate(zip(*history.ridge, strict=True), start=1)
    ]
    return [*panels, Panel("ridge", "epoch", "ridge", ridges, log="y")]


def plot_confusion(model: Any, X: Any, y: Any) -> "Figure":
    """Confusion matrix: how many rows of each class (down) are predicted as each class (across)."""
    if not isinstance(getattr(model, "objective_", None), Classes):
        raise _not_of(model, "A confusion matrix is of classes")
    from sklearn.metrics import ConfusionMatrixDisplay

    n = len(model.classes_)
    counts = np.array(evaluate(model, X, y).confusion)
    side = max(PANEL_INCHES[0], 1.5 + 1.5 * BAR_INCHES * n)
    with empty_figure(inches=(side + 0.6, side)) as (figure, (axes,)):
        axes.grid(visible=False)
        display = ConfusionMatrixDisplay(counts, display_labels=model.classes_)
        display.plot(ax=axes, cmap="Blues", xticks_rotation=0 if n <= 10 else 90)
    return figure


def plot_calibration(model: Any, X: Any, y: Any) -> "Figure":
    """Calibration curve: how often predictions are right by their probability.

    Of classes, the probability of the one that is predicted; of several labels a row, that of every
    label. Bins are those of the calibration error that ``evaluate`` gives.
    """
    if isinstance(getattr(model, "objective_", None), Numbers):
        raise _not_of(model, "Calibration is of probabilities")
    return plot(calibration_panels(evaluate(model, X, y).calibration), columns=2)


def calibration_panels(curve: Sequence[CalibrationBin]) -> list[Panel]:
    """The curve with the diagonal of a perfect calibration, and how many predictions a bin has."""
    probability, accuracy, counts = zip(
        *((each.probability, each.accuracy, each.n_rows) for each in curve), strict=True
    )
    lines = [
        Series("perfect calibration", [0.0, 1.0], [0.0, 1.0], faint=7),
        Series("model", probability, accuracy),
    ]
    title, across = f"calibration error {calibration_error(curve):.3f}", "predicted probability"
    return [
        Panel(title, across, "share that is right", lines),
        Panel("predictions", across, "predictions", [Series("", probability, counts)]),
    ]


def plot_predictions(model: Any, X: Any, y: Any) -> "Figure":
    """Predicted against true numbers of each target: a grid, darker where there are more rows."""
    if not isinstance(getattr(model, "objective_", None), Numbers):
        raise _not_of(model, "Predicted against true is of numbers")
    rows = predictions(model, X, y)
    n = rows.truth.shape[1]
    names = [""] if n == 1 else [f"target {number}" for number in range(n)]
    with empty_figure(n, min(n, 3)) as (figure, axes):
        for target in zip(axes, rows.truth.T, rows.predicted.T, names, strict=True):
            draw_predictions(*target)
    return figure


def draw_predictions(axes: Any, truth: Floats, predicted: Floats, name: str) -> None:
    """Count rows by truth and prediction; no single row can be read off."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    low, high = np.quantile(np.concatenate([truth, predicted]), (0.002, 0.998))
    high = high if high > low else low + 1
    edges = np.linspace(low, high, GRID + 1)
    counts, _, _ = np.histogram2d(
        truth.clip(low, high), predicted.clip(low, high), bins=[edges, edges]
    )
    cells = np.argwhere(counts)
    corners = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])
    density = np.sqrt(counts[tuple(cells.T)] / max(counts.max(), 1))
    colours = np.tile(to_rgba_array("C0"), (len(cells), 1))
    colours[:, 3] = (0.12 + 0.88 * density).round(2)
    axes.add_collection(PolyCollection(edges[cells[:, None] + corners], facecolors=colours))
    axes.plot([low, high], [low, high], "C1", linewidth=0.8, linestyle="--")
    axes.set_title(f"predicted against true {name}".rstrip())
    axes.set_xlabel("true")
    axes.set_ylabel("predicted")


def plot_conditioning(model: Any) -> "Figure":
    """Conditioning of the solve of every layer, by ``model.diagnose()``, of the first member.

    A condition that is infinite, of prototypes that lack rank, is left out.
    """
    layers = model.diagnose().layers
    places = [str(number) for number in range(1, len(layers) + 1)]

    def series(label: str, name: str) -> Series:
        values = [float(getattr(layer, name)) for layer in layers]
        return Series(label, places, [v if np.isfinite(v) else np.nan for v in values])

    spectra = [
        Series(f"layer {place}", list(range(1, len(values) + 1)), values)
        for place, values in zip(places, (layer.singular_values for layer in layers), strict=True)
    ]
    conditions = [series("prototypes", "condition"), series("ridge system", "system_condition")]
    ranks = [
        series("effective rank", "effective_rank"),
        series("degrees of freedom", "degrees_of_freedom"),
    ]
    panels = [
        Panel("condition number", "layer", "largest / smallest", conditions, log="y"),
        Panel("size of each solve", "layer", "", ranks),
        Panel("singular values", "number", "singular value", spectra, log="y"),
        Panel("ridge", "layer", "ridge", [series("", "ridge")], log="y"),
    ]
    return plot(panels, columns=2)


def importance(
    model: Any,
    X: Any,
    truth: NDArray[Any],
    *,
    n_repeats: int = 5,
    random_state: int = 0,
    most_rows: int | None = None,
) -> Any:
    """scikit-learn's permutation importance: how the score falls, column by column.

    Codes of the columns are shuffled: text and dates are read once, not in each repeat.
    """
    from sklearn.inspection import permutation_importance

    fitted = model.model_
    codes = rows_to_predict(model, X, fitted)
    codes = np.asarray(codes.toarray() if hasattr(codes, "toarray") else codes, dtype=np.float64)
    rows = np.random.default_rng(random_state).permutation(len(codes))[:most_rows]

    def score(_: Any, shuffled: Floats, true: NDArray[Any]) -> float:
        predicted = fitted.objective.decode(fitted.outputs(shuffled).numpy())
        return plain_score(fitted.objective, true, predicted.reshape(true.shape))

    options = {"scoring": score, "n_repeats": n_repeats, "random_state": random_state}
    return permutation_importance(model, codes[rows], truth[rows], **options)


def plot_importance(
    model: Any, X: Any, y: Any, *, n_repeats: int = 5, most: int = 20, random_state: int = 0
) -> "Figure":
    """Permutation importance: how much the score falls when a column is shuffled.

    Means and deviations over ``n_repeats``, by scikit-learn's ``permutation_importance``, of the
    columns where it falls most. Columns that hold the same information share their importance.
    """
    truth = predictions(model, X, y).truth
    falls = importance(model, X, truth, n_repeats=n_repeats, random_state=random_state)
    names, order = column_names(model.model_), np.argsort(falls.importances_mean)[-most:]
    size = (1.6 * PANEL_INCHES[0], 1 + BAR_INCHES * len(order))
    with empty_figure(inches=size) as (figure, (axes,)):
        axes.grid(visible=False, axis="y")
        axes.barh(
            range(len(order)),
            falls.importances_mean[order],
            xerr=falls.importances_std[order],
            error_kw={"linewidth": 0.8},
        )
        axes.set_yticks(range(len(order)), [names[n] for n in order])
        axes.set_title("permutation importance")
        axes.set_xlabel("fall of the score when the column is shuffled")
    return figure


def plot_prototypes(model: Any, *, most: int | None = None, features: int = 12) -> "Figure":
    """Prototypes as pictures, or as bars of the features by which each differs most from the mean.

    Pictures are in the original pixels, and dark where these are large. Bars are as long as the
    network sees the difference, in standard deviations where columns are scaled one by one, and
    labelled with values in the units of the columns. The first ``most`` are shown, sorted by what
    they stand for: by default 50 pictures or 9 tables.
    """
    prototypes = prototypes_of(model)
    answers, is_image = prototypes.answers, prototypes.image_shape is not None
    order = np.argsort(answers if answers.ndim == 1 else answers[:, 0], kind="stable").tolist()
    order = order[: (50 if is_image else 9) if most is None else most]
    columns = min(COLUMNS_OF_PICTURES if is_image else COLUMNS_OF_BARS, len(order))
    n_bars = min(features, len(prototypes.names))
    bars = (1.3 * PANEL_INCHES[0], 0.8 + 0.2 * n_bars)
    size = (PICTURE_INCHES, 1.25 * PICTURE_INCHES) if is_image else bars
    with empty_figure(len(order), columns, size) as (figure, axes):
        for place, row in zip(axes, order, strict=True):
            place.set_title(prototypes.texts[row])
            if is_image:
                _draw_picture(place, prototypes, row)
            else:
                _draw_bars(place, prototypes, row, n_bars)
    return figure


def _draw_picture(axes: Any, prototypes: Prototypes, row: int) -> None:
    picture = prototypes.values[row].reshape(prototypes.image_shape or (1, -1))
    if picture.ndim == 3:  # colours have a range of their own
        low, high = picture.min(), picture.max()
        picture = (picture - low) / max(high - low, 1e-300)
        picture = picture if picture.shape[2] in (3, 4) else picture.mean(axis=2)
    axes.imshow(picture, cmap="gray_r")
    axes.set_axis_off()


def _draw_bars(axes: Any, prototypes: Prototypes, row: int, n_bars: int) -> None:
    order = np.argsort(np.abs(prototypes.distance[row]))[-n_bars:]
    bars = axes.barh(range(n_bars), prototypes.distance[row][order])
    axes.bar_label(bars, [f"{prototypes.values[row][n]:.3g}" for n in order], padding=2)
    axes.set_yticks(range(n_bars), [prototypes.names[n] for n in order])
    axes.margins(x=0.25)
    axes.grid(visible=False, axis="y")


def _not_of(model: Any, rule: str) -> ConfigError:
    return ConfigError(
        f"{rule}. Got a {type(model).__name__} that predicts none. Choose another figure."
    )
