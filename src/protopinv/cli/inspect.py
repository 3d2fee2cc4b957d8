"""protopinv inspect: what a model file holds."""

from typing import Any

from protopinv.cli.options import AsJson, ModelPath
from protopinv.cli.output import answer


def inspect(model: ModelPath, as_json: AsJson = False) -> None:
    """Show what a model file holds."""
    from protopinv.model_file import load

    saved = load(model)
    history = saved.history
    values: dict[str, Any] = {
        "model": model,
        "task": saved.task,
        "classes": saved.classes,
        "feature_names": saved.feature_names or "none",
        "layers": list(saved.network.sizes),
        "activation": saved.network.activation,
        "prototypes": len(saved.bank.inputs),
        "projected_features": saved.features.n_components,
        "ridge": saved.bank.ridge.tolist(),
        "trained_numbers": saved.bank.n_trained,
        "shipped_numbers": saved.network.n_shipped,
        "epochs": len(history["loss"]),
        "ended": history["ending"],
        "loss": history["loss"][-1] if history["loss"] else None,
        "seconds": history["seconds"],
    }
    if as_json:
        answer({**values, "config": saved.config, "history": history}, as_json=True)
        return
    answer(values, as_json=False)
    print()
    answer(saved.config, as_json=False)
