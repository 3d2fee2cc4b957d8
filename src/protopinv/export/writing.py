"""A description to a file, by the ending of its name."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.errors import ExportError, OutputError
from protopinv.export.c import write_c
from protopinv.export.c_int8 import write_c_int8
from protopinv.export.c_source import Source
from protopinv.export.description import Description
from protopinv.export.encode import Encode
from protopinv.export.javascript import write_javascript
from protopinv.export.onnx import OPSET, write_onnx
from protopinv.export.quantise import quantise
from protopinv.export.steps import ClassAnswer, Rows
from protopinv.export.text import identifier
from protopinv.export.torch_module import to_torch
from protopinv.files import replacing, require_ending, require_file

# Endings, what they stand for, and the types of number each can have.
SUFFIXES = {
    ".onnx": ("ONNX", ("float32",)),
    ".c": ("C99", ("float32", "int8")),
    ".mjs": ("JavaScript", ("float32",)),
    ".js": ("JavaScript", ("float32",)),
}
PIECE_ROWS = 1000
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


Outputs = Callable[[NDArray[Any]], Rows]


def write(
    description: Description, path: Path, *, dtype: str, rows: Rows | None, version: str
) -> tuple[Exported, Outputs]:
    """Write a file; gives what it is, and what it will answer to rows."""
    require_ending(path, "an export")
    kind, dtypes = SUFFIXES[path.suffix]
    if dtype not in dtypes:
        raise ExportError(
            f"{kind} is written in {' or '.join(dtypes)}. Got dtype={dtype!r}. Choose one of these."
        )
    _require_float32(description, kind)
    require_file(path)
    about = _about(description, dtype, version)
    if kind == "C99":
        return _write_c(description, path, dtype, rows, about)
    if kind == "JavaScript":
        text = write_javascript(description, about)
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="ascii")
    else:
        model = write_onnx(description, _metadata(description), version)
        with replacing(path) as temporary:
            temporary.write_bytes(model.SerializeToString(deterministic=True))
    return Exported((path,), kind, dtype, description.operations), rounded_outputs(description)


def _write_c(
    description: Description, path: Path, dtype: str, rows: Rows | None, about: list[str]
) -> tuple[Exported, Outputs]:
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
    for beside in _beside(path):
        _require_ours(beside, path)
    name, outputs = identifier(path.stem), rounded_outputs(description)
    if dtype == "int8":
        if description.encode is not None:
            raise ExportError(
                "C in int8 takes rows of numbers. This model takes a frame, of which it makes "
                f"{description.encode.n_outputs} numbers. Use dtype='float32'."
            )
        seen = description.examples if rows is None else rows
        whole = quantise(description, np.asarray(seen, dtype=np.float64))
        source, outputs = write_c_int8(description, whole, name, path.stem, about), whole.outputs
    else:
        source = write_c(description, name, path.stem, about)
    files = _save(source, path)
    memory = source.constant_bytes, source.static_bytes
    return Exported(files, "C99", dtype, description.operations, *memory), outputs


def _save(source: Source, path: Path) -> tuple[Path, ...]:
    """The network, its header beside it, and a program of stored cases."""
    header, test = _beside(path)
    texts = {path: source.code, header: source.header, test: source.test}
    with ExitStack() as all_or_none:
        for place, text in texts.items():
            temporary = all_or_none.enter_context(replacing(place))
            temporary.write_text(text, encoding="ascii")
    return tuple(texts)


def _beside(path: Path) -> tuple[Path, Path]:
    """Where the header and the program of stored cases go."""
    return path.with_suffix(".h"), path.with_name(f"{path.stem}_test.c")


def _require_ours(beside: Path, path: Path) -> None:
    """Raise OutputError if a file that nobody named would be replaced, unless it is an export."""
    require_file(beside)
    if not beside.exists():
        return
    with beside.open("rb") as file:
        start = file.read(max(map(len, OURS)))
    if not start.startswith(OURS):
        raise OutputError(
            f"An export in C writes {beside.name} beside {path.name}, over an earlier export only. "
            f"{beside} is a file of another program. Rename it, or export under another name."
        )


def rounded_outputs(description: Description) -> Outputs:
    """What a network answers in float32, to rows in float32."""
    module = to_torch(description)

    def outputs(X: NDArray[Any]) -> Rows:
        rows = torch.from_numpy(np.asarray(X, dtype=np.float32))
        with torch.no_grad():
            found = torch.cat([module(piece) for piece in rows.split(PIECE_ROWS)])
        return np.asarray(found.double().numpy())

    return outputs


def _require_float32(description: Description, kind: str) -> None:
    """Raise ExportError unless every number is one in float32 too."""
    for step in _all_parts(description):
        for name, value in vars(step).items():
            numbers = np.array([value]) if isinstance(value, float) else value
            if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
                continue
            with np.errstate(over="ignore"):
                rounded = numbers.astype(np.float32)
            if not np.isfinite(rounded).all() or (numbers.any() and not rounded.any()):
                raise ExportError(
                    f"{kind} holds numbers of float32. {name.capitalize()} of this model are up to "
                    f"{np.abs(numbers).max():.3g}, which is none. Scale the features or the target."
                )


def _all_parts(description: Description) -> list[Any]:
    """Steps, with those of a table one by one."""
    parts: list[Any] = (
        [] if description.encode is None else [part for _, part in description.encode.parts]
    )
    return [*parts, *(step for step in description.steps if not isinstance(step, Encode))]


def _about(description: Description, dtype: str, version: str) -> list[str]:
    """Lines for the top of a file."""
    task, k = description.facts["task"], description.answer.n_outputs
    kind = "classes" if isinstance(description.answer, ClassAnswer) else "outputs"
    return [
        f"Written by protopinv {version}.",
        f"A network for {task}: {description.n_inputs} inputs, {k} {kind}, in {dtype}.",
        f"{description.operations} operations for a row.",
    ]


def _metadata(description: Description) -> dict[str, str]:
    """What an ONNX file says of itself, as JSON."""
    found = {name: str(value) for name, value in description.facts.items()}
    if description.feature_names is not None:
        found["feature_names"] = json.dumps(list(description.feature_names))
    if isinstance(description.answer, ClassAnswer):
        found["classes"] = json.dumps(description.answer.labels.tolist())
    return {**found, "opset": str(OPSET)}
