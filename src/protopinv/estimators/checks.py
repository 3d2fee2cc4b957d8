"""What the estimators ask of arguments and data before and while they train."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from protopinv.errors import ConfigError, DataError, TrainingError
from protopinv.rows.labels import exact_numbers
from protopinv.train.config import LARGEST

LINALG_ERROR: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


def resolve_device(name: str) -> torch.device:
    """The torch device behind "auto", "cpu", "cuda" or the number of a GPU as in "cuda:1"."""
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    numbered = kind == "cuda" and number.isdigit()
    if not (numbered or name in ("auto", "cpu", "cuda")):
        raise ConfigError(
            "device must be one of 'auto', 'cpu', 'cuda', or the number of a GPU as in 'cuda:1'. "
            f"Got {name!r}. Change it to 'auto'."
        )
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there == 0:
        raise ConfigError(
            f"device={name!r} needs a GPU that torch can use. torch sees none here. "
            "Use device='auto', or install a CUDA build of torch."
        )
    if numbered and int(number) >= there:
        raise ConfigError(
            f"device={name!r} needs GPU number {number}. torch sees {there}, counted from 0. "
            "Choose one of these."
        )
    return torch.device("cuda", int(number)) if numbered else torch.device("cuda")


def require_number(
    estimator: Any, name: str, kind: type, test: Callable[[Any], bool], rule: str
) -> None:
    """Raise ConfigError unless the parameter is a number of this kind that passes the test."""
    value = getattr(estimator, name)
    number = isinstance(value, kind) and not isinstance(value, bool)
    if not (number and abs(value) <= LARGEST and test(value)):
        default = inspect.signature(type(estimator)).parameters[name].default
        raise ConfigError(
            f"{name} must be {rule}. Got {value!r}. Change it, or leave it at {default!r}."
        )


@contextmanager
def memory_named() -> Iterator[None]:
    """Say in our words that memory ran out; torch on a CPU raises a bare RuntimeError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        out = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if out or "alloc" in str(error) or "Storage size" in str(error):
            raise TrainingError(
                "Training must fit in memory. It did not. Lower n_prototypes, hidden_sizes or "
                "n_components."
            ) from error
        raise


@contextmanager
def solvable() -> Iterator[None]:
    """Say in our words that a matrix has no decomposition, for numbers that are far too large."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, LINALG_ERROR):
            raise
        raise TrainingError(
            "Rows, and what a model knows of earlier ones, must be of a size to calculate with. "
            f"Here a matrix cannot be taken apart ({str(error).strip()[:80]}). Scale the rows, or "
            "fit again."
        ) from error


def torch_ready(X: NDArray[Any]) -> NDArray[Any]:
    """The array itself, or a float64 copy where torch has no such number type."""
    native = X.dtype.isnative and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8
    return X if native else X.astype(np.float64)


def exact_targets(y: Any) -> Any:
    """Targets as they came, but whole numbers that would become floats on their way to numpy."""
    if isinstance(y, list | tuple) and y and all(type(label) is int for label in y):
        return exact_numbers(y)
    if hasattr(y, "iloc") and getattr(y, "ndim", 0) == 1:
        column = nw.from_native(y, series_only=True)
        if column.dtype.is_integer() and not column.is_null().any():
            kind = np.uint64 if column.dtype.is_unsigned_integer() else np.int64
            return y.to_numpy(dtype=kind) if str(y.dtype) != np.dtype(kind).name else y
    return y


def plain_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Labels as booleans, numbers or strings, the kinds that can be sorted, saved and compared."""
    if y.dtype.kind in "OT":
        kinds = {type(label) for label in y.tolist()}
        if kinds == {str}:
            return y.astype(object)
        if kinds and kinds <= {bool, int, float}:
            return exact_numbers(y.tolist())
        came = ", ".join(sorted(kind.__name__ for kind in kinds))
    elif y.dtype.kind in "biufU":
        return y
    else:
        came = str(y.dtype)
    raise DataError(
        f"Labels must all be booleans, numbers or strings. Got {came}. Convert them, for example "
        "with y.astype(str)."
    )


def hold_out(labels: NDArray[Any], fraction: float, seed: int) -> NDArray[Any] | None:
    """Row numbers for validation: stratified where every group of rows allows it, else random."""
    if fraction == 0:
        return None
    counts = np.bincount(labels)
    n_held = round(fraction * len(labels))
    if not 1 <= n_held < len(labels):
        raise DataError(
            f"A hold-out needs at least one row on each side. {len(labels)} rows with "
            f"validation_fraction={fraction} leave {n_held} to validate on. "
            "Give more rows, or set validation_fraction=0."
        )
    n_classes = len(counts)
    divisible = counts.min() >= 2 and n_classes <= n_held <= len(labels) - n_classes
    _, held_out = train_test_split(
        np.arange(len(labels)),
        test_size=n_held,
        random_state=seed,
        stratify=labels if divisible else None,
    )
    return np.sort(held_out)
