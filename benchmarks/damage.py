"""Model files with something changed at random: bytes, numbers, shapes, or values of the header."""

import json
import math
import struct
from copy import deepcopy
from typing import Any

import numpy as np

WIDE = {"F64": 8, "I64": 8, "F32": 4}
NUMPY = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I8": "i1", "U8": "u1", "BOOL": "?"}
ODD_NUMBERS = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    -3.0,
    1e-308,
    1e-30,
    1e6,
    1e19,
    1e30,
    -1e38,
    1e150,
    1e308,
)
# What a value may become that is of its own kind.
ALIKE: dict[type, tuple[Any, ...]] = {
    bool: (True, False),
    int: (0, 1, 2, 3, 5, 6, 12, -1, 100, 2**31, 2**53, 2**63),
    float: (0.0, 1.0, -1.0, 0.5, 1e-300, 1e-9, 1e9, 1e30, 1e150, 1e300, -1e300),
    str: (
        "",
        "x",
        "auto",
        "none",
        "a\x1b[31mb",
        "relu",
        "cos",
        "identity",
        "number",
        "interrupted",
    ),
}
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, -1e-308),
    *(
        "",
        "x",
        "auto",
        "none",
        "float64",
        "<f8",
        "|O",
        "../..",
        "\x00",
        "9" * 400,
        "classification",
    ),
    *([], [0], [1, 2], [[]], [None], {}, {"a": 1}, [0] * 100, "\ud800", "[" * 50),
)


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """The same file with something changed."""
    how = random.integers(9)
    if how == 0:
        return _bytes_changed(content, random)
    if how == 1:
        return content[: random.integers(len(content))]
    if how == 2:
        return _numbers_changed(content, random)
    if how == 3:
        return _shapes_changed(content, random)
    if how == 4:
        return _entries_changed(content, random)
    return _values_changed(content, random, inner=bool(how >= 6))


def _bytes_changed(content: bytes, random: np.random.Generator) -> bytes:
    changed = bytearray(content)
    (length,) = struct.unpack("<Q", content[:8])
    # half of them within the header, where it hurts more
    end = len(content) if random.random() < 0.5 else min(len(content), 8 + length)
    for place in random.integers(0, end, random.integers(1, 9)):
        changed[place] = random.integers(256)
    return bytes(changed)


def _parts(content: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def _joined(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _numbers_changed(content: bytes, random: np.random.Generator) -> bytes:
    """One tensor has numbers of another kind in it."""
    header, data = _parts(content)
    names = [name for name in header if name != "__metadata__"]
    start, stop = header[names[random.integers(len(names))]]["data_offsets"]
    fill = [b"\xff", b"\x00", b"\x7f\xf0"[::-1], b"\x01"][random.integers(4)]
    body = (fill * (stop - start))[: stop - start]
    return _joined(header, data[:start] + body + data[stop:])


def _entries_changed(content: bytes, random: np.random.Generator) -> bytes:
    """Some numbers of a tensor are odd ones, of its own type."""
    header, data = _parts(content)
    names = [name for name in header if name != "__metadata__"]
    entry = header[names[random.integers(len(names))]]
    start, stop = entry["data_offsets"]
    numbers = np.frombuffer(data[start:stop], dtype=NUMPY.get(entry["dtype"], "u1")).copy()
    if len(numbers):
        places = random.integers(0, len(numbers), random.integers(1, 4))
        with np.errstate(over="ignore", invalid="ignore"):
            odd = np.array(ODD_NUMBERS)[random.integers(0, len(ODD_NUMBERS), len(places))]
            is_whole = numbers.dtype.kind in "iub"
            numbers[places] = odd.clip(-(2**62), 2**62) if is_whole else odd
    return _joined(header, data[:start] + numbers.tobytes() + data[stop:])


def _shapes_changed(content: bytes, random: np.random.Generator) -> bytes:
    """Some tensors have another shape or type, and the file is laid out anew to hold them."""
    header, data = _parts(content)
    bodies = {
        name: data[slice(*entry["data_offsets"])]
        for name, entry in header.items()
        if name != "__metadata__"
    }
    names = list(bodies)
    for _ in range(random.integers(1, 4)):
        name = names[random.integers(len(names))]
        entry = header[name]
        if random.random() < 0.3:
            entry["dtype"] = ["F64", "F32", "I8", "BOOL", "I64"][random.integers(5)]
        if random.random() < 0.8:
            odd = [0, 1, 2, 3, 7, 2**20, 2**33, 2**47]
            shape = [*entry["shape"]] or [1]
            shape[random.integers(len(shape))] = odd[random.integers(len(odd))]
            if random.random() < 0.4:
                shape.append(odd[random.integers(3)])
            entry["shape"] = shape
        size = math.prod(entry["shape"]) * WIDE.get(entry["dtype"], 1)
        bodies[name] = (bodies[name] * 2 + bytes(64) * 2000)[: min(size, 100_000)]
    at, body = 0, b""
    for name, raw in bodies.items():
        header[name]["data_offsets"] = [at, at + len(raw)]
        at, body = at + len(raw), body + raw
    return _joined(header, body)


def _values_changed(content: bytes, random: np.random.Generator, *, inner: bool) -> bytes:
    """Some values of the header are odd ones, or gone."""
    header, data = _parts(content)
    described = json.loads(header["__metadata__"]["protopinv"])
    tree = described if inner else header
    for _ in range(random.integers(1, 4)):
        _change_somewhere(tree, random)
    if inner:
        header["__metadata__"]["protopinv"] = json.dumps(described)
    return _joined(header, data)


def _change_somewhere(tree: Any, random: np.random.Generator) -> None:
    """Walk down at random, and change what is there."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = keys[random.integers(len(keys))]
        below = tree[key]
        if isinstance(below, dict | list) and below and random.random() < 0.8:
            tree = below
            continue
        alike = ALIKE.get(type(below))
        if random.random() < 0.15:
            del tree[key]
        elif alike is not None and random.random() < 0.5:
            tree[key] = alike[random.integers(len(alike))]
        else:
            tree[key] = deepcopy(ODD[random.integers(len(ODD))])
        return
