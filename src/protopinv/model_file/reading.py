"""The header of a file from a stranger: looked at before anything else of it is.

A safetensors file begins with the length of a JSON object, which says of every tensor its type, its
shape and where it lies, and under ``__metadata__`` holds texts: one of them is our own header.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

from protopinv.errors import ModelFileError

FORMAT = "protopinv"
# All text of a file; larger headers are for larger models than these.
MOST_HEADER_BYTES = 2 * 2**20
MOST_DIMENSIONS = 4
# Every name a tensor may have.
NAMES = re.compile(
    r"bank\.(inputs|hidden\.\d{1,2}|outputs|raw_ridge|learnable_ridge|scale)"
    r"|features\.(mean|scale|basis)"
    r"|network\.\d{1,2}(\.(left|right))?(\.(scale|bias))?"
    r"|(squash|clip)\.(chosen|centre|width)"
    r"|stem\.(image_shape|pool|\d{1,2}\.(filters|floor))"
    r"|examples\.(rows|outputs)"
    r"|history\.(loss|lr|ridge|validation_score|validation_loss)"
)
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
    if not path.is_file():
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


def _object(text: str) -> dict[str, Any]:
    """A JSON object in which no name appears twice, and every number is one."""
    found = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    if not isinstance(found, dict):
        raise ValueError("its header is not an object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice in its header")
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"its header holds {name}")


def _check_tensors(table: dict[str, Any], size: int) -> None:
    """Names we know, types and shapes that fill the file without gap or overlap."""
    places = []
    for name, entry in table.items():
        if not NAMES.fullmatch(name):
            raise ValueError(f"a tensor is called {name[:40]!r}")
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"{name} is not described")
        shape, place = entry["shape"], entry["data_offsets"]
        if not _whole(shape) or len(shape) > MOST_DIMENSIONS:
            raise ValueError(f"the shape of {name} is none")
        if not _whole(place) or len(place) != 2:
            raise ValueError(f"the place of {name} is none")
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in BYTES:
            raise ValueError(f"the type of {name} is none that we know")
        if place[1] - place[0] != math.prod(shape) * BYTES[entry["dtype"]]:
            raise ValueError(f"{name} is of another size than it says")
        places.append(place)
    end = 0
    for start, stop in sorted(places):
        if start != end:
            raise ValueError("tensors overlap, or leave gaps")
        end = stop
    if end != size:
        raise ValueError("it is longer or shorter than its tensors")


def _whole(numbers: Any) -> bool:
    return isinstance(numbers, list) and all(
        type(number) is int and 0 <= number < 2**48 for number in numbers
    )
