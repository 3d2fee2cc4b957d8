"""protopinv predict: a class, labels or numbers for every row."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.cli.options import AsJson, Data, Device, Encoding, ModelPath, Separator
from protopinv.cli.output import for_people, on_stdout, say
from protopinv.errors import ConfigError
from protopinv.optional import require

# Rows that are predicted before a progress bar moves.
ROWS_AT_ONCE = 2**17


def predict(
    model: ModelPath,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probability of each class or label.")
    ] = False,
    separator: Separator = None,
    encoding: Encoding = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Predict rows as CSV, JSON, JSON lines or Parquet, by the ending of the output.

    The answer is a column "prediction", or prediction_1, prediction_2, ... for several targets.
    DATA is a table with the columns the model was trained on, or a named set (its test split).
    """
    from protopinv.cli.rows import as_written, model_at, require_order, rows_for
    from protopinv.files import replacing, require_ending, require_file

    require_order("predict", model, data)
    if output is not None:
        require_ending(output, "a file of predictions")
        if as_json and output.suffix != ".json":
            raise ConfigError(
                f"A file of predictions is written as its name ends. Got --json and {output.name}. "
                "Leave out --json, or rename the file to end in .json."
            )
        require_file(output)
    estimator = model_at(model).set_params(device=device)
    rows = rows_for(estimator, data, written=as_written(separator, encoding))
    if proba and not hasattr(estimator, "predict_proba"):
        raise ConfigError(
            f"Probabilities are of classes or labels. {model} predicts numbers. Leave out --proba."
        )
    columns = _columns("prediction", _of_all("predicting", estimator.predict, rows.X))
    if proba:
        columns |= _probabilities(estimator, rows.X)
    if output is None:
        with on_stdout():
            _write(columns, for_people(sys.stdout), as_json)
        return
    with replacing(output) as temporary:
        _write_file(columns, temporary, output.suffix)
    say(f"wrote {len(rows.X)} predictions to {output}")


def _of_all(doing: str, predict: Callable[[Any], Any], X: Any) -> Any:
    """Answers to all rows, some at a time, with the time that is left if it takes several."""
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    console, starts = Console(stderr=True), range(0, max(1, len(X)), ROWS_AT_ONCE)
    hidden = len(starts) == 1 or not console.is_terminal
    shown = track(starts, doing, console=console, disable=hidden)
    # a table of Arrow has no slices but this
    cut = getattr(X, "slice", lambda start, n: X[start : start + n])
    parts = (cut(start, ROWS_AT_ONCE) for start in shown)
    return np.concatenate([predict(part) for part in parts])


def _columns(name: str, values: Any) -> dict[str, list[Any]]:
    """One column under the name, or several that are counted."""
    if values.ndim == 1:
        return {name: values.tolist()}
    return {f"{name}_{n}": column.tolist() for n, column in enumerate(values.T, start=1)}


def _probabilities(estimator: Any, X: Any) -> dict[str, list[Any]]:
    found = _of_all("probabilities", estimator.predict_proba, X)
    if estimator.model_.task == "multi-label":
        return _columns("probability", found)
    named = zip(estimator.classes_.tolist(), found.T, strict=True)
    return {f"probability_{label}": column.tolist() for label, column in named}


def _write_file(columns: dict[str, list[Any]], path: Path, suffix: str) -> None:
    """In the format that the ending of the file names."""
    if suffix in (".parquet", ".pq"):
        parquet = require("pyarrow.parquet", extra="table", why="Writing Parquet")
        arrow = require("pyarrow", extra="table", why="Writing Parquet")
        parquet.write_table(arrow.table(columns), path)
        return
    with path.open("w", newline="") as stream:
        if suffix in (".jsonl", ".ndjson"):
            for row in zip(*columns.values(), strict=True):
                stream.write(json.dumps(dict(zip(columns, row, strict=True))) + "\n")
        else:
            _write(columns, stream, suffix == ".json")


def _write(columns: dict[str, list[Any]], stream: Any, as_json: bool) -> None:
    if as_json:
        json.dump(columns, stream)
        stream.write("\n")
        return
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
