"""The header of a file from a stranger: looked at before anything else of it is.

A safetensors file begins with the length of a JSON object, which says of every tensor its type, its
shape and where it lies, and under ``__metadata__`` holds texts: one of them is our own header.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protopinv.errors import ModelFileError
from protopinv.files import is_file

FORMAT = "protopinv"
# A reader of 1.x reads every 1.y: what a file needs beyond the first of them it lists by name.
MAJOR, MINOR = 1, 0
KNOWN_NEEDS = ("table", "memory", "last_bank")
# All text of a file; larger headers are for larger models than these.
MOST_HEADER_BYTES = 2 * 2**20
MOST_DIMENSIONS = 4
MOST_DEPTH = 32
# Numbers that become objects of Python, one by one.
MOST_LISTED = 2**20
# What these must be, whatever else is in the file.
FIXED = {"stem.image_shape": ("I64", [3]), "stem.pool": ("I64", [])}
# Every name a tensor may have.
NAMES = re.compile(
    r"(last_)?bank\.(inputs|hidden\.\d{1,2}|outputs|raw_ridge|learnable_ridge|scale)"
    r"|features\.(mean|scale|basis)"
    r"|network\.\d{1,2}(\.(left|right))?(\.(scale|bias))?"
    r"|(squash|clip)\.(chosen|centre|width)"
    r"|stem\.(image_shape|pool|\d{1,2}\.(filters|floor))"
    r"|table\.\d{1,5}\.(levels|averages|vectors)|table\.values"
    r"|memory\.(group|rows|mass|mean|scatter|basis|tail_mean|tail_scatter)"
    r"|examples\.(rows|outputs)"
    r"|history\.(loss|lr|ridge|validation_score|validation_loss|member_loss|fold_loss)"
)
# What reading numbers that do not belong together may raise.
DAMAGE = (KeyError, TypeError, IndexError, ValueError, RuntimeError, ArithmeticError, MemoryError)
BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}


def read_header(path: Path) -> dict[str, Any]:
    """Our header; ModelFileError unless file, names, types, shapes and places hold together."""
    if not is_file(path):
        raise ModelFileError(f"A model file must exist. There is none at {path}. Check the path.")
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise ValueError("it is cut off")
            if length > MOST_HEADER_BYTES:
                raise ValueError(f"its header has {length:,} bytes")
            outer = _object(file.read(length).decode())
        texts = outer.pop("__metadata__", {})
        if not isinstance(texts, dict) or not all(isinstance(t, str) for t in texts.values()):
            raise ValueError("its texts are not texts")
        header = _object(texts[FORMAT]) if FORMAT in texts else None
        if header is not None:
            _check_tensors(outer, size - 8 - length)
    except (ValueError, OSError, RecursionError) as error:
        raise ModelFileError(
            f"A model file must be whole and in safetensors format. {path} is not ({error}). "
            "Copy it again, or train and save the model again."
        ) from error
    if header is None:
        raise ModelFileError(
            f"A model file must come from protopinv. {path} is a safetensors file of another "
            "program. Give a file written by 'protopinv train' or save()."
        )
    return header


def check_version(header: Mapping[str, Any], path: Path) -> None:
    """Raise ModelFileError unless this version can read the file."""
    version, needs = header.get("format"), header.get("needs")
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", version) if isinstance(version, str) else None
    writer = str(header.get("written_by"))[:60]
    if match is None:
        raise ModelFileError(
            f"A model file must say which format it has. {path}, written by {writer}, does not: "
            "it is older than format 1.0, or damaged. Train the model again."
        )
    major = int(match[1])
    if major != MAJOR:
        raise ModelFileError(
            f"This version reads model files of format {MAJOR}. {path} has format {version}, "
            f"written by {writer}. Upgrade protopinv."
        )
    wanted = needs if isinstance(needs, list) else []
    unknown = [need for need in wanted if not isinstance(need, str) or need not in KNOWN_NEEDS]
    if unknown:
        raise ModelFileError(
            f"This version cannot read all that {path} holds: {str(unknown)[:80]}, written by "
            f"{writer}. Upgrade protopinv."
        )


def _object(text: str) -> dict[str, Any]:
    """A JSON object in which no name appears twice, and every number is one."""
    found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    if not isinstance(found, dict):
        raise ValueError("its header is not an object")
    _check_depth(found)
    json.dumps(found, ensure_ascii=False).encode()  # raises for half a character
    return found


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise ValueError(f"its header is nested more than {MOST_DEPTH} deep")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"its header holds {text[:20]}")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice in its header")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"its header holds {name}")


def _check_tensors(table: dict[str, Any], size: int) -> None:
    """Tensors we know, which fill the file without gap or overlap."""
    end = 0
    for start, stop in sorted(_place(name, entry) for name, entry in table.items()):
        if start != end:
            raise ValueError("tensors overlap, or leave gaps")
        end = stop
    if end != size:
        raise ValueError("it is longer or shorter than its tensors")


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor lies, whose name, type and shape may be what they are."""
    if not NAMES.fullmatch(name):
        raise ValueError(f"a tensor is called {name[:40]!r}")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{name} is not described")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not _whole(shape) or len(shape) > MOST_DIMENSIONS or 0 in shape[1:]:
        raise ValueError(f"the shape of {name} is none")
    if not _whole(place) or len(place) != 2:
        raise ValueError(f"the place of {name} is none")
    if not isinstance(dtype, str) or dtype not in BYTES:
        raise ValueError(f"the type of {name} is none that we know")
    if place[1] - place[0] != math.prod(shape) * BYTES[dtype]:
        raise ValueError(f"{name} is of another size than it says")
    listed = name.startswith("history.")
    if listed and (dtype != "F64" or math.prod(shape) > MOST_LISTED):
        raise ValueError(f"{name} is not in float64, or far too long")
    if name in FIXED and (dtype, shape) != FIXED[name]:
        raise ValueError(f"{name} is of another shape or type than it must be")
    return place[0], place[1]


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        type(number) is int and 0 <= number < 2**48 for number in numbers
    )
