"""The header of a model file, which may be a stranger's: read and checked before anything else.

A safetensors file begins with the length of a JSON object, which says of every tensor its type, its
shape and where it lies, and under ``__metadata__`` holds texts: one of them is our own header. All
of this is without torch, so that a look at a file and its loading ask for the same.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from protopinv.errors import ModelFileError
from protopinv.files import is_file
from protopinv.plain import (
    ANY,
    BOOL,
    COUNT,
    MOST_VALUES,
    NUMBER,
    NUMBERS,
    OBJECT,
    POSITIVE,
    RANGE,
    SIZE,
    TEXT,
    TEXTS,
    Rule,
    UnfitError,
    check,
    list_of,
    n_values,
    one_of,
    or_none,
    strict_json,
    visible,
)
from protopinv.train.config import RegressionLoss

FORMAT = "protopinv"
# A reader of 1.x reads every 1.y: what a file needs beyond the first of them it lists by name.
MAJOR, MINOR = 1, 1
KNOWN_NEEDS = ("table", "memory", "last_bank", "long")
# All text of a header: tensors by the ten thousand. Longer values of ours are tensors themselves.
MOST_HEADER_BYTES = 16 * 2**20
LONG = "long."
MOST_LONG_BYTES = 2**26
# What says how a file is to be read is never one of them.
NEVER_LONG = ("format", "needs", "written_by")
MOST_DIMENSIONS = 4
# Numbers of a history: they become objects of Python, one by one.
MOST_LISTED = 2**21
BYTES = {"F64": 8, "F32": 4, "F16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1}
BYTES |= {"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
FLOATS = ("F64", "F32")
# Every name a tensor may have, with the types of its numbers and how many dimensions it has.
TENSORS: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = (
    (r"(last_)?bank\.(inputs|hidden\.\d{1,2}|outputs)", FLOATS, (3,)),
    (r"(last_)?bank\.(raw_ridge|scale)", FLOATS, (2,)),
    (r"(last_)?bank\.learnable_ridge", ("BOOL",), (2,)),
    (r"features\.(mean|scale)", ("F64",), (1,)),
    (r"features\.basis", ("F64",), (2,)),
    (r"network\.\d{1,2}(\.(left|right))?", ("F64", "F32", "F16", "I8"), (2, 3)),
    (r"network\.\d{1,2}\.bias", ("F32",), (1, 2)),
    (r"network\.\d{1,2}(\.(left|right))?\.scale", ("F32",), (2, 3)),
    (r"(squash|clip)\.chosen", ("BOOL",), (1,)),
    (r"(squash|clip)\.(centre|width)", ("F64",), (1,)),
    (r"stem\.image_shape", ("I64",), (1,)),
    (r"stem\.pool", ("I64",), (0,)),
    (r"stem\.\d{1,2}\.filters", ("F32",), (4,)),
    (r"stem\.\d{1,2}\.floor", ("F32",), (0,)),
    (r"table\.\d{1,6}\.levels", ("F64",), (1,)),
    (r"table\.\d{1,6}\.(averages|vectors)", ("F64",), (2,)),
    (r"table\.values|long\.[a-z_]{1,20}", ("U8",), (1,)),
    (r"memory\.group", ("I64",), (1,)),
    (r"memory\.(rows|mass)", ("F64",), (1,)),
    (r"memory\.(mean|scatter|basis|tail_mean|tail_scatter)", ("F64",), (2,)),
    (r"examples\.rows", tuple(BYTES), (2,)),
    (r"examples\.outputs", ("F64",), (2,)),
    (r"history\.(loss|lr|validation_score|validation_loss)", ("F64",), (1,)),
    (r"history\.(ridge|member_loss|fold_loss)", ("F64",), (1, 2)),
)
NAMES = re.compile("|".join(f"(?P<k{place}>{name})" for place, (name, _, _) in enumerate(TENSORS)))
# What reading numbers that do not belong together may raise.
DAMAGE: tuple[type[Exception], ...] = (LookupError, TypeError, ValueError, AttributeError)
DAMAGE += (RuntimeError, ArithmeticError, MemoryError, OSError, SafetensorError)

DTYPES = ("float64", "float32", "float16", "int8")
ENDINGS = ("finished", "stopped early", "interrupted")
# Types of labels, as NumPy writes them.
LABEL_TYPE = re.compile(r"[<>|=]?[biufU]\d{1,9}|\|O")

# What every value of our header may be: its type and its range.
HEADER: dict[str, Rule] = {
    "needs": TEXTS,
    "task": TEXT,
    "objective": OBJECT,
    "feature_names": or_none(TEXTS),
    "activation": TEXT,
    "network_dtype": one_of(*DTYPES),
    "parameters": OBJECT,
    "config": OBJECT,
    "history": OBJECT,
}
# What files of an earlier version may lack.
OPTIONAL: dict[str, Rule] = {
    "target_names": or_none(TEXTS),
    "examples": or_none(one_of("made-up", "training")),
    "image_range": or_none(RANGE),
    "table": or_none(OBJECT),
    "memory": or_none(OBJECT),
    "sharpness": or_none(POSITIVE),
}
# Parameters that are no hyperparameters; the estimators check the others as a fit does.
PARAMETERS: dict[str, Rule] = {
    "columns": or_none(OBJECT),
    "class_weight": ANY,
    "memory": ANY,
    "max_prototypes": ANY,
    "warm_start": ANY,
    "bounded": ANY,
    "device": one_of("auto", "cpu"),
    "random_state": or_none((lambda v: type(v) is int and 0 <= v < 2**32, "a seed")),
    "verbose": ANY,
}
HISTORY: dict[str, Rule] = {
    "seconds": SIZE,
    "ending": one_of(*ENDINGS),
    "best_epoch": or_none(COUNT),
    "kept_epoch": or_none(COUNT),
    "steps": COUNT,
    "skipped_steps": COUNT,
    "rate_cuts": COUNT,
    "events": TEXTS,
}
MEMORY: dict[str, Rule] = {"limit": COUNT, "is_cut": BOOL, "n_frozen": COUNT, "is_closed": BOOL}
OPTIONAL_MEMORY: dict[str, Rule] = {"fitted": SIZE, "n_calls": COUNT}
OBJECTIVES: dict[str, dict[str, Rule]] = {
    "classification": {
        "classes": list_of(lambda v: NUMBER[0](v) or isinstance(v, bool | str), "numbers or texts"),
        "classes_dtype": (
            lambda v: isinstance(v, str) and LABEL_TYPE.fullmatch(v) is not None,
            "a type of labels",
        ),
    },
    "multi-label": {"n_labels": COUNT},
    "regression": {
        "centre": NUMBERS,
        "spread": list_of(POSITIVE[0], "positive numbers"),
        "variance": list_of(SIZE[0], "numbers, 0 or more"),
        "is_column": BOOL,
        "loss": one_of(*get_args(RegressionLoss)),
    },
}
BOUNDS: dict[str, Rule] = {"low": or_none(NUMBERS), "high": or_none(NUMBERS)}


def read_header(path: Path) -> dict[str, Any]:
    """Our header; ModelFileError unless its values and all tensors are described as they must."""
    if not is_file(path):
        raise ModelFileError(f"A model file must exist. There is none at {path}. Check the path.")
    try:
        with path.open("rb") as file:
            header = _header_of(file, path)
    except ModelFileError:
        raise
    except (ValueError, OSError, RecursionError) as error:
        raise broken(path, error) from error
    with fitting_together(path):
        _check_values(header, path)
    return header


def broken(path: Path, error: Exception) -> ModelFileError:
    """The error for a file that is cut off, or not in our format."""
    return ModelFileError(
        f"A model file must be whole and in safetensors format. {path} is not ({error}). "
        "Copy it again, or train and save the model again."
    )


@contextmanager
def fitting_together(path: Path) -> Iterator[None]:
    """Parts that do not belong together are a ModelFileError."""
    try:
        yield
    except ModelFileError:
        raise
    except DAMAGE as error:
        is_ours = isinstance(error, UnfitError)
        why = str(error) if is_ours else f"{type(error).__name__} on {visible(str(error)[:200])}"
        raise ModelFileError(
            f"A model file must fit together. In {path}: {why}. Write the model again."
        ) from error


def _header_of(file: BinaryIO, path: Path) -> dict[str, Any]:
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ValueError("it is cut off")
    if length > MOST_HEADER_BYTES:
        raise ValueError(f"its header has {length:,} bytes")
    outer = _object(file.read(length))
    texts = outer.pop("__metadata__", {})
    if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
        raise ValueError("its texts are not texts")
    if FORMAT not in texts:
        raise ModelFileError(
            f"A model file must come from protopinv. {path} is a safetensors file of another "
            "program. Give a file written by 'protopinv train' or save()."
        )
    header = _object(texts[FORMAT].encode())
    _check_version(header, path)
    places = _places(outer, size - 8 - length)
    return {**header, **_long_values(file, 8 + length, places, header)}


def _object(text: bytes) -> dict[str, Any]:
    value = strict_json(text)
    if not isinstance(value, dict):
        raise ValueError("its header is not an object")
    return value


def _long_values(
    file: BinaryIO, begin: int, places: Mapping[str, tuple[int, int]], header: Mapping[str, Any]
) -> dict[str, Any]:
    """Values of our header that are tensors because they are long, by the rules of the header."""
    long = {name: place for name, place in places.items() if name.startswith(LONG)}
    if sum(stop - start for start, stop in long.values()) > MOST_LONG_BYTES:
        raise ValueError("its long values are far too long")
    values: dict[str, Any] = {}
    budget = MOST_VALUES
    for tensor, (start, stop) in long.items():
        name = tensor.removeprefix(LONG)
        if name in header or name in NEVER_LONG:
            raise ValueError(f"{tensor} is in its header too")
        file.seek(begin + start)
        text = file.read(stop - start)
        budget -= n_values(text)
        if budget < 0:
            raise ValueError(f"its header has more than {MOST_VALUES:,} values")
        values[name] = strict_json(text)
    return values


def _check_version(header: Mapping[str, Any], path: Path) -> None:
    """Raise ModelFileError unless this version can read the file."""
    version, needs = header.get("format"), header.get("needs")
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", version) if isinstance(version, str) else None
    writer = visible(str(header.get("written_by"))[:60])
    if match is None:
        raise ModelFileError(
            f"A model file must say which format it has. {path}, written by {writer}, does not: "
            "it is older than format 1.0, or damaged. Train the model again."
        )
    if int(match[1]) != MAJOR:
        raise ModelFileError(
            f"This version reads model files of format {MAJOR}. {path} has format {version}, "
            f"written by {writer}. Upgrade protopinv."
        )
    unknown = [need for need in needs if need not in KNOWN_NEEDS] if isinstance(needs, list) else ()
    if unknown:
        raise ModelFileError(
            f"This version cannot read all that {path} holds: {visible(str(unknown)[:80])}, "
            f"written by {writer}. Upgrade protopinv."
        )


def _places(table: Mapping[str, Any], size: int) -> dict[str, tuple[int, int]]:
    """Where each tensor lies; all are known to us, and fill the file without gap or overlap."""
    places = {name: _place(name, entry) for name, entry in table.items()}
    listed = [place for name, place in places.items() if name.startswith("history.")]
    if sum(stop - start for start, stop in listed) > MOST_LISTED * BYTES["F64"]:
        raise ValueError("its history is far too long")
    end = 0
    for start, stop in sorted(places.values()):
        if start != end:
            raise ValueError("tensors overlap, or leave gaps")
        end = stop
    if end != size:
        raise ValueError("it is longer or shorter than its tensors")
    return places


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor lies, whose name, type and shape may be what they are."""
    match = NAMES.fullmatch(name)
    if match is None or match.lastgroup is None:
        raise ValueError(f"a tensor is called {visible(name)[:40]!r}")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} is not described")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not _are_counts(shape) or len(shape) > MOST_DIMENSIONS or 0 in shape[1:]:
        raise ValueError(f"tensor {name}: invalid shape {visible(f'{shape!r:.40}')}")
    if not _are_counts(place) or len(place) != 2:
        raise ValueError(f"tensor {name}: invalid data_offsets {visible(f'{place!r:.40}')}")
    if not isinstance(dtype, str) or dtype not in BYTES:
        raise ValueError(f"tensor {name}: unknown dtype {visible(f'{dtype!r:.40}')}")
    if place[1] - place[0] != math.prod(shape) * BYTES[dtype]:
        raise ValueError(f"{name} is of another size than it says")
    _, types, dimensions = TENSORS[int(match.lastgroup[1:])]
    if dtype not in types or len(shape) not in dimensions:
        kinds = {"F": "float", "I": "int", "U": "uint", "B": "bool"}
        words = ", ".join(kinds[each[0]] + each[1:].removeprefix("OOL") for each in types)
        raise ValueError(f"{name} is not in {words}, or has other dimensions")
    if name == "stem.image_shape" and shape != [3]:
        raise ValueError(f"{name} is of another shape than it must be")
    return place[0], place[1]


def _are_counts(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        type(number) is int and 0 <= number < 2**48 for number in numbers
    )


def _check_values(header: Mapping[str, Any], path: Path) -> None:
    """Raise UnfitError for a value that is missing, or of another kind than it must be."""
    check("", header, HEADER, OPTIONAL)
    check("history.", header["history"], HISTORY)
    check("parameters.", header["parameters"], {}, PARAMETERS)
    if header.get("memory") is not None:
        check("memory.", header["memory"], MEMORY, OPTIONAL_MEMORY)
    task, described = header["task"], header["objective"]
    if task not in OBJECTIVES:
        raise ModelFileError(
            f"This version reads models for {', '.join(OBJECTIVES)}. {path} holds one for "
            f"{visible(repr(task))[:60]}. Upgrade protopinv."
        )
    check("objective.", described, OBJECTIVES[task], BOUNDS if task == "regression" else {})
    if task == "classification":
        labels_of(described)
    elif task == "regression":
        _check_targets(described)


def labels_of(described: Mapping[str, Any]) -> NDArray[Any]:
    """Classes as the array they were: sorted, all different, of a type no wider than they are."""
    labels, dtype = described["classes"], described["classes_dtype"]
    if len(labels) < 2:
        raise UnfitError("it has fewer than two classes")
    array = np.array(labels, dtype=object)
    if dtype == "|O":
        if not all(isinstance(label, str) for label in labels):
            raise UnfitError("classes are not all texts, nor all numbers")
    else:
        array = _typed(array, dtype, labels)
    if array.dtype.kind == "f" and any(each % 1 or abs(each) >= 2**63 for each in labels):
        raise UnfitError("classes that are numbers with digits after the point")
    if any(not before < after for before, after in pairwise(labels)):
        raise UnfitError("a class appears twice, or they are not in order")
    return array


def _typed(array: NDArray[Any], dtype: str, labels: list[Any]) -> NDArray[Any]:
    try:
        kind = np.dtype(dtype)
        widest = np.array(labels).dtype if kind.kind == "U" else kind
        if kind.itemsize > widest.itemsize:
            raise UnfitError(f"labels of type {dtype!r:.20}")
        array = array.astype(kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnfitError(f"labels of type {dtype!r:.20}") from error
    if array.tolist() != labels:
        raise UnfitError("labels that are not of their type")
    return array


def _check_targets(described: Mapping[str, Any]) -> None:
    n, low, high = len(described["centre"]), described.get("low"), described.get("high")
    lists = [described["spread"], described["variance"], *(b for b in (low, high) if b is not None)]
    if not n or any(len(each) != n for each in lists):
        raise UnfitError("scales or bounds for other targets")
    if (low is None) != (high is None) or any(
        not a <= b for a, b in zip(low or (), high or (), strict=True)
    ):
        raise UnfitError("bounds of which the lower is above the upper, or is missing")
    if described["is_column"] and n != 1:
        raise UnfitError(f"{n} targets in a single column")
