"""Model files that were damaged at random, by bytes or by values, and what loading says."""

import json
import math
import resource
import struct
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from protopinv import load
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name
from protopinv.bench.record import Cell, Record, Say
from protopinv.errors import DataError, ModelFileError
from protopinv.estimators.saving import saved_model
from protopinv.export import describe
from protopinv.export.card import card

WIDE = {"F64": 8, "I64": 8, "F32": 4}
GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
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


@dataclass(frozen=True)
class FuzzPlan:
    """How many files, and the seed."""

    files: int = 200_000
    seed: int = 0
    quick: bool = False


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """The same file with something changed."""
    how = random.integers(7)
    if how == 0:
        return _bytes_changed(content, random)
    if how == 1:
        return content[: random.integers(len(content))]
    if how == 2:
        return _numbers_changed(content, random)
    if how == 3:
        return _shapes_changed(content, random)
    return _values_changed(content, random, inner=bool(how >= 5))


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
        if random.random() < 0.15:
            del tree[key]
        else:
            tree[key] = deepcopy(ODD[random.integers(len(ODD))])
        return


def tried(content: bytes, path: Path) -> bool:
    """Whether a file loads; ModelFileError is what else may come, and nothing more.

    What loads must be of use: it predicts, is described, and has a card.
    """
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = load(path)
        except ModelFileError:
            return False
        saved = saved_model(model)
        describe(saved)
        card(saved, "m", "1")
        with suppress(DataError):  # numbers that overflow are told
            model.predict(np.zeros((2, model.n_features_in_)))
    return True


def measure_fuzz(
    plan: FuzzPlan, *, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """All of it in this process, whose memory is watched."""
    name = record_name("fuzz", "cpu", quick=plan.quick)
    record = Record(folder, name, asdict(plan), "cpu", fresh=fresh, say=say)
    record.cell("files", lambda: _fuzz(plan, say))
    record.finish()
    return record


def _fuzz(plan: FuzzPlan, say: Say) -> Cell:
    random = np.random.default_rng(plan.seed)
    contents = [path.read_bytes() for path in sorted(GOLDEN.glob("*.safetensors"))]
    with TemporaryDirectory() as place:
        path = Path(place) / "m.safetensors"
        for content in contents:
            if not tried(content, path):
                raise AssertionError("files that were not damaged must load")
        before = peak_memory()
        began, loaded = time.perf_counter(), 0
        for number in range(plan.files):
            loaded += tried(mutated(contents[number % len(contents)], random), path)
            if number % 20_000 == 0:
                say(f"{number} files, {loaded} of them loaded")
        left = sorted(each.name for each in Path(place).iterdir())
    return {
        "files": plan.files,
        "kinds": len(contents),
        "loaded": loaded,
        "refused": plan.files - loaded,
        "largest_file": max(map(len, contents)),
        "more_memory_bytes": peak_memory() - before,
        "files_left_behind": left != ["m.safetensors"],
        "seconds": time.perf_counter() - began,
    }


def peak_memory() -> int:
    """Of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz_table(record: Mapping[str, Any]) -> list[str]:
    """One line."""
    cell = record["cells"]["files"]
    memory = f"{cell['more_memory_bytes'] / 2**20:.1f} MB"
    row = [f"{cell['files']:,}", f"{cell['refused']:,}", f"{cell['loaded']:,}", memory]
    return markdown(["damaged files", "refused", "loaded all the same", "more memory"], [row])
