"""protopinv train: a model file from rows."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.cli.options import (
    AsJson,
    Data,
    Device,
    Drop,
    Output,
    Seed,
    Target,
    parse_hyperparameters,
    with_hyperparameters,
)
from protopinv.cli.output import answer, leave, say


@with_hyperparameters
def train(
    data: Data,
    target: Target = None,
    drop: Drop = None,
    output: Output = Path("model.safetensors"),
    device: Device = "auto",
    seed: Seed = 0,
    verbose: Annotated[
        bool | None,
        typer.Option("--verbose/--quiet", help="Show progress; default: in a terminal."),
    ] = None,
    as_json: AsJson = False,
    **hyperparameters: Any,
) -> None:
    """Train a model and save it.

    DATA is a table, all of whose rows are used, or a named set, of which the training split is.
    Several values are given with commas, as in --hidden-sizes 256,128 --ridge 100,3.
    """
    from protopinv.data import load_data
    from protopinv.estimators import ProtoPINVClassifier
    from protopinv.files import require_file

    require_file(output)
    estimator = ProtoPINVClassifier(
        **parse_hyperparameters(hyperparameters),
        device=device,
        random_state=seed,
        verbose=int(sys.stderr.isatty() if verbose is None else verbose),
    )
    estimator.config()
    rows = load_data(data, split="train", target=target, drop=drop or ())
    if estimator.image_shape is None:
        estimator.set_params(image_shape=rows.image_shape)
    estimator.fit(rows.X, rows.y)
    estimator.save(output)
    say(f"saved {output}")
    history = estimator.history_
    answer(
        {
            "model": str(output),
            "data": rows.name,
            "rows": len(rows.X),
            "features": estimator.n_features_in_,
            "classes": len(estimator.classes_),
            "epochs": history.n_epochs,
            "ended": history.ending,
            "loss": history.loss[-1] if history.loss else None,
            "validation_accuracy": history.kept_score,
            "seconds": history.seconds,
            "trained_numbers": estimator.bank_.n_trained,
            "shipped_numbers": estimator.n_shipped_,
            "guard": history.events,
        },
        as_json=as_json,
    )
    leave(interrupted=history.ending == "interrupted")
