"""protopinv inspect: what a model file holds."""

from pathlib import Path
from typing import Annotated

import typer

from protopinv.cli.options import AsJson, ModelPath
from protopinv.cli.output import answer, show


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
    if card:
        _show_card(model)
        return
    from protopinv.cli.tasks import validation
    from protopinv.model_file.summary import summary

    facts = summary(model)
    history, config = facts.pop("history"), facts.pop("config")
    loss, scores, kept = history["loss"], history["validation_score"], history["kept_epoch"]
    score = None if kept is None or kept >= len(scores) else scores[kept]
    values = {
        "model": model,
        **facts,
        "epochs": len(loss),
        "ended": history["ending"],
        "loss": loss[-1] if loss else None,
        **validation(facts["task"], score),
        "seconds": history["seconds"],
        "guard": history["events"],
    }
    if as_json:
        answer({**values, "config": config, "history": history}, as_json=True)
        return
    columns = values.pop("columns")
    if columns is not None:
        del values["feature_names"]
    answer(values, as_json=False)
    for part in (columns, [f"{name} = {value!r}" for name, value in config.items()] * everything):
        if part:
            for line in ("", *part):
                show(line)


def _show_card(model: str) -> None:
    from protopinv import __version__
    from protopinv.cli.rows import model_at
    from protopinv.export.card import card

    text = card(model_at(model).model_, Path(model).stem, __version__)
    for line in text.removesuffix("\n").split("\n"):
        show(line)
