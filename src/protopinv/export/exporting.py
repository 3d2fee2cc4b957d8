"""A model to a file in the format that its ending names, and how that changes its predictions."""

import math
import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv import __version__
from protopinv.errors import ConfigError, DataError, ExportError, ExportWarning, OutputError
from protopinv.export.c import FILES, write_c
from protopinv.export.description import Description, Rows, describe
from protopinv.export.javascript import write_javascript
from protopinv.export.onnx import write_onnx
from protopinv.export.quantise import quantise
from protopinv.export.steps import all_of
from protopinv.files import replacing, require_ending, require_file
from protopinv.model import Model
from protopinv.model_file.loading import load_model
from protopinv.model_file.saving import made_up, save, shareable
from protopinv.objective import Classes, Numbers

# What endings stand for, and the types of number each can have; model files have their own.
FORMATS = {
    ".onnx": ("ONNX", ("float32",)),
    ".c": ("C99", ("float32", "int8")),
    ".mjs": ("JavaScript", ("float32",)),
    ".js": ("JavaScript", ("float32",)),
}
# Made-up rows for the ranges of int8.
CALIBRATION_ROWS = 1_000
# Names that the header of an export must not have: with a search path they would be taken for C's.
HEADERS = frozenset(
    (
        *("assert", "complex", "ctype", "errno", "fenv", "float", "inttypes", "iso646", "limits"),
        *("locale", "math", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint", "stdio"),
        *("stdlib", "string", "tgmath", "time", "wchar", "wctype"),
    )
)
# How the files begin that are written beside one of C, without being named.
OURS = (b"/* Written by protopinv ", b"/* Stored cases: cc ")
FILE_NAME = re.compile(r"[A-Za-z0-9_.\-]+")

Outputs = Callable[[NDArray[Any]], Rows]


@dataclass(frozen=True)
class Exported:
    """What was written, and what it takes to run.

    ``constant_bytes`` and ``static_bytes`` are the flash and the memory of a C file beside its
    code; ``operations`` are additions and multiplications for one row. ``change`` says how
    predictions differ from those of the model, where rows were given or a type of number is coarse.
    """

    files: tuple[Path, ...]
    format: str
    dtype: str
    operations: int
    constant_bytes: int | None = None
    static_bytes: int | None = None
    change: Mapping[str, float] = field(default_factory=dict)

    @property
    def file_bytes(self) -> int:
        """Of the first file, which is the model."""
        return self.files[0].stat().st_size


def export(
    model: Model,
    path: str | Path,
    *,
    dtype: str,
    calibration: Any = None,
    X: Any = None,
    y: Any = None,
    examples: bool = False,
) -> Exported:
    """Write a model in the format that the ending names; rows are those of ``Model.outputs``."""
    path, shown = Path(path), shareable(model, examples=examples).examples
    if calibration is not None and (dtype != "int8" or path.suffix == ".safetensors"):
        raise ConfigError(
            f"Calibration is for int8 in C. Got it for {path.suffix} in {dtype}. Leave it out."
        )
    truth = _targets(model, X, y)
    description = describe(model, shown)
    if path.suffix == ".safetensors":
        save(model, path, bank=False, dtype=dtype, examples=examples)
        exported = Exported((path,), "safetensors", dtype, description.operations)
        outputs: Outputs = describe(load_model(path)).outputs
    else:
        is_made_up = calibration is None and dtype == "int8"
        seen = made_up(model, CALIBRATION_ROWS).numpy() if is_made_up else calibration
        rows = None if seen is None else description.rows(seen)
        exported, outputs = _write(description, path, dtype, rows)
        if is_made_up:
            warnings.warn(
                ExportWarning(
                    "Ranges of int8 should come from rows like those to predict. None were passed, "
                    "and made-up rows took their place. Give training rows: calibration=rows."
                ),
                stacklevel=3,
            )
    compared = shown if X is None else X
    if compared.shape[0] == 0 or (X is None and dtype in ("float32", "float64")):
        return exported
    after = outputs(description.rows(compared))
    return replace(exported, change=_change(model, compared, after, truth))


def _targets(model: Model, X: Any, y: Any) -> NDArray[Any] | None:
    """The targets of the rows to compare on, checked before anything is written."""
    if y is None:
        return None
    if X is None:
        raise ConfigError("Targets belong to rows. Got y without X. Give X too.")
    n, objective = X.shape[0], model.objective
    truth = np.asarray(y)
    shape = (n,) if isinstance(objective, Classes) else (n, objective.n_outputs)
    if truth.size != math.prod(shape):
        raise DataError(
            f"Targets must have one row per sample, shape {shape}. Got shape {truth.shape}. Check "
            "how the two were split."
        )
    return truth.reshape(shape)


def _write(
    description: Description, path: Path, dtype: str, rows: Rows | None
) -> tuple[Exported, Outputs]:
    """Write a file; gives what it is, and what it will answer to rows."""
    require_ending(path, "an export")
    kind, dtypes = FORMATS[path.suffix]
    if dtype not in dtypes:
        raise ExportError(
            f"{kind} is written in {' or '.join(dtypes)}. Got dtype={dtype!r}. Choose one of these."
        )
    _require_float32(description, kind)
    require_file(path)
    about, quantised = _about(description, dtype), None
    sizes: tuple[int | None, int | None] = None, None
    if kind == "C99":
        _require_place_for_c(path)
        if dtype == "int8":
            quantised = quantise(description, description.examples if rows is None else rows)
        texts, sizes = write_c(description, path.stem, about, quantised)
        named = ((path.with_name(path.stem + end), text) for end, text in texts.items())
        files = {place: text.encode("ascii") for place, text in named}
    elif kind == "JavaScript":
        files = {path: write_javascript(description, about).encode("ascii")}
    else:
        files = {path: write_onnx(description, __version__)}
    with ExitStack() as all_or_none:
        for place, content in files.items():
            all_or_none.enter_context(replacing(place)).write_bytes(content)
    exported = Exported(tuple(files), kind, dtype, description.operations, *sizes)
    if quantised is not None:
        return exported, quantised.outputs
    return exported, partial(description.outputs, dtype=torch.float32)


def _about(description: Description, dtype: str) -> list[str]:
    """What a file of code says of itself."""
    answers = "outputs" if description.labels is None else "classes"
    return [
        f"Written by protopinv {__version__}.",
        f"A network for {description.model.task}: {description.model.n_features} inputs, "
        f"{description.n_outputs} {answers}, in {dtype}.",
        f"{description.operations} operations for a row.",
    ]


def _require_place_for_c(path: Path) -> None:
    """Raise ExportError for a name that compilers could trip over, and OutputError for files there.

    Files beside it, which nobody named, are replaced if they are an earlier export.
    """
    if not FILE_NAME.fullmatch(path.stem):
        raise ExportError(
            f"Files of C are called by letters, digits, '_', '-' and '.'. Got {path.name!r}. "
            "Rename it."
        )
    if path.stem in HEADERS:
        raise ExportError(
            f"The header of an export must not hide one of C's own. {path.stem}.h is one. Rename "
            "it."
        )
    for beside in (path.with_name(path.stem + end) for end in FILES if end != path.suffix):
        require_file(beside)
        if not beside.exists():
            continue
        with beside.open("rb") as file:
            start = file.read(max(map(len, OURS)))
        if not start.startswith(OURS):
            raise OutputError(
                f"An export in C writes {beside.name} beside {path.name}, over an earlier export "
                f"only. {beside} is a file of another program. Rename it, or export under another "
                "name."
            )


def _require_float32(description: Description, kind: str) -> None:
    """Raise ExportError unless every number of steps and parts is one in float32 too."""
    encode = description.encode
    parts = [] if encode is None else [part for _, part in encode.parts]
    for part in (*parts, *all_of(description.steps)):
        for name, value in vars(part).items():
            numbers = np.asarray(value)
            if numbers.dtype.kind != "f":
                continue
            with np.errstate(over="ignore"):
                rounded = numbers.astype(np.float32)
            if not np.isfinite(rounded).all() or (numbers.any() and not rounded.any()):
                raise ExportError(
                    f"{kind} holds numbers of float32. {name.capitalize()} of this model are up to "
                    f"{np.abs(numbers).max():.3g}, which is none. Scale the features or the target."
                )


def _change(
    model: Model, X: Any, after: NDArray[np.float64], truth: NDArray[Any] | None
) -> dict[str, float]:
    """How predictions move, and what that costs where the truth is known."""
    objective, outputs = model.objective, (model.outputs(X).numpy(), after)
    change: dict[str, float] = {"rows": X.shape[0]}
    if not isinstance(objective, Numbers):
        old, new = (objective.decode(each) for each in outputs)
        change["same_labels"] = float((old == new).mean())
        if truth is not None:
            change["accuracy_before"] = float((old == truth).mean())
            change["accuracy_after"] = float((new == truth).mean())
        return change
    old, new = (objective.decode(each).reshape(len(after), -1) for each in outputs)
    spread = np.maximum(old.std(axis=0), np.finfo(np.float64).tiny)
    change["largest_difference"] = float(np.abs(new - old).max())
    # of the target that it hurts most
    change["difference_by_spread"] = float((np.sqrt(((new - old) ** 2).mean(0)) / spread).max())
    if truth is not None:
        scatter = ((truth - truth.mean(0)) ** 2).sum(0)
        for name, numbers in (("r2_before", old), ("r2_after", new)):
            change[name] = float((1 - ((numbers - truth) ** 2).sum(0) / scatter).mean())
    return change
