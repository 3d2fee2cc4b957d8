"""C99 in float32 or int8: one file, its header, and a program of stored cases.

It needs nothing but math.h, and has no memory but static buffers. A step or a part of a table is a
call of a function in ``assets/functions.c``; those that are called go into the file.
"""

import re
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ExportError
from protopinv.export.description import Description
from protopinv.export.entry import Looked, Scaled
from protopinv.export.quantise import Layer, Quantised
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    Convolve,
    Encode,
    Pick,
    Rise,
    Shift,
    Step,
    Sum,
    no_case,
    sizes_of,
)
from protopinv.export.text import c_numbers, identifier, rendered
from protopinv.tables import Category
from protopinv.tables.parts import Curve, Filled, Flag, Look, Part, Wave, Week

# The files by how their names end, and the template of each.
FILES = {".c": "model.c", ".h": "model.h", "_test.c": "model_test.c"}
# Activations that math.h has.
LIBRARY = {"tanh": "tanhf", "cos": "cosf"}
TYPES = {
    "float64": "float",
    "float32": "float",
    "int64": "int",
    "int32": "int32_t",
    "int8": "int8_t",
    "uint8": "unsigned char",
}
# Rows of the stored cases, and by how much of the largest output they may be off in float32.
CASES, TOLERANCE = 8, 2e-4
# Names of so many columns are listed.
MOST_NAMES = 200


def write_c(
    description: Description, stem: str, about: Sequence[str], quantised: Quantised | None = None
) -> tuple[dict[str, str], tuple[int, int]]:
    """The texts of all files by how their names end; flash and memory beside the code, in bytes.

    The network is in float32, or as it was quantised; ``stem`` is the name of its files.
    """
    name, program, encode = identifier(stem), _Program(), description.encode
    if quantised is None:
        _float32(program, description)
    else:
        _int8(program, quantised, description.model.n_features)
    if description.bounds is not None:
        program.constant("low", description.bounds[0])
        program.constant("high", description.bounds[1])
    calls = "\n".join(program.calls)
    values = {
        "name": name,
        "stem": stem,
        "about": about,
        "task": description.model.task,
        "n": description.model.n_features,
        "k": description.n_outputs,
        "is_int8": quantised is not None,
        "n_scales": 0 if quantised is None else len(quantised.output_scale),
        "is_frame": encode is not None,
        "is_bounded": description.bounds is not None,
        "labels": program.strings("classes", description.labels or []),
        "categories": {
            number: program.strings(f"the categories of {column.name!r}", column.values)
            for number, column in enumerate([] if encode is None else encode.table.columns)
            if isinstance(column, Category)
        },
        "columns": _columns(description, name),
        "arrays": "\n".join(program.texts),
        "functions": "\n\n".join(_called(calls)),
        "calls": calls,
        "constant_bytes": program.constant_bytes,
        "static_bytes": program.static_bytes,
        **_cases(description, quantised),
    }
    texts = {end: rendered("protopinv.export", file, **values) for end, file in FILES.items()}
    return texts, (program.constant_bytes, program.static_bytes)


class _Program:
    """Constants, static buffers and calls of a C file, and the bytes they take."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: list[str] = []
        self.constant_bytes = self.static_bytes = 0

    def constant(self, name: str, numbers: NDArray[Any]) -> str:
        """Add an array of constants; gives its name."""
        kind = TYPES[str(numbers.dtype)]
        body = c_numbers(numbers)
        self.texts.append(f"static const {kind} {name}[{numbers.size}] = {{\n{body}\n}};")
        self.constant_bytes += numbers.size * min(4, numbers.itemsize)
        return name

    def buffer(self, name: str, size: int, kind: str = "float") -> str:
        """Add a static buffer unless it is empty; gives its name."""
        if size:
            self.texts.append(f"static {kind} {name}[{size}];")
            self.static_bytes += size * (4 if kind == "float" else 1)
        return name

    def strings(self, what: str, values: Sequence[Any]) -> list[str]:
        """Names as strings, each with a pointer of 32 bits; ExportError where C would cut one."""
        texts = [str(value) for value in values]
        if any("\0" in text for text in texts):
            raise ExportError(
                f"Names of {what} end in C where they have a zero byte. One of this model has one. "
                "Export to another format, or rename it."
            )
        self.constant_bytes += sum(len(text.encode()) + 1 + 4 for text in texts)
        return texts

    def call(self, function: str, /, *places: str, **values: Any) -> None:
        """Add a call: places, then arrays as constants, numbers and names as they are."""
        number = len(self.calls)
        arguments = list(places)
        for name, value in values.items():
            if value is None:
                arguments.append("0")
            elif isinstance(value, str):
                arguments.append(value)
            elif np.ndim(value):
                arguments.append(self.constant(f"{name}_{number}", np.asarray(value)))
            else:
                arguments.append(c_numbers(np.asarray(value)).strip())
        self.calls.append(f"    {function}({', '.join(arguments)});")


def _float32(program: _Program, description: Description) -> None:
    """Calls from the row to the outputs, and the buffers between."""
    widths: dict[str, int] = {}
    _chain(program, description.steps, description.model.n_features, ("x", "buffer"), widths)
    for name, width in widths.items():
        program.buffer(name, width)


def _chain(
    program: _Program,
    steps: Sequence[Step],
    n_inputs: int,
    places: tuple[str, str],
    widths: dict[str, int],
    end: str = "outputs",
) -> None:
    """Calls from one place to the end, between two buffers that take turns."""
    here, name = places
    *_, last = steps
    for step, (n, m) in zip(steps, pairwise(sizes_of(steps, n_inputs)), strict=True):
        if isinstance(step, Activate):
            function = LIBRARY.get(step.name, step.name)
            program.call("activate", here, n=n, function=function)
            continue
        there = end if step is last else f"{name}_{int(here == f'{name}_0')}"
        if isinstance(step, Sum):
            for number, branch in enumerate(step.branches):
                part = "part" if number else there
                _chain(program, branch, n, (here, "inner"), widths, part)
                if number:
                    program.call("add", part, there, n=m)
                    widths[part] = m
        else:
            _step(program, step, n, here, there)
        if step is not last:
            widths[there] = max(widths.get(there, 0), m)
        here = there


def _step(program: _Program, step: Step, n: int, here: str, there: str) -> None:
    match step:
        case Encode():
            at = 0
            for column, part in step.parts:
                _part(program, part, f"x[{column}]", f"{there} + {at}")
                at += part(np.zeros(1)).shape[1]  # as many numbers as it gives for any row
        case Pick():
            program.call("pick", here, there, used=_mask(step.columns, n), n=n)
        case Shift():
            program.call("shift", here, there, centre=step.centre, n=n)
        case Bend():
            (columns,) = step.chosen.nonzero(as_tuple=True)
            centre, width = step.centre[columns], step.width[columns]
            bent = {"column": columns, "centre": centre, "width": width, "chosen": len(columns)}
            program.call(step.kind, here, there, n=n, **bent)
        case Rise():
            ends = {"raw": step.raw, "column": step.column, "low": step.low, "high": step.high}
            counts = {"n_raw": len(step.raw), "n_steps": len(step.column)}
            program.call("rise", here, there, **ends, **counts)
        case Affine():
            blocks, n_in, n_out = step.weight.shape
            weights = {"weight": step.weight, "bias": step.bias if step.has_bias else None}
            program.call("affine", here, there, **weights, blocks=blocks, n=n_in, m=n_out)
        case Convolve():
            filters, channels, size, _ = step.filters.shape
            down, across = step.inner
            contrast = program.buffer(f"contrast_{len(program.calls)}", down * across)
            shape = {"filters": filters, "channels": channels, "size": size}
            sides = {"height": step.height, "width": step.width}
            layout = {"channels_last": int(step.channels_last), "pool": step.pool}
            weights = {"weight": step.filters, "smallest": step.floor}
            program.call("convolve", here, there, contrast, **weights, **shape, **sides, **layout)
        case _:
            raise no_case("C", step)


def _part(program: _Program, part: Part, x: str, there: str) -> None:
    match part:
        case Curve():
            arrays = {"levels": part.levels, "averages": part.averages}
            program.call("curve", x, there, **arrays, n=len(part.levels), k=part.averages.shape[1])
        case Look():
            n, k = part.vectors.shape
            program.call("look", x, there, vectors=part.vectors, n=n - 2, k=k)
        case Filled() | Flag() | Wave() | Week():  # numbers, in the order of the fields
            program.call(type(part).__name__.lower(), x, there, **vars(part))


def _mask(columns: Any, n: int) -> NDArray[np.uint8]:
    """A bit for each feature, the first one lowest."""
    return np.packbits(np.isin(np.arange(n), columns), bitorder="little")


def _int8(program: _Program, quantised: Quantised, n: int) -> None:
    """Calls from the row to the outputs as whole numbers."""
    widths = [0, 0]
    for number, branch in enumerate(quantised.branches):
        at = 0
        for piece in branch.entry.pieces:
            _enter(program, piece, f"buffer_0 + {at}" if at else "buffer_0", n)
            at += len(piece.columns)
        widths[0] = max(widths[0], at)
        for place, layer in enumerate(branch.layers):
            here, there = place % 2, (place + 1) % 2
            if layer.is_last:
                _layer(program, layer, here, "outputs", adds=int(number > 0))
            else:
                _layer(program, layer, here, f"buffer_{there}")
                widths[there] = max(widths[there], len(layer.bias))
    for number, width in enumerate(widths):
        program.buffer(f"buffer_{number}", width, "int8_t")
    program.constant("scale", quantised.output_scale)


def _enter(program: _Program, piece: Scaled | Looked, there: str, n: int) -> None:
    """A call from columns of the row to whole numbers."""
    columns = piece.columns
    if isinstance(piece, Looked):
        n_inputs, n_starts = len(columns), piece.starts.shape[1]
        scale = {"column": columns, "centre": piece.centre, "width": piece.width}
        each = int(len(piece.starts) > 1)
        program.call(
            *("enter_bent", "x", there),
            **scale,
            starts=piece.starts,
            each=each,
            n_starts=n_starts,
            n=n_inputs,
        )
    elif (np.diff(columns) > 0).all():
        each = bool(np.ptp(piece.middle) or np.ptp(piece.factor))
        some = slice(None) if each else slice(1)
        used = None if len(columns) == n else _mask(columns, n)
        scale = {"middle": piece.middle[some], "factor": piece.factor[some]}
        program.call("enter", "x", there, used=used, **scale, each=int(each), n=n)
    else:
        program.call("enter_steps", "x", there, **vars(piece), n=len(columns))


def _layer(program: _Program, layer: Layer, here: int, there: str, **adds: int) -> None:
    """A call of a layer, or of the last one."""
    blocks, n_in, n_out = layer.weights.shape
    numbers = {
        "weight": layer.weights.swapaxes(1, 2),  # inputs of a unit next to each other
        "bias": layer.bias,
        "multiplier": layer.multiplier,
        "shift": layer.shift.astype(np.uint8),
    }
    shape, place = {"n": n_in, "m": n_out}, f"buffer_{here}"
    if layer.is_last:
        program.call("last_layer", place, there, **numbers, **shape, **adds)
        return
    ends = {"zero": layer.zero, "lowest": layer.lowest, "table": layer.table}
    program.call("layer", place, there, **numbers, blocks=blocks, **shape, **ends)


def _called(calls: str) -> list[str]:
    """The functions that are called, and those that they call, in the order of the library."""
    library = resources.files("protopinv.export") / "assets/functions.c"
    text, called = calls, list[str]()
    for function in reversed(library.read_text(encoding="ascii").strip().split("\n\n")):
        (name,) = re.findall(r"^static .*?(\w+)\(", function, flags=re.MULTILINE)
        if re.search(rf"\b{name}\(|, {name}\)", text):
            text += function
            called.insert(0, function)
    return called


def _columns(description: Description, name: str) -> list[tuple[str, str]]:
    """The name of every column, and what to pass for it; nothing if they are too many."""
    encode, names = description.encode, description.model.used_names or ()
    if encode is None:
        return [(column, "") for column in names] if len(names) <= MOST_NAMES else []
    columns = []
    for number, (column, origin) in enumerate(encode.columns):
        kind = {
            "number": "a number",
            "text": "a number, as table_.codes has it",
            "category": f'a category: {name}_code({number}, "...")',
            "date": f"a date: days since {np.datetime64(int(origin), 'D')}",
        }[column.kind]
        columns.append((column.name, f": {kind}"))
    return columns


def _cases(description: Description, quantised: Quantised | None) -> dict[str, Any]:
    """Rows, their outputs, and by how much these may be off."""
    rows = description.examples[:CASES].astype(np.float32)
    n_cases = len(rows)
    if not n_cases:  # an array of C is not empty
        rows = np.zeros((1, description.model.n_features), dtype=np.float32)
    expected = description.outputs(rows) if quantised is None else quantised.outputs(rows)
    tolerance = 0.0 if quantised is not None else TOLERANCE
    allowed = tolerance * np.abs(expected[:n_cases]).max(axis=0, initial=0.0)
    return {"n_cases": n_cases, "cases": rows, "expected": expected, "allowed": allowed}
