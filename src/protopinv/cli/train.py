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
    Weight,
    parse_hyperparameters,
    with_hyperparameters,
)
from protopinv.cli.output import answer, leave, say
from protopinv.cli.tasks import Task, chosen_task, estimator_for, sizes_of, validation


@with_hyperparameters
def train(
    data: Data,
    target: Target = None,
    task: Task = "auto",
    weight: Weight = None,
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
    from protopinv.estimators.checks import resolve_device
    from protopinv.files import require_file
    from protopinv.train.settle import check

    require_file(output)
    given = parse_hyperparameters(hyperparameters)
    check(given)
    resolve_device(device)
    rows = load_data(data, split="train", target=target, drop=drop or (), weight=weight)
    estimator = estimator_for(
        chosen_task(task, rows),
        given,
        device=device,
        random_state=seed,
        verbose=int(sys.stderr.isatty() if verbose is None else verbose),
    )
    if estimator.image_shape is None:
        estimator.set_params(image_shape=rows.image_shape)
    estimator.fit(rows.X, rows.y, rows.weight)
    estimator.save(output)
    say(f"saved {output}")
    history, sizes = estimator.history_, sizes_of(estimator)
    answer(
        {
            "model": str(output),
            "data": rows.name,
            "rows": len(rows.X),
            "features": estimator.n_features_in_,
            **sizes,
            "members": estimator.bank_.n_members,
            "epochs": history.n_epochs,
            "ended": history.ending,
            "loss": history.loss[-1] if history.loss else None,
            **validation(sizes["task"], history.kept_score),
            "seconds": history.seconds,
            "trained_numbers": estimator.n_trained_,
            "shipped_numbers": estimator.n_shipped_,
            "guard": history.events,
        },
        as_json=as_json,
    )
    leave(interrupted=history.ending == "interrupted")
