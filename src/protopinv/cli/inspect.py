"""protopinv inspect: what a model file holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protopinv.cli.options import AsJson, ModelPath
from protopinv.cli.output import answer, show

if TYPE_CHECKING:
    from protopinv.features import Front


def inspect(
    model: ModelPath,
    card: Annotated[
        bool, typer.Option("--card", help="A model card in Markdown, for a repository of models.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every setting too, as it was given.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a model file holds: what it predicts from which columns, how large and good it is.

    In JSON all settings and the history are always there.
    """
    from protopinv.cli.rows import model_at
    from protopinv.cli.tasks import sizes_of, validation
    from protopinv.estimators.images import flattened

    estimator = model_at(model)
    if card:
        from protopinv import __version__
        from protopinv.estimators.saving import saved_model
        from protopinv.export.card import card as model_card

        text = model_card(saved_model(estimator), Path(model).stem, __version__)
        for line in text.removesuffix("\n").split("\n"):
            show(line)
        return
    history, names = estimator.history_, getattr(estimator, "feature_names_in_", None)
    sizes, bank = sizes_of(estimator), getattr(estimator, "bank_", None)
    if sizes["task"] == "classification":
        sizes["classes"] = estimator.classes_.tolist()
    values: dict[str, Any] = {
        "model": model,
        **sizes,
        "feature_names": None if names is None else names.tolist(),
        "columns": None if estimator.table_ is None else str(estimator.table_).splitlines(),
        "layers": estimator.network_.sizes,
        "activation": estimator.network_.activation,
        "front": _front(estimator.front_),
        "members": bank and bank.n_members,
        "prototypes": bank and bank.n_prototypes,
        "projected_features": bank and estimator.features_.n_components,
        "ridge": bank and bank.member(0).ridge.tolist(),
        "trained_numbers": bank and bank.n_trained,
        "shipped_numbers": estimator.n_shipped_,
        "memory_numbers": estimator.memory_ and estimator.memory_.n_numbers,
        "epochs": history.n_epochs,
        "ended": history.ending,
        "loss": history.loss[-1] if history.loss else None,
        **validation(sizes["task"], history.kept_score),
        "seconds": history.seconds,
        "guard": history.events,
    }
    given = estimator.get_params(deep=False)
    images = flattened(given.pop("stem"), given.pop("copies"))
    config = {**given, **images}
    if as_json:
        answer({**values, "config": config, "history": history.to_dict()}, as_json=True)
        return
    columns = values.pop("columns")
    if columns is not None:
        del values["feature_names"]
    answer(values, as_json=False)
    for part in (columns, [f"{name} = {value!r}" for name, value in config.items()] * everything):
        if part:
            for line in ("", *part):
                show(line)


def _front(front: "Front | None") -> str | None:
    """What stands before the network, in words."""
    from protopinv.features import Clip, Stem

    if front is None:
        return None
    if isinstance(front, Stem):
        filters = "-".join(str(len(stage.filters)) for stage in front.stages)
        return f"stem of {filters} filters"
    verb = "clipped" if isinstance(front, Clip) else "squashed"
    return f"{verb} columns: {int(front.chosen.sum())}"
