"""protopinv evaluate: how good a model is on rows it has not seen."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from protopinv.cli.options import (
    AsJson,
    Data,
    Device,
    Encoding,
    KnownTarget,
    ModelPath,
    Separator,
    Weight,
)
from protopinv.cli.output import answer, show


def evaluate(
    model: ModelPath,
    data: Data,
    target: KnownTarget = None,
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
    from protopinv import estimators
    from protopinv.cli.rows import as_written, model_at, require_order, rows_for
    from protopinv.cli.tasks import require_targets

    require_order("evaluate", model, data)
    estimator = model_at(model).set_params(device=device)
    written = as_written(separator, encoding)
    rows = rows_for(estimator, data, target, weight, needs_target=True, written=written)
    require_targets(estimator, rows)
    result = estimators.evaluate(estimator, rows.X, rows.y, rows.weight)
    told = {
        "data": rows.name,
        "task": estimator.model_.task,
        **_named(asdict(result), rows.targets),
    }
    if as_json:
        answer(told, as_json=True)
        return
    lists = {name: value for name, value in told.items() if isinstance(value, list)}
    numbers = {name: value for name, value in told.items() if name not in lists}
    rows_there = numbers.pop("n_rows")
    answer({**numbers, "rows": rows_there}, as_json=False)
    for name, parts in lists.items():
        if name.startswith("per_") and (name != "per_target" or len(parts) > 1):
            _table(name.removeprefix("per_"), parts)


def _named(result: dict[str, Any], targets: Sequence[str]) -> dict[str, Any]:
    """Labels and targets by the names of their columns, where these are known."""
    for kind, key in (("per_label", "label"), ("per_target", "target")):
        parts = result.get(kind, [])
        if parts and len(parts) == len(targets):
            result[kind] = [{**part, key: name} for part, name in zip(parts, targets, strict=True)]
    return result


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
