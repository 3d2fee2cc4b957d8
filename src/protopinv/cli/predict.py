"""protopinv predict: a class for every row."""

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.cli.options import AsJson, Data, Device, ModelPath
from protopinv.cli.output import on_stdout, say


def predict(
    model: ModelPath,
    data: Data,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write here instead of to stdout.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probability of each class.")
    ] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Predict rows as CSV or JSON.

    DATA is a table with the columns the model was trained on, or a named set (its test split).
    """
    from protopinv.cli.rows import model_at, rows_for
    from protopinv.files import replacing, require_file

    if output is not None:
        require_file(output)
    estimator = model_at(model).set_params(device=device)
    rows = rows_for(estimator, data)
    columns: dict[str, list[Any]] = {"prediction": estimator.predict(rows.X).tolist()}
    if proba:
        probabilities = estimator.predict_proba(rows.X)
        for label, column in zip(estimator.classes_.tolist(), probabilities.T, strict=True):
            columns[f"probability_{label}"] = column.tolist()
    if output is None:
        with on_stdout():
            _write(columns, sys.stdout, as_json)
        return
    with replacing(output) as temporary, temporary.open("w", newline="") as stream:
        _write(columns, stream, as_json)
    say(f"wrote {len(columns['prediction'])} predictions to {output}")


def _write(columns: dict[str, list[Any]], stream: Any, as_json: bool) -> None:
    if as_json:
        json.dump(columns, stream)
        stream.write("\n")
        return
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
