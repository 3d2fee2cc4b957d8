"""Rows of a table for a model that exists; its columns are matched by name, others ignored."""

from pathlib import Path
from typing import TYPE_CHECKING

from protopinv.cli.options import MissingTarget, separator_of
from protopinv.cli.output import say
from protopinv.errors import ConfigError, DataError
from protopinv.words import PLAIN

if TYPE_CHECKING:
    from protopinv.data import Dataset
    from protopinv.data.sources import Split
    from protopinv.tables import Column
    from protopinv.tuning import Estimator


def require_order(command: str, model: str, other: str) -> None:
    """Raise ConfigError if the second argument is a model and the first one is none."""
    if _is_model(other) and not _is_model(model):
        raise ConfigError(
            f"The first argument of '{command}' must be a model. {model} is none, and {other} is "
            f"one. Swap them: protopinv {command} {other} {model}"
        )


def _is_model(name: str) -> bool:
    """Whether a file begins as safetensors do: the length of an object, and that object."""
    path = Path(name)
    try:
        with path.open("rb") as file:
            start = file.read(9)
            return start[8:] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size
    except (OSError, ValueError):
        return False


def _is_text(column: "Column") -> bool:
    """Whether a column must come as it is written: as names, or as numbers in a form of theirs."""
    return column.kind in ("category", "text") or getattr(column, "form", PLAIN) != PLAIN


def rows_for(
    estimator: "Estimator",
    data: str,
    target: str | None = None,
    weight: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    *,
    needs_target: bool = False,
    missing_target: MissingTarget = "error",
    split: "Split" = "test",
) -> "Dataset":
    """One split of a named set, or all columns of a table; the model picks its own by name.

    A target that is needed, and not named, is the one that the model was trained on.
    """
    from protopinv.data import NAMED, load_data

    model, table = estimator.model_, estimator.table_
    is_known = needs_target and target is None and data not in NAMED
    targets = model.target_names if is_known else target
    as_text = [] if table is None else [c.source for c in table.columns if _is_text(c)]
    has_names = model.task == "classification" and model.classes.dtype.kind in "OUT"
    if has_names and targets is not None:  # digits are names, too
        as_text += [targets] if isinstance(targets, str) else targets
    rows = load_data(
        data,
        split=split,
        target=targets,
        needs_target=needs_target,
        weight=weight,
        as_text=as_text,
        separator=separator_of(separator),
        encoding=encoding,
        task="classification" if has_names else model.task,
        missing_target=missing_target,
    )
    for line in rows.said:
        say(line)
    by_name = model.feature_names is not None and data not in NAMED
    if not by_name and rows.X.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"Rows must have what the model was trained on: {estimator.n_features_in_} features. "
            f"{rows.name} has {rows.X.shape[1]}. Choose the data that belong to the model."
        )
    n_targets = 1 if model.task == "classification" else model.objective.n_outputs
    if needs_target and n_targets != max(1, len(rows.targets)):
        raise DataError(
            f"Targets must be those of the model: {n_targets}. There are "
            f"{max(1, len(rows.targets))}. Name them all with --target and commas, in the order of "
            "training."
        )
    return rows
