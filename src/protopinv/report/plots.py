"""Pictures of a fitted model, each a matplotlib Figure: how it was trained, how good it is.

In a notebook a figure shows itself; ``figure.savefig("name.png")`` writes it to a file.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from protopinv.errors import ConfigError
from protopinv.estimators.evaluation import reliability
from protopinv.objective import Classes, Numbers
from protopinv.report.figures import PANEL_INCHES, Panel, Series, empty_figure, plot
from protopinv.train.history import History

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Height of a bar, or of a row of a matrix, in inches.
BAR_INCHES = 0.22


def plot_history(model: Any) -> "Figure":
    """Loss, validation score, learning rate and ridges by epoch, of a fitted model or a History.

    Means over banks that were trained side by side; the epoch that was kept is marked.
    """
    history: History = model if isinstance(model, History) else model.history_
    epochs = list(range(1, history.n_epochs + 1))
    losses = [Series("training", epochs, history.loss)]
    losses += _validated("validation", history.validation_loss, history)
    panels = [Panel("loss", "epoch", "loss", losses)]
    if history.validation_score:
        scores = _validated("score", history.validation_score, history)
        panels.append(Panel("validation score", "epoch", "score", scores))
    panels.append(Panel("learning rate", "epoch", "rate", [Series("", epochs, history.lr)]))
    ridges = [
        Series(f"layer {number}", epochs, values)
        for number, values in enumerate(zip(*history.ridge, strict=True), start=1)
    ]
    panels.append(Panel("ridge", "epoch", "ridge", ridges, log="y"))
    return plot(panels, columns=2)


def _validated(name: str, values: list[float], history: History) -> list[Series]:
    """A curve, and the point on it that was kept."""
    found = [Series(name, list(range(1, len(values) + 1)), values)] if values else []
    kept = history.kept_epoch
    if kept is not None and kept < len(values):
        found.append(Series(f"kept: epoch {kept + 1}", [kept + 1], [values[kept]]))
    return found


def plot_confusion(model: Any, X: Any, y: Any) -> "Figure":
    """How many rows of each class (down) were taken for each class (across)."""
    _require(model, Classes, "A confusion matrix is of classes")
    from sklearn.metrics import ConfusionMatrixDisplay

    n = len(model.classes_)
    side = max(PANEL_INCHES[0], 1.5 + 1.5 * BAR_INCHES * n)
    with empty_figure((side + 0.6, side)) as figure:
        axes = figure.add_subplot()
        axes.grid(visible=False)
        ConfusionMatrixDisplay.from_estimator(
            model,
            X,
            y,
            labels=model.classes_,
            ax=axes,
            cmap="Blues",
            xticks_rotation=0 if n <= 10 else 90,
        )
    return figure


def plot_calibration(model: Any, X: Any, y: Any) -> "Figure":
    """How often answers are right by how sure they are: on the diagonal, as often as they say.

    Of classes, the probability of the one that is predicted; of several labels a row, that of every
    label. Groups are as wide as those of the calibration error that ``evaluate`` gives.
    """
    if isinstance(getattr(model, "objective_", None), Numbers):
        raise _not_of(model, "Calibration is of probabilities")
    found = reliability(model, X, y)
    sure = found.sure.tolist()
    lines = [
        Series("as sure as right", [0.0, 1.0], [0.0, 1.0]),
        Series("model", sure, found.right.tolist()),
    ]
    title, across = f"calibration error {found.error:.3f}", "how sure the answers are"
    panels = [
        Panel(title, across, "share of them that is right", lines),
        Panel("answers", across, "answers", [Series("", sure, found.mass.tolist())]),
    ]
    return plot(panels, columns=2)


def plot_conditioning(model: Any) -> "Figure":
    """How well conditioned the solve of every layer is, by ``model.diagnose()``, of one bank.

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


def plot_importance(
    model: Any, X: Any, y: Any, *, n_repeats: int = 5, most: int = 20, random_state: int = 0
) -> "Figure":
    """How much the score falls when a column is shuffled, for the columns where it falls most.

    Means and deviations over ``n_repeats``, by scikit-learn's ``permutation_importance``. Columns
    that say the same share what they are worth.
    """
    from sklearn.inspection import permutation_importance

    found = permutation_importance(model, X, y, n_repeats=n_repeats, random_state=random_state)
    order = np.argsort(found.importances_mean)[-most:]
    names = getattr(X, "columns", getattr(model, "feature_names_in_", None))
    labels = [f"column {n + 1}" if names is None else str(names[n]) for n in order]
    with empty_figure((1.6 * PANEL_INCHES[0], 1 + BAR_INCHES * len(order))) as figure:
        axes = figure.add_subplot()
        axes.grid(visible=False, axis="y")
        axes.barh(
            range(len(order)),
            found.importances_mean[order],
            xerr=found.importances_std[order],
            error_kw={"linewidth": 0.8},
        )
        axes.set_yticks(range(len(order)), labels)
        axes.set_title("permutation importance")
        axes.set_xlabel("fall of the score when the column is shuffled")
    return figure


def _require(model: Any, objective: type, rule: str) -> None:
    if not isinstance(getattr(model, "objective_", None), objective):
        raise _not_of(model, rule)


def _not_of(model: Any, rule: str) -> ConfigError:
    return ConfigError(
        f"{rule}. Got a {type(model).__name__} that predicts none. Choose another figure."
    )
