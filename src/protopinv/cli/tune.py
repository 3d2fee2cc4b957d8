"""protopinv tune: search hyperparameters, save the winner."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from protopinv.cli.config import ConfigFile, SaveConfig, write_config
from protopinv.cli.options import (
    AsJson,
    Data,
    Device,
    Drop,
    Encoding,
    Output,
    Seed,
    Separator,
    Target,
)
from protopinv.cli.output import answer, leave, place_for, say
from protopinv.cli.tasks import Task, chosen_task, estimator_for, validation


def tune(
    context: typer.Context,
    data: Data,
    target: Target = None,
    task: Task = "auto",
    drop: Drop = None,
    separator: Separator = None,
    encoding: Encoding = None,
    output: Output = Path("model.safetensors"),
    trials: Annotated[int, typer.Option(help="Configurations to try, in all.")] = 50,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which to stop.")] = None,
    study: Annotated[
        Path | None, typer.Option(help="A file that keeps the search, to go on with it later.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    config: ConfigFile = None,  # noqa: ARG001 - read before all others
    save_config: SaveConfig = None,
    as_json: AsJson = False,
) -> None:
    """Search hyperparameters and save the best model, trained on all rows.

    Trials that look poor early are given up. The same --study goes on where it stopped.
    """
    from protopinv.cli.rows import as_written
    from protopinv.data import load_data
    from protopinv.files import require_ending, require_file
    from protopinv.tuning import tune as search

    require_ending(output, "a model file")
    require_file(output)
    if save_config is not None:
        write_config(context, save_config, {})
    written = as_written(separator, encoding)
    rows = load_data(
        data, split="train", target=target, drop=drop or (), written=written, task=task
    )
    chosen = chosen_task(task, rows)
    found = search(
        rows.X,
        rows.y,
        n_trials=trials,
        timeout=timeout,
        study_file=study,
        estimator=estimator_for(chosen, {}, device=device),
        random_state=seed,
        verbose=int(sys.stderr.isatty()),
    )
    output = place_for(output, interrupted=found.interrupted)
    found.model.target_names_ = list(rows.targets) or None
    found.model.save(output)
    say(f"saved {output}")
    answer(
        {
            "model": str(output),
            "data": rows.name,
            "task": chosen,
            **validation(chosen, found.score),
            "trials": found.n_trials,
            "given_up": found.n_pruned,
            **found.parameters,
        },
        as_json=as_json,
    )
    leave(interrupted=found.interrupted)
