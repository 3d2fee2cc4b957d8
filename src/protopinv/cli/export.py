"""protopinv export: a model in a format of others."""

from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.cli.options import AsJson, ModelPath, Target
from protopinv.cli.output import answer
from protopinv.errors import ExportError


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
    from protopinv.cli.rows import model_at, require_order, rows_for
    from protopinv.cli.tasks import require_targets
    from protopinv.files import require_ending, require_file

    require_order("export", model, str(output))
    if output.resolve() == Path(model).resolve():
        raise ExportError(
            f"An export must leave the model as it is. {output} is the model itself. Name another "
            "file."
        )
    require_ending(output, "an export")
    require_file(output)
    estimator = model_at(model)
    given: dict[str, Any] = {"examples": with_examples}
    if calibrate is not None:
        given["calibration"] = rows_for(estimator, calibrate, target, split="train").X
    if data is not None:
        rows = rows_for(estimator, data, target)
        given["X"] = rows.X
        if rows.y is not None and (target is not None or not rows.targets):
            require_targets(estimator, rows)
            given["y"] = rows.y
    exported = estimator.export(output, dtype=dtype, **given)
    values = {
        "model": model,
        "format": exported.format,
        "dtype": exported.dtype,
        "files": [str(path) for path in exported.files],
        "file_bytes": exported.file_bytes,
        "flash_bytes_of_constants": exported.constant_bytes,
        "ram_bytes": exported.static_bytes,
        "operations_a_row": exported.operations,
        "compared_on_rows": exported.change.get("rows"),
        **{name: value for name, value in exported.change.items() if name != "rows"},
    }
    answer(values, as_json=as_json)
