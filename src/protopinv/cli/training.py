"""protopinv train and tune: a model file from rows."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from protopinv.cli.options import (
    AsJson,
    ConfigFile,
    DataPath,
    Device,
    Encoding,
    MissingTarget,
    Separator,
    Target,
    Weight,
    comma_separated,
    separator_of,
    with_options,
    write_config,
)
from protopinv.cli.output import answer, leave, say, validation
from protopinv.errors import ConfigError
from protopinv.train.config import CHECKPOINT_EVERY, TrainConfig
from protopinv.words import MOST_WHOLE_CLASSES

if TYPE_CHECKING:
    from protopinv.data import Dataset
    from protopinv.rows import ArrowRows
    from protopinv.tables import Table
    from protopinv.tuning import Estimator

# So many targets tell whether they are classes or numbers.
ROWS_FOR_TASK = 100_000
BLOCKS_FOR_TASK = 8
# Columns that are described, line by line.
MOST_DESCRIBED = 60
RULE = (
    "auto: classification for a named set and for a column of text, Booleans or at most "
    f"{MOST_WHOLE_CLASSES} different whole numbers, regression for other numbers; of several "
    "columns multi-label if all are 0 and 1, else regression."
)
# Hyperparameters that some tasks do not have.
ABSENT = {"classification": "loss", "multi-label": "loss", "regression": "label_smoothing"}


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What train and tune have in common."""

    target: Target = None
    task: Annotated[
        Literal["auto", "classification", "regression", "multi-label"],
        typer.Option(help=f"What to predict. {RULE}"),
    ] = "auto"
    missing_target: MissingTarget = "drop"
    weight: Weight = None
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Columns to leave out, several with commas; may be repeated."),
    ] = None
    categorical: Annotated[
        list[str] | None,
        typer.Option(help="Columns of numbers that are names of things; several with commas."),
    ] = None
    separator: Separator = None
    encoding: Encoding = None
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file.")] = Path(
        "model.safetensors"
    )
    with_examples: Annotated[
        bool,
        typer.Option(
            "--with-examples",
            help="Store up to 32 training rows in the model file, to check a loaded model on.",
        ),
    ] = False
    device: Device = "auto"
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0
    verbose: Annotated[
        bool | None,
        typer.Option("--verbose/--quiet", help="Show progress; default: in a terminal."),
    ] = None
    config: ConfigFile = None
    save_config: Annotated[
        Path | None,
        typer.Option(help="Write all options of this command to a file that --config reads."),
    ] = None
    as_json: AsJson = False
    hyperparameters: Mapping[str, Any]

    @property
    def verbosity(self) -> int:
        """1 shows progress."""
        return int(sys.stderr.isatty() if self.verbose is None else self.verbose)

    def check(self, context: typer.Context) -> None:
        """Refuse what cannot be before any work, and write the file of options."""
        from protopinv.files import require_ending, require_file
        from protopinv.train.machine import is_first, resolve_device

        require_ending(self.output, "a model file")
        require_file(self.output)
        TrainConfig(**self.hyperparameters)
        resolve_device(self.device)
        if self.save_config is not None and is_first():
            write_config(context, self.save_config, self.hyperparameters)

    @property
    def reading(self) -> dict[str, Any]:
        """How a table is read: which columns, as what, and for which task."""
        return {
            "target": self.target,
            "weight": self.weight,
            "drop": self.drop or (),
            "as_text": comma_separated(self.categorical),
            "separator": separator_of(self.separator),
            "encoding": self.encoding,
            "task": self.task,
            "missing_target": self.missing_target,
        }

    def estimator(self, rows: "Dataset") -> "Estimator":
        """The unfitted estimator for the task of these rows, with the hyperparameters."""
        from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
        from protopinv.estimators.parameters import nested

        task, values = _chosen_task(self.task, rows), dict(self.hyperparameters)
        absent = ABSENT[task]
        value = values.pop(absent)
        if value != getattr(TrainConfig, absent):
            raise ConfigError(
                f"--{absent.replace('_', '-')} does not go with {task}. Got {value!r}. Leave it "
                "out."
            )
        if values["image_shape"] is None:
            values["image_shape"] = rows.image_shape
        categories = dict.fromkeys(comma_separated(self.categorical), "category")
        build = ProtoPINVRegressor if task == "regression" else ProtoPINVClassifier
        return build(
            **nested(values),
            device=self.device,
            random_state=self.seed,
            columns=categories or None,
            verbose=self.verbosity,
        )

    def finish(
        self, estimator: "Estimator", facts: Mapping[str, Any], *, interrupted: bool
    ) -> None:
        """Write the model, beside ``output`` if training was interrupted, and answer with facts."""
        place = output = self.output
        if interrupted:
            output = place.with_name(f"{place.stem}.unfinished{place.suffix}")
            say(f"interrupted: what was reached goes to {output}; nothing was written to {place}")
        estimator.save(output, examples=self.with_examples)
        say(f"saved {output}")
        answer({"model": str(output), **facts}, as_json=self.as_json)
        leave(interrupted=interrupted)


@with_options
def train(
    context: typer.Context,
    data: DataPath,
    options: TrainingOptions,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A file for all that training needs to go on, written now and then."),
    ] = None,
    checkpoint_every: Annotated[
        str, typer.Option(help="A number of epochs, or a time such as 30s, 10min or 1h.")
    ] = CHECKPOINT_EVERY,
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
) -> None:
    """Train a model and save it.

    DATA is a table, all of whose rows are used, or a named set, of which the training split is. Of
    a folder all files are read; what does not fit in memory is read again for every epoch. Started
    by torchrun, every process reads its own part. Several values are given with commas, as in
    --hidden-sizes 256,128 --ridge 100,3.
    """
    options.check(context)
    from protopinv.callbacks import Callback, HistoryFile, TensorBoard
    from protopinv.data import NAMED, load_data
    from protopinv.train.machine import is_first

    callbacks: list[Callback] = [] if log is None else [HistoryFile(log)]
    if tensorboard is not None:
        callbacks.append(TensorBoard(tensorboard))
    passed: tuple[Any, ...]
    if data in NAMED:
        rows = load_data(data, split="train", **options.reading)
        passed, n_rows = (rows.X, rows.y), len(rows.X)
    else:
        source, rows = _opened(data, options)
        passed, n_rows = (source,), source.n_rows
    estimator = options.estimator(rows)
    estimator.fit(
        *passed,
        callbacks=callbacks,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        resume=resume,
    )
    if not is_first():
        return
    for line in (*rows.said, *_described(estimator.table_)):
        say(line)
    interrupted = estimator.history_.ending == "interrupted"
    if interrupted and checkpoint is not None and checkpoint.exists():
        say(f"the same command with --resume goes on from {checkpoint}")
    facts = {"data": rows.name, "rows": n_rows, **_facts(estimator)}
    options.finish(estimator, facts, interrupted=interrupted)


@with_options
def tune(
    context: typer.Context,
    data: DataPath,
    options: TrainingOptions,
    trials: Annotated[int, typer.Option(help="Configurations to try, in all.")] = 50,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which to stop.")] = None,
    study: Annotated[
        Path | None, typer.Option(help="A file that keeps the search, to resume it later.")
    ] = None,
) -> None:
    """Search hyperparameters and save the best model, trained on all rows.

    Trials that look poor early are given up. The same --study resumes where it stopped. A
    hyperparameter that is set here is not searched.
    """
    options.check(context)
    from protopinv import tuning
    from protopinv.data import load_data

    rows = load_data(data, split="train", **options.reading)
    for line in rows.said:
        say(line)
    estimator = options.estimator(rows)
    parameters, values = estimator.get_params(), options.hyperparameters
    tuned = tuning.tune(
        rows.X,
        rows.y,
        rows.weight,
        n_trials=trials,
        timeout=timeout,
        study_file=study,
        estimator=estimator,
        fixed=[n for n, v in values.items() if n in parameters and v != getattr(TrainConfig, n)],
        random_state=options.seed,
        verbose=options.verbosity,
    )
    model = tuned.model
    model.model_ = replace(model.model_, target_names=rows.targets or None)
    task = model.model_.task
    facts = {
        "data": rows.name,
        "task": task,
        **validation(task, tuned.score),
        "trials": tuned.n_trials,
        "given_up": tuned.n_pruned,
        **tuned.parameters,
    }
    options.finish(model, facts, interrupted=tuned.interrupted)


def _chosen_task(task: str, rows: "Dataset") -> str:
    """The task, shown on stderr where the target decided."""
    several = len(rows.targets) > 1
    if task == "auto":
        task = _task_of(rows.y, several=several)
        say(f"task: {task} (by the target; --task says otherwise)")
    elif task == "multi-label" and not several:
        raise ConfigError(
            "Several labels a row have a column of 0 and 1 each. Got one target. Name all of them "
            "with commas, as in --target a,b, or use --task classification."
        )
    elif task == "classification" and several:
        raise ConfigError(
            f"Classification has one target. Got {len(rows.targets)}. Use --task multi-label for "
            "columns of 0 and 1, or train a model for each."
        )
    return task


def _task_of(y: Any, *, several: bool) -> str:
    import numpy as np

    if several:
        return "multi-label" if np.isin(y, (0, 1)).all() else "regression"
    if y.dtype.kind not in "iuf":
        return "classification"
    values = np.unique(y)
    are_whole = np.isfinite(values).all() and (values == np.round(values)).all()
    are_classes = are_whole and len(values) <= MOST_WHOLE_CLASSES
    return "classification" if are_classes else "regression"


def _facts(estimator: "Estimator") -> dict[str, Any]:
    """Sizes of a model, and how its training went."""
    from protopinv.model_file.summary import OUTPUTS

    history, task = estimator.history_, estimator.model_.task
    return {
        "features": estimator.n_features_in_,
        "task": task,
        OUTPUTS[task][0]: estimator.objective_.n_outputs,
        "candidates": len(estimator.candidates_) or 1,
        "ensemble": len(estimator.ensemble_),
        "members": estimator.bank_.n_members,
        "epochs": history.n_epochs,
        "ended": history.ending,
        "loss": history.loss[-1] if history.loss else None,
        **validation(task, history.kept_score),
        "seconds": history.seconds,
        "trained_numbers": estimator.n_trained_,
        "shipped_numbers": estimator.n_shipped_,
        "guard": history.events,
    }


def _described(table: "Table | None") -> list[str]:
    """What was understood of each column, of as many as can be read; nothing of plain numbers."""
    if table is None or (table.is_plain and not table.left_out):
        return []
    lines = str(table).splitlines()
    n = len(lines)
    return lines if n <= MOST_DESCRIBED else [*lines[:MOST_DESCRIBED], f"... {n} in all"]


def _opened(data: str, options: TrainingOptions) -> "tuple[ArrowRows, Dataset]":
    """A table, and targets enough to tell the task by.

    These are all that fit in memory, and otherwise some from all over the files, which may be
    sorted.
    """
    from protopinv.data import Dataset, open_table
    from protopinv.rows import concatenated
    from protopinv.train.machine import expected

    source, n_pieces = open_table(data, **options.reading), None
    blocks = source.blocks
    if expected() == 1 and source.fits_in_memory():
        source = source.with_columns(source.names, framed=True)
    else:
        blocks = blocks[:: max(1, len(blocks) // BLOCKS_FOR_TASK)][:BLOCKS_FOR_TASK]
        n_pieces = 1
    n_rows = ROWS_FOR_TASK // BLOCKS_FOR_TASK
    pieces = chain.from_iterable(
        islice(source.read(block, n_rows, features=False), n_pieces) for block in blocks
    )
    _, y, _ = concatenated(pieces)
    return source, Dataset(data, None, y, targets=source.target_names, said=source.said)
