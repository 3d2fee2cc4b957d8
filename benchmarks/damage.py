"""Small model files of every kind, and damage at random: to bytes, numbers, shapes, the header."""

import json
import math
import struct
import warnings
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from protopinv import ConvStem, ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.errors import NotLearnedWarning

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
SMALL: dict[str, Any] = {
    "n_prototypes": 6,
    "hidden_sizes": 5,
    "max_epochs": 3,
    "n_members": 1,
    "early_stopping": False,
    "random_state": 0,
}

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


def kinds() -> dict[str, bytes]:
    """Golden files, and files that only newer versions write, by name."""
    files = {path.stem: path.read_bytes() for path in sorted(GOLDEN.glob("*.safetensors"))}
    with TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", NotLearnedWarning)  # three epochs are few
        path = Path(place) / "m.safetensors"
        for name, (model, options) in _models().items():
            model.save(path, **options)
            files[name] = path.read_bytes()
    return files


def _models() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Models that keep a memory, and how they are saved."""
    random = np.random.default_rng(0)
    X = random.normal(size=(120, 5)).round(3)
    X[:, 1] = np.exp(2 * X[:, 1])
    classes = (X[:, 0] > 0).astype(int) + (X[:, 2] > 1)
    labels = (X[:, :2] > 0.5).astype(int)
    number, numbers = X[:, 0] * 10, X[:, :2] * 3
    again = _classifier(memory=90).fit(X, classes)
    for part in (slice(0, 40), slice(40, 80)):
        again.partial_fit(X[part], classes[part])
    again.freeze(2)
    images = random.integers(0, 255, size=(60, 8, 8)).astype(np.uint8)
    stem = ConvStem(filters=3, patch=3, pool=2)
    return {
        "memory": (_classifier().fit(X, classes), {}),
        "memory cut": (again, {}),
        "average of calls": (_twice(X, classes), {"examples": True}),
        "memory of labels": (_classifier().fit(X, labels), {}),
        "bounds": (_regressor().fit(X, number), {}),
        "bounds, float16": (_regressor().fit(X, number), {"dtype": "float16", "bank": False}),
        "several bounds": (_regressor(scaling="squash").fit(X, numbers), {"dtype": "int8"}),
        "clip": (_classifier(scaling="clip").fit(X, classes), {"examples": True}),
        "projected": (_classifier(projection="pca", n_components=3).fit(X, classes), {}),
        "stem with memory": (
            _classifier(stem=stem).fit(images, np.arange(60) % 3),
            {"dtype": "float32"},
        ),
        "members with memory": (_classifier(n_members=2, hidden_sizes=(4, 3)).fit(X, classes), {}),
        "table": (_classifier().fit(_frame(random), classes), {}),
        "table of numbers": (_regressor().fit(_frame(random), number), {"dtype": "int8"}),
    }


def _classifier(**options: Any) -> ProtoPINVClassifier:
    return ProtoPINVClassifier(**{**SMALL, **options})


def _regressor(**options: Any) -> ProtoPINVRegressor:
    return ProtoPINVRegressor(**{**SMALL, **options})


def _twice(X: Any, y: Any) -> ProtoPINVClassifier:
    """A model that is the mean over its calls, and holds the bank of the last."""
    model = _classifier(scaling="feature").fit(X, y)
    for _ in range(2):
        model.partial_fit(X, y)
    return model


def _frame(random: np.random.Generator) -> pl.DataFrame:
    n = 120
    return pl.DataFrame(
        {
            "age": [None if k % 7 == 0 else float(random.integers(18, 60)) for k in range(n)],
            "city": random.choice(["Rome", "Oslo", "Bonn"], n),
            "since": [datetime(2020, 1, 1) + k * timedelta(hours=37) for k in range(n)],
            "id": [f"customer {k}" for k in range(n)],
        }
    )


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """The file with something changed."""
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
