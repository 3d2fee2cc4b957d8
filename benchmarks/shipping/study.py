"""Exports against Python: predictions, sizes, and speed, each in a cell of a record."""

import ctypes
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.shipping.models import Shipped, digits, mnist, models, tiny_images
from benchmarks.text import markdown
from benchmarks.timing import seconds, timed
from protopinv.errors import ExportError, MissingExtraError
from protopinv.export import describe, quantise
from protopinv.objective import Numbers
from protopinv.optional import require

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
# Rows that whole numbers are calibrated on.
CALIBRATION = 2000
# Seconds between ways that are timed, and calls of each in a row.
REST, CALLS = 0.2, 3
TINY = {"24": (24,), "40": (40,), "64, 32": (64, 32), "128": (128,)}


@dataclass(frozen=True)
class ShippingPlan:
    """All of it, or a quick look."""

    quick: bool = False
    repeats: int = 9


def measure_shipping(plan: ShippingPlan, records: Records) -> Record:
    """Train, export, compile, compare."""
    for name in ("gcc", "node", "size"):
        tool(name)
    record = records.open("shipping", plan=asdict(plan))
    for key, shipped in models(quick=plan.quick).items():
        cell = record.cell(key, partial(_shipped, shipped, plan))
        record.say(f"{key}: {json.dumps(cell)}")
    for key, hidden in TINY.items():
        shipped = tiny_images(hidden, quick=plan.quick)
        cell = record.cell(f"16 x 16/{key}", partial(_tiny, shipped))
        record.say(f"16 x 16, {key}: {json.dumps(cell)}")
    if find_spec("emlearn") is None:
        record.say("emlearn is left out: it is not installed (extra: study)")
    else:
        for key in ("mnist", "digits"):
            record.cell(f"emlearn/{key}", partial(_emlearn, key, plan))
    record.finish()
    return record


def tool(name: str) -> str:
    """The path of a program."""
    path = shutil.which(name)
    if path is None:
        raise MissingExtraError(f"This study runs its exports. {name} is not here. Install it.")
    return path


def _shipped(shipped: Shipped, plan: ShippingPlan) -> Cell:
    X, y, X_test, y_test = shipped.rows()
    fit_seconds, model = timed(partial(shipped.estimator.fit, X, y))
    flat = X_test.reshape(len(X_test), -1)
    cell: Cell = {
        "fit_seconds": fit_seconds,
        "score": float(model.score(X_test, y_test)),
        "layers": list(model.network_.sizes),
        "numbers": model.n_shipped_,
    }
    with TemporaryDirectory() as name:
        place = Path(name)
        for dtype in ("float32", "float16", "int8"):
            path = place / "small.safetensors"
            written = model.export(path, dtype=dtype, X=X_test, y=y_test)
            cell[f"file {dtype}"] = {"bytes": written.file_bytes, **written.change}
        for kind, run in (("onnx", _onnx), ("c", _c), ("mjs", _javascript)):
            outputs = run(model, flat, place)
            cell[kind] = _difference(model, flat, outputs)
            cell[kind]["bytes"] = (place / f"net.{kind}").stat().st_size
        cell["c"] |= _memory(place / "net.c")
        cell["int8"] = _int8(model, X, X_test, y_test, place)
        cell["operations"] = describe(model.model_).operations
        cell["speed"] = _speed(model, flat, place, plan)
    return cell


def _difference(model: Any, X: NDArray[Any], exported: NDArray[Any]) -> dict[str, Any]:
    """Predictions of a format next to those of Python."""
    if isinstance(model.objective_, Numbers):
        ours = model.predict(X).reshape(len(X), -1)
        return {"largest_relative": float(np.abs(exported / ours - 1).max())}
    ours = model.predict_proba(X)
    classes = ours.argmax(1) == exported.argmax(1)
    labels = ((ours > 0.5) == (exported > 0.5)).mean(1) == 1
    same = classes if np.allclose(ours.sum(1), 1) else labels
    return {"largest": float(np.abs(exported - ours).max()), "same_labels": float(same.mean())}


def _onnx(model: Any, X: NDArray[Any], place: Path) -> NDArray[Any]:
    onnxruntime: Any = require("onnxruntime", extra="dev", why="Running ONNX")
    model.export(place / "net.onnx")
    session = onnxruntime.InferenceSession(place / "net.onnx", providers=["CPUExecutionProvider"])
    name = "variable" if isinstance(model.objective_, Numbers) else "probabilities"
    answer: NDArray[Any] = session.run([name], {"X": X.astype(np.float32)})[0]
    return answer


def _compile(source: Path, extra: str = "") -> ctypes.CDLL:
    """The file and a loop over rows, as a library."""
    name = source.stem
    many = source.with_name("many.c")
    many.write_text(
        f'#include "{name}.h"\n{extra}\n'
        "void many(const float *x, float *y, int n);\n"
        "void many(const float *x, float *y, int n)\n{\n    for (int i = 0; i < n; i++) {\n"
        f"        {name}_outputs(x + i * {name.upper()}_INPUTS, y + i * {name.upper()}_OUTPUTS);\n"
        "    }\n}\n"
    )
    library = source.with_name(f"{name}-{time.monotonic_ns()}.so")
    command = [tool("gcc"), *STRICT, "-O3", "-shared", "-fPIC", str(source), str(many), "-o"]
    subprocess.run([*command, str(library), "-lm"], check=True)
    return ctypes.CDLL(str(library))


def _run_c(library: ctypes.CDLL, X: NDArray[Any], k: int) -> NDArray[np.float32]:
    rows, outputs = np.ascontiguousarray(X, dtype=np.float32), np.empty((len(X), k), np.float32)
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (rows, outputs))
    library.many(*pointers, len(rows))
    return outputs


def _c(model: Any, X: NDArray[Any], place: Path) -> NDArray[Any]:
    model.export(place / "net.c")
    outputs = _run_c(_compile(place / "net.c"), X, model.objective_.n_outputs)
    return _answers(model, outputs.astype(np.float64))


def _answers(model: Any, outputs: NDArray[Any]) -> NDArray[Any]:
    """Probabilities or numbers, from outputs."""
    if isinstance(model.objective_, Numbers):
        return np.asarray(model.objective_.decode(outputs)).reshape(len(outputs), -1)
    return np.asarray(model.model_.probabilities(torch.from_numpy(outputs)))


def _javascript(model: Any, X: NDArray[Any], place: Path) -> NDArray[Any]:
    model.export(place / "net.mjs")
    (place / "rows.json").write_text(json.dumps(X.astype(np.float32).tolist()))
    (place / "use.mjs").write_text(
        'import * as net from "./net.mjs";\n'
        'import { readFileSync, writeFileSync } from "node:fs";\n'
        f'const rows = JSON.parse(readFileSync("{place}/rows.json"));\n'
        "const outputs = net.predictProba ? net.predictProba(rows) : net.predict(rows);\n"
        f'writeFileSync("{place}/outputs.json", JSON.stringify(outputs));\n'
    )
    subprocess.run([tool("node"), str(place / "use.mjs")], check=True)
    outputs = np.array(json.loads((place / "outputs.json").read_text()))
    return outputs.reshape(len(X), -1)


def _memory(source: Path) -> dict[str, int]:
    """Bytes of code and constants in flash, and of memory, compiled for size on this machine."""
    compiled = source.with_suffix(".o")
    command = [tool("gcc"), *STRICT, "-Os", "-c", str(source), "-o", str(compiled)]
    subprocess.run(command, check=True)
    return _sections(compiled)


def _sections(compiled: Path) -> dict[str, int]:
    command = [tool("size"), "-A", str(compiled)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    sizes = {"code": 0, "constants": 0, "ram": 0}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 3 and (kind := _kind_of(parts[0])):
            sizes[kind] += int(parts[1])
    return sizes


def _kind_of(section: str) -> str | None:
    """Where a section of a compiled file lies on a device."""
    if section.startswith(".data.rel.ro"):
        return "constants"  # tables of pointers never change once a program is linked
    kinds = {".text": "code", ".rodata": "constants", ".data": "ram", ".bss": "ram"}
    return next((k for start, k in kinds.items() if f"{section}.".startswith(f"{start}.")), None)


def _int8(
    model: Any, X: NDArray[Any], X_test: NDArray[Any], y_test: NDArray[Any], place: Path
) -> dict[str, Any]:
    """C with whole numbers: whether it gives the bits of its emulator, its scores and its sizes."""
    path, rows = place / "int8_net.c", X[:: max(1, len(X) // CALIBRATION)]
    try:
        written = model.export(path, dtype="int8", calibration=rows, X=X_test, y=y_test)
    except ExportError as error:
        return {"refused": str(error)}
    flat = X_test.reshape(len(X_test), -1)
    emulator = quantise(describe(model.model_), rows.reshape(len(rows), -1).astype(float))
    outputs = _run_c(_compile(path), flat, model.objective_.n_outputs)
    same = bool((outputs == emulator.outputs(flat).astype(np.float32)).all())
    return {"same_bits": same, **dict(written.change), **_memory(path)}


def _speed(model: Any, X: NDArray[Any], place: Path, plan: ShippingPlan) -> dict[str, float]:
    """Milliseconds for all test rows, all ways in turn, medians; C on one thread.

    Threads of a library wait busily for a moment after its call and would slow the next one down,
    so there is a rest before each turn, and its first call is not counted.
    """
    rows = np.ascontiguousarray(X, dtype=np.float32)
    k = model.objective_.n_outputs
    ways: dict[str, Callable[[], Any]] = {
        "protopinv": lambda: model.predict(rows) if k == 1 else model.predict_proba(rows)
    }
    try:
        peer = model.to_sklearn()
    except ExportError:
        peer = None
    if peer is not None:
        peer.coefs_ = [W.astype(np.float32) for W in peer.coefs_]
        peer.intercepts_ = [b.astype(np.float32) for b in peer.intercepts_]
        ways["scikit-learn"] = lambda: peer.predict(rows) if k == 1 else peer.predict_proba(rows)
    onnxruntime: Any = require("onnxruntime", extra="dev", why="Running ONNX")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(
        place / "net.onnx", options, providers=["CPUExecutionProvider"]
    )
    ways["onnxruntime"] = lambda: session.run(None, {"X": rows})
    library = _compile(place / "net.c")
    ways["C"] = lambda: _run_c(library, rows, k)
    if (place / "int8_net.c").exists():
        int8 = _compile(place / "int8_net.c")
        ways["C, int8"] = lambda: _run_c(int8, rows, k)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(plan.repeats):
        for name, way in ways.items():
            time.sleep(REST)
            way()
            times[name] += [seconds(way) for _ in range(CALLS)]
    return {name: 1e3 * statistics.median(each) for name, each in times.items()}


def _tiny(shipped: Shipped) -> Cell:
    X, y, X_test, y_test = shipped.rows()
    fit_seconds, model = timed(partial(shipped.estimator.fit, X, y))
    with TemporaryDirectory() as name:
        int8 = _int8(model, X, X_test, y_test, Path(name))
    return {"fit_seconds": fit_seconds, "numbers": model.n_shipped_, **int8}


def _emlearn(key: str, plan: ShippingPlan) -> Cell:
    """An MLP of scikit-learn about as good as ours, as emlearn exports it."""
    emlearn: Any = require("emlearn", extra="study", why="The comparison with emlearn")
    from sklearn.neural_network import MLPClassifier

    X, y, X_test, y_test = mnist() if key == "mnist" else digits()
    width = 64 if key == "mnist" else 24
    iterations = 1 if plan.quick else (20 if key == "mnist" else 300)
    scale = 255.0 if key == "mnist" else 16.0
    peer = MLPClassifier([width], max_iter=iterations, random_state=0).fit(X / scale, y)
    with TemporaryDirectory() as name:
        place = Path(name)
        with chdir(place):  # it compiles what it converts in a folder where it is
            emlearn.convert(peer, dtype="float").save(file=str(place / "peer.h"), name="peer")
        (place / "peer.c").write_text(
            '#include "peer.h"\nint use(const float *x);\n'
            f"int use(const float *x) {{ return peer_predict(x, {X.shape[1]}); }}\n"
        )
        compiled = place / "peer.o"
        flags = ["-std=c99", "-Os", "-ffunction-sections", f"-I{emlearn.includedir}"]
        command = [tool("gcc"), *flags, "-c", str(place / "peer.c"), "-o", str(compiled)]
        subprocess.run(command, check=True)
        sizes = _sections(compiled)
    return {"score": float(peer.score(X_test / scale, y_test)), "width": width, **sizes}


SPEEDS = ("protopinv", "scikit-learn", "onnxruntime", "C", "C, int8")


def shipping_tables(record: Content) -> dict[str, list[str]]:
    """Agreement, sizes, speed, and 16 x 16 pixels."""
    cells = record["cells"]
    exported = {key: cell for key, cell in cells.items() if "onnx" in cell}
    tiny, peers = (
        [row(key.removeprefix(start), cell) for key, cell in cells.items() if key.startswith(start)]
        for start, row in (("16 x 16/", _tiny_row), ("emlearn/", _peer_row))
    )
    files = ["file, float32", "file, int8", "ONNX", "C flash", "C RAM"]
    int8 = ["int8 flash", "int8 RAM", "of it code", "operations a row"]
    head = ["", "test score", "ONNX", "C, float32", "JavaScript", "C, int8"]
    return {
        "agreement": markdown(head, [_agreement(key, cell) for key, cell in exported.items()]),
        "sizes": markdown(
            ["", *files, *int8], [_sizes(key, cell) for key, cell in exported.items()]
        ),
        "speed": markdown(["", *SPEEDS], [_speeds(key, cell) for key, cell in exported.items()]),
        "tiny": markdown(["hidden units", "flash", "RAM", "float64", "int8"], tiny),
        "emlearn": markdown(["emlearn", "hidden units", "accuracy", "flash", "RAM"], peers),
    }


def _agreement(key: str, cell: Cell) -> list[str]:
    row = [key, f"{100 * cell['score']:.2f}"]
    for kind in ("onnx", "c", "mjs"):
        part = cell[kind]
        largest = part.get("largest", part.get("largest_relative"))
        labels = f", {100 * part['same_labels']:.2f} %" if "same_labels" in part else ""
        row.append(f"{largest:.1e}{labels}")
    return [*row, _change(cell["int8"])]


def _change(part: Mapping[str, Any]) -> str:
    if "refused" in part:
        return "refused"
    bits = "bit for bit its emulator" if part["same_bits"] else "not its emulator"
    for name in ("accuracy", "r2"):
        if f"{name}_after" in part:
            change = 100 * (part[f"{name}_after"] - part[f"{name}_before"])
            return f"{bits}, {change:+.2f}"
    return bits


def _sizes(key: str, cell: Cell) -> list[str]:
    row = [key, *(_kb(cell[f"file {dtype}"]["bytes"]) for dtype in ("float32", "int8"))]
    row += [_kb(cell["onnx"]["bytes"]), _flash(cell["c"]), _kb(cell["c"]["ram"])]
    int8 = cell["int8"]
    if "refused" in int8:
        row += ["-", "-", "-"]
    else:
        row += [_flash(int8), _kb(int8["ram"]), f"{int8['code']:,} B"]
    return [*row, f"{cell['operations']:,}"]


def _speeds(key: str, cell: Cell) -> list[str]:
    times = cell["speed"]
    return [key, *(f"{times[n]:.2f}" if n in times else "-" for n in SPEEDS)]


def _tiny_row(key: str, cell: Cell) -> list[str]:
    scores = [f"{100 * cell[name]:.2f}" for name in ("accuracy_before", "accuracy_after")]
    return [key, _flash(cell), _kb(cell["ram"]), *scores]


def _peer_row(key: str, cell: Cell) -> list[str]:
    score = f"{100 * cell['score']:.2f}"
    return [key, str(cell["width"]), score, _flash(cell), _kb(cell["ram"])]


def _flash(cell: Cell) -> str:
    return _kb(cell["code"] + cell["constants"])


def _kb(n: int) -> str:
    return f"{n / 1000:.1f} kB"
