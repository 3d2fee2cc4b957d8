"""protopinv report: a page about a model, with the model in it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from protopinv.cli.options import AsJson, Encoding, KnownTarget, ModelPath, Separator
from protopinv.cli.output import answer


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
    from protopinv.cli.rows import as_written, model_at, rows_for
    from protopinv.cli.tasks import require_targets
    from protopinv.files import require_ending, require_file
    from protopinv.report import write_report

    require_ending(output, "a report")
    require_file(output)
    estimator = model_at(model)
    given: dict[str, Any] = {}
    if data is not None:
        written = as_written(separator, encoding)
        found = rows_for(estimator, data, target, needs_target=True, written=written)
        require_targets(estimator, found)
        given = {"X": found.X, "y": found.y}
    path = write_report(estimator, output, **given, name=Path(model).stem, rows=rows)
    told = {"model": model, "report": str(path), "bytes": path.stat().st_size}
    answer({**told, "data": data}, as_json=as_json)
