"""protopinv inspect: what a model file holds."""

from typing import TYPE_CHECKING, Any

from protopinv.cli.options import AsJson, ModelPath
from protopinv.cli.output import answer

if TYPE_CHECKING:
    from protopinv.features import Front


def inspect(model: ModelPath, as_json: AsJson = False) -> None:
    """Show what a model file holds."""
    from protopinv.cli.rows import model_at

    estimator = model_at(model)
    history, names = estimator.history_, getattr(estimator, "feature_names_in_", None)
    values: dict[str, Any] = {
        "model": model,
        "task": "classification",
        "classes": estimator.classes_.tolist(),
        "feature_names": None if names is None else names.tolist(),
        "layers": estimator.network_.sizes,
        "activation": estimator.network_.activation,
        "front": _front(estimator.front_),
        "prototypes": len(estimator.bank_.inputs),
        "projected_features": estimator.features_.n_components,
        "ridge": estimator.bank_.ridge.tolist(),
        "trained_numbers": estimator.bank_.n_trained,
        "shipped_numbers": estimator.n_shipped_,
        "epochs": history.n_epochs,
        "ended": history.ending,
        "loss": history.loss[-1] if history.loss else None,
        "validation_accuracy": history.kept_score,
        "seconds": history.seconds,
        "guard": history.events,
    }
    config = estimator.get_params()
    if as_json:
        answer({**values, "config": config, "history": history.to_dict()}, as_json=True)
        return
    answer(values, as_json=False)
    print()
    answer(config, as_json=False)


def _front(front: "Front | None") -> str | None:
    """What stands before the network, in words."""
    from protopinv.features import Stem

    if front is None:
        return None
    if isinstance(front, Stem):
        filters = "-".join(str(len(stage.filters)) for stage in front.stages)
        return f"stem of {filters} filters"
    return f"squashed columns: {int(front.chosen.sum())}"
