"""A model that exists already, and rows for it: its own columns, whatever else a table holds."""

from pathlib import Path
from typing import TYPE_CHECKING

from protopinv.cli.output import say
from protopinv.errors import ConfigError, DataError, ModelFileError, ProtoPINVError

if TYPE_CHECKING:
    from protopinv.data import Dataset
    from protopinv.data.sources import Split
    from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
    from protopinv.rows.text import Written


def model_at(path: str) -> "ProtoPINVClassifier | ProtoPINVRegressor":
    """The model in a file; a file that the system does not let us look at is the user's to mend."""
    from protopinv.estimators import load

    try:
        return load(path)
    except ProtoPINVError:
        raise
    except OSError as error:
        raise ModelFileError(
            f"A model file must be readable. {path} is not ({error.strerror}). Check the path."
        ) from error


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


def as_written(separator: str | None, encoding: str | None) -> "Written":
    """How a CSV file is written, as far as a user says."""
    from protopinv.rows.text import Written

    separator = {"tab": "\t", "\\t": "\t"}.get(separator or "", separator)
    return Written(separator, encoding)


def rows_for(
    estimator: "ProtoPINVClassifier | ProtoPINVRegressor",
    data: str,
    target: str | None = None,
    weight: str | None = None,
    *,
    needs_target: bool = False,
    split: "Split" = "test",
    written: "Written | None" = None,
) -> "Dataset":
    """One split of a named set, or the columns of a table that the model was trained on.

    A target that is needed, and not named, is the one that the model was trained on.
    """
    from protopinv.data import NAMED, load_data

    is_known = needs_target and target is None and data not in NAMED
    names, table = getattr(estimator, "feature_names_in_", None), estimator.table_
    features = None if names is None else list(names)
    of_text = [] if table is None else [c.name for c in table.columns if c.kind == "category"]
    asked = estimator.model_.target_names if is_known else target
    of_names = _has_names(estimator)
    if of_names and asked is not None:  # digits are names, too
        of_text += [asked] if isinstance(asked, str) else asked
    rows = load_data(
        data,
        split=split,
        target=asked,
        features=features,
        left_out=[] if table is None else [column.name for column in table.left_out],
        needs_target=needs_target,
        weight=weight,
        as_text=of_text,
        written=written,
        task="classification" if of_names else "auto",
    )
    for line in rows.said:
        say(line)
    if features is None or data in NAMED:  # otherwise columns were chosen by name
        _require_width(estimator, rows)
    return rows


def _has_names(estimator: "ProtoPINVClassifier | ProtoPINVRegressor") -> bool:
    """Whether the model's classes are text."""
    classes = getattr(estimator, "classes_", None)
    return classes is not None and classes.dtype.kind in "OUT"


def _require_width(estimator: "ProtoPINVClassifier | ProtoPINVRegressor", rows: "Dataset") -> None:
    if rows.X.shape[1] != estimator.n_features_in_:
        raise DataError(
            f"Rows must have what the model was trained on: {estimator.n_features_in_} features. "
            f"{rows.name} has {rows.X.shape[1]}. Choose the data that belong to the model."
        )
