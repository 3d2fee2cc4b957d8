"""protopinv predict, evaluate, inspect, report, export and diagnose: commands on a model.

What is heavy is imported in the commands: help and inspect need no torch.
"""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import protopinv
from protopinv.cli.options import (
    AsJson,
    DataPath,
    Device,
    Encoding,
    KnownTarget,
    MissingTarget,
    ModelPath,
    Separator,
    Target,
    Weight,
)
from protopinv.cli.output import answer, for_people, on_stdout, say, show, validation
from protopinv.cli.rows import require_order, rows_for
from protopinv.errors import ConfigError, ExportError
from protopinv.files import replacing, require_ending, require_file
from protopinv.optional import require

# Rows that are predicted before a progress bar moves.
ROWS_AT_ONCE = 2**17


def predict(
    model: ModelPath,
    data: DataPath,
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
    require_order("predict", model, data)
    if output is not None:
        require_ending(output, "a file of predictions")
        if as_json and output.suffix != ".json":
            raise ConfigError(
                f"A file of predictions is written as its name ends. Got --json and {output.name}. "
                "Leave out --json, or rename the file to end in .json."
            )
        require_file(output)
    estimator = protopinv.load(model).set_params(device=device)
    rows = rows_for(estimator, data, separator=separator, encoding=encoding)
    if proba and not hasattr(estimator, "predict_proba"):
        raise ConfigError(
            f"Probabilities are of classes or labels. {model} predicts numbers. Leave out --proba."
        )
    columns = _columns("prediction", _of_all("predicting", estimator.predict, rows.X))
    if proba:
        columns |= _probabilities(estimator, rows.X)
    if output is None:
        with on_stdout():
            _write(columns, for_people(sys.stdout), ".json" if as_json else ".csv")
    elif output.suffix in (".parquet", ".pq"):
        parquet = require("pyarrow.parquet", extra="table", why="Writing Parquet")
        arrow = require("pyarrow", extra="table", why="Writing Parquet")
        with replacing(output) as temporary:
            parquet.write_table(arrow.table(columns), temporary)
    else:
        with replacing(output) as temporary, temporary.open("w", newline="") as stream:
            _write(columns, stream, output.suffix)
    if output is not None:
        say(f"wrote {len(rows.X)} predictions to {output}")


def _of_all(doing: str, predict: Callable[[Any], Any], X: Any) -> Any:
    """Predictions of all rows, some at a time; if it takes several, with the time that is left."""
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    console, starts = Console(stderr=True), range(0, max(1, len(X)), ROWS_AT_ONCE)
    hidden = len(starts) == 1 or not console.is_terminal
    shown = track(starts, doing, console=console, disable=hidden)
    # a table of Arrow has no slices but this
    cut = getattr(X, "slice", lambda start, n: X[start : start + n])
    return np.concatenate([predict(cut(start, ROWS_AT_ONCE)) for start in shown])


def _columns(name: str, values: Any) -> dict[str, list[Any]]:
    """One column under the name, or several that are counted."""
    if values.ndim == 1:
        return {name: values.tolist()}
    return {f"{name}_{n}": column.tolist() for n, column in enumerate(values.T, start=1)}


def _probabilities(estimator: Any, X: Any) -> dict[str, list[Any]]:
    values = _of_all("probabilities", estimator.predict_proba, X)
    if estimator.model_.task == "multi-label":
        return _columns("probability", values)
    columns = zip(estimator.classes_.tolist(), values.T, strict=True)
    return {f"probability_{label}": column.tolist() for label, column in columns}


def _write(columns: dict[str, list[Any]], stream: Any, ending: str) -> None:
    """Text in the format that is named by the ending of a file."""
    rows = zip(*columns.values(), strict=True)
    if ending == ".json":
        json.dump(columns, stream)
        stream.write("\n")
    elif ending in (".jsonl", ".ndjson"):
        for row in rows:
            stream.write(json.dumps(dict(zip(columns, row, strict=True))) + "\n")
    else:
        csv.writer(stream, lineterminator="\n").writerows([columns, *rows])


def evaluate(
    model: ModelPath,
    data: DataPath,
    target: KnownTarget = None,
    missing_target: MissingTarget = "drop",
    weight: Weight = None,
    separator: Separator = None,
    encoding: Encoding = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Score a model on rows with known targets, in the measures of its task.

    DATA is a table with the column that the model predicts, or a named set (its test split). A
    --target of another name is given here, several in the order of training.
    """
    require_order("evaluate", model, data)
    estimator = protopinv.load(model).set_params(device=device)
    rows = rows_for(
        estimator,
        data,
        target,
        weight,
        separator,
        encoding,
        needs_target=True,
        missing_target=missing_target,
    )
    result = asdict(protopinv.evaluate(estimator, rows.X, rows.y, rows.weight))
    # labels and targets by the names of their columns, where these are known
    for kind, key in (("per_label", "label"), ("per_target", "target")):
        parts = result.get(kind, ())
        if len(parts) == len(rows.targets):
            for part, name in zip(parts, rows.targets, strict=True):
                part[key] = name
    values = {"data": rows.name, "task": estimator.model_.task, **result}
    if as_json:
        answer(values, as_json=True)
        return
    lists = {name: value for name, value in values.items() if isinstance(value, list)}
    n_rows = values.pop("n_rows")
    numbers = {name: value for name, value in values.items() if name not in lists}
    answer({**numbers, "rows": n_rows}, as_json=False)
    for name, parts in lists.items():
        if name.startswith("per_") and (name != "per_target" or len(parts) > 1):
            _table(name.removeprefix("per_"), parts)


def _table(kind: str, parts: Sequence[dict[str, Any]]) -> None:
    """A line a class, label or target."""
    key = "target" if kind == "target" else "label"
    columns = [name for name in parts[0] if name != key]
    heads = ["rows" if name == "n_rows" else name for name in columns]
    print()
    show(f"{kind:<20} " + " ".join(f"{head:>9}" for head in heads))
    for number, part in enumerate(parts, start=1):
        cells = [f"{v:9,}" if isinstance(v, int) else f"{v:9.4f}" for v in map(part.get, columns)]
        show(f"{part.get(key, number)!s:<20} " + " ".join(cells))


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
        from protopinv.export.card import card as model_card

        text = model_card(protopinv.load(model).model_, Path(model).stem, protopinv.__version__)
        for line in text.removesuffix("\n").split("\n"):
            show(line)
        return
    from protopinv.model_file.summary import summary

    facts = summary(model)
    history, config = facts.pop("history"), facts.pop("config")
    loss, scores, epoch = history["loss"], history["validation_score"], history["kept_epoch"]
    score = None if epoch is None or epoch >= len(scores) else scores[epoch]
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
    settings = [f"{name} = {value!r}" for name, value in config.items()]
    for lines in (columns, settings if everything else None):
        for line in ("", *lines) if lines else ():
            show(line)


def report(
    model: ModelPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the page goes.")] = Path(
        "report.html"
    ),
    data: Annotated[
        str | None,
        typer.Option(help="Rows with known targets that the model has not seen; a table or a set."),
    ] = None,
    target: KnownTarget = None,
    rows: Annotated[
        bool, typer.Option("--rows", help="Show the rows that the model is most wrong about.")
    ] = False,
    separator: Separator = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file that shows what a model is, how good it is, and lets you try it.

    It holds the model itself as JavaScript, loads nothing from anywhere, and can be opened by
    everyone. Of --data it has aggregates only, unless --rows is given.
    """
    require_ending(output, "a report")
    require_file(output)
    estimator = protopinv.load(model)
    from protopinv.report import write_report

    measured_on: dict[str, Any] = {}
    if data is not None:
        table = rows_for(
            estimator,
            data,
            target,
            separator=separator,
            encoding=encoding,
            needs_target=True,
            missing_target="drop",
        )
        measured_on = {"X": table.X, "y": table.y}
    path = write_report(estimator, output, **measured_on, name=Path(model).stem, rows=rows)
    values = {"model": model, "report": str(path), "bytes": path.stat().st_size, "data": data}
    answer(values, as_json=as_json)


def export(
    model: ModelPath,
    output: Annotated[Path, typer.Argument(help="Where to: .onnx, .c, .mjs, .js or .safetensors.")],
    dtype: Annotated[
        str,
        typer.Option(help="float32, or int8 for .c; for .safetensors also float16 and float64."),
    ] = "float32",
    calibrate: Annotated[
        str | None,
        typer.Option(help="Rows like those of training, for the ranges of int8; a table or a set."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Rows that say how far predictions move; a table or a set.")
    ] = None,
    target: Target = None,
    with_examples: Annotated[
        bool,
        typer.Option("--with-examples", help="Take along the training rows in the model."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, C99, JavaScript or a smaller model file.

    With --data predictions before and after are compared, and with a --target it is said what the
    change costs. C comes with a header and a program of stored cases beside it. Without --calibrate
    the ranges of int8 come from made-up rows, which is less accurate.
    """
    require_order("export", model, str(output))
    if output.resolve() == Path(model).resolve():
        raise ExportError(
            f"An export must leave the model as it is. {output} is the model itself. Name another "
            "file."
        )
    require_ending(output, "an export")
    require_file(output)
    estimator = protopinv.load(model)
    from protopinv.data import NAMED

    arrays: dict[str, Any] = {}
    if calibrate is not None:
        arrays["calibration"] = rows_for(estimator, calibrate, target, split="train").X
    if data is not None:
        has_target = target is not None or data in NAMED
        rows = rows_for(estimator, data, target, needs_target=has_target)
        arrays["X"] = rows.X
        if has_target:
            arrays["y"] = rows.y
    exported = estimator.export(output, dtype=dtype, examples=with_examples, **arrays)
    change = dict(exported.change)
    values = {
        "model": model,
        "format": exported.format,
        "dtype": exported.dtype,
        "files": [str(path) for path in exported.files],
        "file_bytes": exported.file_bytes,
        "flash_bytes_of_constants": exported.constant_bytes,
        "ram_bytes": exported.static_bytes,
        "operations_a_row": exported.operations,
        "compared_on_rows": change.pop("rows", None),
        **change,
    }
    answer(values, as_json=as_json)


def diagnose(model: ModelPath, as_json: AsJson = False) -> None:
    """Show conditioning and sensitivity of every layer's solve.

    The condition is that of the prototype matrix, and of the ridge system solved from it. The
    sensitivities say how far the weights move, at most, when inputs or targets of the prototypes
    or the ridge move by one; the share of the bound says how much of that a small random move
    makes use of.
    """
    estimator = protopinv.load(model)
    diagnosis, moved = estimator.diagnose(), estimator.check_lemma()
    if as_json:
        perturbed = [asdict(layer) for layer in moved]
        answer({"model": model, **asdict(diagnosis), "perturbed": perturbed}, as_json=True)
        return
    for number, (layer, change) in enumerate(zip(diagnosis.layers, moved, strict=True), 1):
        if number > 1:
            print()
        answer(
            {
                "layer": number,
                "ridge": layer.ridge,
                "largest_singular_value": layer.singular_values[0],
                "smallest_singular_value": layer.singular_values[-1],
                "condition": layer.condition,
                "system_condition": layer.system_condition,
                "effective_rank": layer.effective_rank,
                "system_effective_rank": layer.system_effective_rank,
                "degrees_of_freedom": layer.degrees_of_freedom,
                "sensitivity_to_inputs": layer.sensitivity.to_inputs,
                "sensitivity_to_targets": layer.sensitivity.to_targets,
                "sensitivity_to_ridge": layer.sensitivity.to_ridge,
                "share_of_the_bound": change.change / change.bound,
            },
            as_json=False,
        )
