"""protopinv tune: search hyperparameters, save the winner."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.cli.config import ConfigFile, SaveConfig, write_config
from protopinv.cli.options import (
    AsJson,
    Categorical,
    Data,
    Device,
    Drop,
    Encoding,
    Output,
    Seed,
    Separator,
    Target,
    Verbose,
    Weight,
    WithExamples,
    listed,
    parse_hyperparameters,
    with_hyperparameters,
)
from protopinv.cli.output import answer, leave, place_for, say
from protopinv.cli.tasks import Task, chosen_task, estimator_for, validation


@with_hyperparameters
def tune(
    context: typer.Context,
    data: Data,
    target: Target = None,
    task: Task = "auto",
    weight: Weight = None,
    drop: Drop = None,
    categorical: Categorical = None,
    separator: Separator = None,
    encoding: Encoding = None,
    output: Output = Path("model.safetensors"),
    with_examples: WithExamples = False,
    trials: Annotated[int, typer.Option(help="Configurations to try, in all.")] = 50,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which to stop.")] = None,
    study: Annotated[
        Path | None, typer.Option(help="A file that keeps the search, to resume it later.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    verbose: Verbose = None,
    config: ConfigFile = None,  # noqa: ARG001 - read before all others
    save_config: SaveConfig = None,
    as_json: AsJson = False,
    **hyperparameters: Any,
) -> None:
    """Search hyperparameters and save the best model, trained on all rows.

    Trials that look poor early are given up. The same --study resumes where it stopped. A
    hyperparameter that is set here is not searched.
    """
    from protopinv.cli.rows import as_written
    from protopinv.data import load_data
    from protopinv.files import require_ending, require_file
    from protopinv.train.config import TrainConfig
    from protopinv.tuning import tune as search

    require_ending(output, "a model file")
    require_file(output)
    values = parse_hyperparameters(hyperparameters)
    TrainConfig(**values)
    if save_config is not None:
        write_config(context, save_config, values)
    names = listed(categorical)
    rows = load_data(
        data,
        split="train",
        target=target,
        drop=drop or (),
        weight=weight,
        as_text=names,
        written=as_written(separator, encoding),
        task=task,
    )
    chosen = chosen_task(task, rows)
    estimator = estimator_for(
        chosen, values, device=device, columns=dict.fromkeys(names, "category") if names else None
    )
    if estimator.image_shape is None:
        estimator.set_params(image_shape=rows.image_shape)
    parameters = estimator.get_params()
    found = search(
        rows.X,
        rows.y,
        rows.weight,
        n_trials=trials,
        timeout=timeout,
        study_file=study,
        estimator=estimator,
        fixed=[n for n, v in values.items() if n in parameters and v != getattr(TrainConfig, n)],
        random_state=seed,
        verbose=int(sys.stderr.isatty() if verbose is None else verbose),
    )
    output = place_for(output, interrupted=found.interrupted)
    found.model.model_ = replace(found.model.model_, target_names=rows.targets or None)
    found.model.save(output, examples=with_examples)
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
