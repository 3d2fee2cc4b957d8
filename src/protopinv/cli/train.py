"""protopinv train: a model file from rows."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from protopinv.cli.config import ConfigFile, SaveConfig, write_config
from protopinv.cli.options import (
    AsJson,
    Categorical,
    Device,
    Drop,
    Encoding,
    Output,
    Seed,
    Separator,
    Target,
    TrainData,
    Verbose,
    Weight,
    WithExamples,
    listed,
    parse_hyperparameters,
    with_hyperparameters,
)
from protopinv.cli.output import answer, leave, place_for, say
from protopinv.cli.tasks import Task, chosen_task, estimator_for, sizes_of, validation

if TYPE_CHECKING:
    from protopinv.callbacks import Callback
    from protopinv.data import Dataset
    from protopinv.rows import ArrowRows, RowSource
    from protopinv.rows.text import Written
    from protopinv.tables import Table

# So many targets tell whether they are classes or numbers.
ROWS_FOR_TASK = 100_000
BLOCKS_FOR_TASK = 8
# Columns that are told of, line by line.
MOST_TOLD = 60


@with_hyperparameters
def train(
    context: typer.Context,
    data: TrainData,
    target: Target = None,
    task: Task = "auto",
    weight: Weight = None,
    drop: Drop = None,
    categorical: Categorical = None,
    separator: Separator = None,
    encoding: Encoding = None,
    output: Output = Path("model.safetensors"),
    with_examples: WithExamples = False,
    device: Device = "auto",
    seed: Seed = 0,
    verbose: Verbose = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A file for all that training needs to go on, written now and then."),
    ] = None,
    checkpoint_every: Annotated[
        str, typer.Option(help="A number of epochs, or a time such as 30s, 10min or 1h.")
    ] = "5min",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from the checkpoint, if it is there.")
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(help="A file that gets a line with every epoch: .jsonl, .ndjson or .csv."),
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="A folder for TensorBoard, of this training alone.")
    ] = None,
    config: ConfigFile = None,  # noqa: ARG001 - read before all others
    save_config: SaveConfig = None,
    as_json: AsJson = False,
    **hyperparameters: Any,
) -> None:
    """Train a model and save it.

    DATA is a table, all of whose rows are used, or a named set, of which the training split is. Of
    a folder all files are read; what does not fit in memory is read again for every epoch. Started
    by torchrun, every process reads its own part. Several values are given with commas, as in
    --hidden-sizes 256,128 --ridge 100,3.
    """
    from protopinv.cli.rows import as_written
    from protopinv.data import load_data
    from protopinv.files import require_ending, require_file
    from protopinv.train.config import TrainConfig
    from protopinv.train.machine import is_first, resolve_device

    require_ending(output, "a model file")
    require_file(output)
    given = parse_hyperparameters(hyperparameters)
    TrainConfig(**given)
    resolve_device(device)
    if save_config is not None and is_first():
        write_config(context, save_config, given)
    watching: dict[str, Any] = {
        "callbacks": _callbacks(log, tensorboard),
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "resume": resume,
    }
    written = as_written(separator, encoding)
    names = listed(categorical)
    source = _source(data, target, drop or (), weight, names, written)
    rows = None
    if source is None:
        rows = load_data(
            data,
            split="train",
            target=target,
            drop=drop or (),
            weight=weight,
            as_text=names,
            written=written,
            task=task,
        )
    elif task != "classification":
        source.require_plain_targets()
    estimator = estimator_for(
        chosen_task(task, rows or _first_targets(source)),
        given,
        device=device,
        random_state=seed,
        columns=dict.fromkeys(names, "category") if names else None,
        verbose=int(sys.stderr.isatty() if verbose is None else verbose),
    )
    if rows is not None:
        if estimator.image_shape is None:
            estimator.set_params(image_shape=rows.image_shape)
        estimator.fit(rows.X, rows.y, rows.weight, **watching)
    else:
        estimator.fit(source, **watching)
    if not is_first():
        return
    for line in (*_said(rows or source), *told(estimator.table_)):
        say(line)
    if rows is not None:
        estimator.model_ = replace(estimator.model_, target_names=rows.targets or None)
    history, sizes = estimator.history_, sizes_of(estimator)
    interrupted = history.ending == "interrupted"
    output = place_for(output, interrupted=interrupted)
    estimator.save(output, examples=with_examples)
    say(f"saved {output}")
    n_rows = source.n_rows if source is not None else len(rows.X) if rows is not None else 0
    answer(
        {
            "model": str(output),
            "data": data if rows is None else rows.name,
            "rows": n_rows,
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
    if interrupted and checkpoint is not None and checkpoint.exists():
        say(f"the same command with --resume goes on from {checkpoint}")
    leave(interrupted=interrupted)


def _callbacks(log: Path | None, tensorboard: Path | None) -> "list[Callback]":
    """Those that options ask for."""
    from protopinv.callbacks import HistoryFile, TensorBoard

    found: list[Callback] = [] if log is None else [HistoryFile(log)]
    return found if tensorboard is None else [*found, TensorBoard(tensorboard)]


def told(table: "Table | None") -> list[str]:
    """What was understood of each column, of as many as can be read; nothing of plain numbers."""
    if table is None or (table.is_plain and not table.left_out):
        return []
    lines = str(table).splitlines()
    return lines if len(lines) <= MOST_TOLD else [*lines[:MOST_TOLD], f"... {len(lines)} in all"]


def _said(rows: "Dataset | ArrowRows | None") -> tuple[str, ...]:
    """What should be heard of how rows were read."""
    return () if rows is None else rows.said


def _source(
    data: str,
    target: str | None,
    drop: Sequence[str],
    weight: str | None,
    as_text: Sequence[str],
    written: "Written",
) -> "ArrowRows | None":
    """Rows that are not simply loaded: folders, large files, and whatever several ranks share."""
    from protopinv.data import NAMED
    from protopinv.errors import DataError
    from protopinv.files import is_file, is_folder
    from protopinv.rows import open_rows, source
    from protopinv.train.machine import expected

    path = Path(data)
    if data in NAMED or not (is_file(path) or is_folder(path)):
        return None
    # a packed file of few bytes with too many rows is refused where it is unpacked
    is_small = is_file(path) and path.stat().st_size <= source.IN_MEMORY_BYTES
    if is_small and expected() == 1:
        return None
    if target is None:
        raise DataError(
            f"A table needs a target column. None was given for {data}. Use --target COLUMN."
        )
    return open_rows(
        path,
        target,
        weight=weight,
        drop=drop,
        as_text=as_text,
        separator=written.separator,
        encoding=written.encoding,
    )


def _first_targets(source: "RowSource | None") -> "Dataset":
    """Targets enough to tell the task by, from all over the files: these may be sorted."""
    import numpy as np

    from protopinv.data import Dataset

    if source is None:
        raise AssertionError("rows come from somewhere")
    blocks = source.blocks[:: max(1, len(source.blocks) // BLOCKS_FOR_TASK)]
    n_rows = ROWS_FOR_TASK // BLOCKS_FOR_TASK
    starts = (
        islice(source.read(block, n_rows, features=False), 1) for block in blocks[:BLOCKS_FOR_TASK]
    )
    pieces = [piece for start in starts for piece in start]
    y: Any = np.concatenate([np.asarray(piece.y) for piece in pieces])
    n_targets = 1 if source.is_column else y.shape[1]
    return Dataset("", pieces[0].X, y, targets=tuple(map(str, range(n_targets))))
