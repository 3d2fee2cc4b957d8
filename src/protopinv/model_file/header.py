"""The header of a model file, which may be a stranger's: read and checked before anything else.

A safetensors file begins with the length of a JSON object, which says of every tensor its type, its
shape and where it lies, and under ``__metadata__`` holds texts: one of them is our own header. All
of this is without torch, so that the summary of a file and its loading check the same.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from protopinv.errors import ModelFileError
from protopinv.files import is_file
from protopinv.model_file.rules import OBJECTIVES, check_values
from protopinv.plain import MOST_VALUES, UnfitError, n_values, strict_json, visible

FORMAT = "protopinv"
# A reader of 1.x reads every 1.y: what a file needs beyond the first of them it lists by name.
MAJOR, MINOR = 1, 2
KNOWN_NEEDS = ("table", "memory", "last_bank", "long", "ngrams", "steps", "ensemble")
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
# Further models of an ensemble have tensors of their own, behind their number.
OTHER = r"([1-9]\d?\.)?"
# Every name a tensor may have, with the types of its numbers and how many dimensions it has.
TENSORS: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = (
    (OTHER + r"(last_)?bank\.(inputs|hidden\.\d{1,2}|outputs)", FLOATS, (3,)),
    (OTHER + r"(last_)?bank\.(raw_ridge|scale)", FLOATS, (2,)),
    (OTHER + r"(last_)?bank\.learnable_ridge", ("BOOL",), (2,)),
    (OTHER + r"steps\.(raw|column)", ("I64",), (1,)),
    (OTHER + r"steps\.(low|high|mean|scale)", ("F64",), (1,)),
    (OTHER + r"steps\.inside", ("F64",), (2,)),
    (r"features\.(mean|scale)", ("F64",), (1,)),
    (r"features\.basis", ("F64",), (2,)),
    (OTHER + r"network\.\d{1,2}(\.(left|right))?", ("F64", "F32", "F16", "I8"), (2, 3)),
    (OTHER + r"network\.\d{1,2}\.bias", ("F32",), (1, 2)),
    (OTHER + r"network\.\d{1,2}(\.(left|right))?\.scale", ("F32",), (2, 3)),
    (r"(squash|clip)\.chosen", ("BOOL",), (1,)),
    (r"(squash|clip)\.(centre|width)", ("F64",), (1,)),
    (r"stem\.image_shape", ("I64",), (1,)),
    (r"stem\.pool", ("I64",), (0,)),
    (r"stem\.\d{1,2}\.filters", ("F32",), (4,)),
    (r"stem\.\d{1,2}\.floor", ("F32",), (0,)),
    (r"table\.\d{1,6}\.(levels|direction)", ("F64",), (1,)),
    (r"table\.\d{1,6}\.(averages|vectors)", ("F64",), (2,)),
    (r"table\.values|long\.[a-z_]{1,20}", ("U8",), (1,)),
    (r"memory\.group", ("I64",), (1,)),
    (r"memory\.(rows|mass)", ("F64",), (1,)),
    (r"memory\.(mean|scatter|basis|tail_mean|tail_scatter)", ("F64",), (2,)),
    (r"examples\.rows", tuple(BYTES), (2,)),
    (r"examples\.outputs", ("F64",), (2,)),
    (OTHER + r"history\.(loss|lr|validation_score|validation_loss)", ("F64",), (1,)),
    (OTHER + r"history\.(ridge|member_loss|fold_loss)", ("F64",), (1, 2)),
)
_NAMES = re.compile("|".join(f"(?P<k{place}>{name})" for place, (name, _, _) in enumerate(TENSORS)))
# What reading numbers that do not belong together may raise.
DAMAGE: tuple[type[Exception], ...] = (LookupError, TypeError, ValueError, AttributeError)
DAMAGE += (RuntimeError, ArithmeticError, MemoryError, OSError, SafetensorError)


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
        check_values(header)
    if header["task"] not in OBJECTIVES:
        raise ModelFileError(
            f"This version reads models for {', '.join(OBJECTIVES)}. {path} holds one for "
            f"{visible(repr(header['task']))[:60]}. Upgrade protopinv."
        )
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


def by_part(named: Mapping[str, Any]) -> defaultdict[str, dict[str, Any]]:
    """What belongs to each tensor, by the part of the model and the name in it."""
    parts: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in named.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = value
    return parts


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
    listed = [place for name, place in places.items() if "history." in name]
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
    match = _NAMES.fullmatch(name)
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
