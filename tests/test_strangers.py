"""Files from strangers: whatever is in them, a ModelFileError comes out, and nothing else."""

import json
import struct
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from benchmarks.damage import GOLDEN, kinds
from benchmarks.fuzz import FuzzPlan, damaged_file, loads
from protopinv import load
from protopinv.errors import DriftWarning, ModelFileError
from protopinv.model_file.header import MOST_HEADER_BYTES

MODEL = GOLDEN / "classes.safetensors"


def split(path: Path) -> tuple[dict, bytes]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def join(path: Path, header: dict | str, data: bytes) -> Path:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def refused(path: Path, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_tensors_that_overlap_or_leave_gaps_are_refused(tmp_path: Path) -> None:
    header, data = split(MODEL)
    first, second = header["bank.inputs"], header["bank.outputs"]
    size = second["data_offsets"][1] - second["data_offsets"][0]
    second["data_offsets"] = [first["data_offsets"][0], first["data_offsets"][0] + size]
    refused(join(tmp_path / "m", header, data), "overlap, or leave gaps")
    header, data = split(MODEL)
    del header["bank.outputs"]
    refused(join(tmp_path / "m", header, data), "overlap, or leave gaps")
    header, data = split(MODEL)
    refused(join(tmp_path / "m", header, data + b"more"), "longer or shorter")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "bank.inputs/..", "bank.evil", "network.0.0", "__proto__", ""]
)
def test_other_names_are_refused(name: str, tmp_path: Path) -> None:
    header, data = split(MODEL)
    header[name] = header.pop("bank.inputs")
    refused(join(tmp_path / "m", header, data), "a tensor is called")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [2**62, 4]}, "tensor bank.inputs: invalid shape"),
        ({"shape": [-1, 5]}, "tensor bank.inputs: invalid shape"),
        ({"shape": [1] * 50}, "tensor bank.inputs: invalid shape"),
        ({"shape": [True]}, "tensor bank.inputs: invalid shape"),
        ({"shape": [2**20, 2**20]}, "another size than it says"),
        ({"dtype": "F8_E4M3"}, "tensor bank.inputs: unknown dtype"),
        ({"dtype": ["F64"]}, "tensor bank.inputs: unknown dtype"),
        ({"data_offsets": [0]}, "tensor bank.inputs: invalid data_offsets"),
        ({"data_offsets": [10, 0]}, "another size than it says"),
        ({"more": 1}, "bank.inputs is not described"),
    ],
    ids=str,
)
def test_a_tensor_that_is_not_what_it_says_is_refused(change, message, tmp_path: Path) -> None:
    header, data = split(MODEL)
    header["bank.inputs"] |= change
    refused(join(tmp_path / "m", header, data), message)


def test_huge_headers_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", MOST_HEADER_BYTES + 1))
        file.truncate(2**34)  # 16 GB that take no room on the disk
    tracemalloc.start()
    refused(path, "its header has")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_doubled_names_deep_nesting_and_odd_numbers_are_refused(tmp_path: Path) -> None:
    header, data = split(MODEL)
    text = json.dumps(header)
    entry = json.dumps(header["bank.inputs"])
    refused(join(tmp_path / "m", f'{text[:-1]}, "bank.inputs": {entry}}}', data), "appears twice")
    inner = header["__metadata__"]["protopinv"]
    for changed, message in [
        (f'{inner[:-1]}, "task": "regression"}}', "appears twice"),
        ("[" * 100_000 + "]" * 100_000, "must be whole|not an object"),
        ("[1, 2]", "not an object"),
        (inner.replace('"n_prototypes": 12', '"n_prototypes": NaN'), "its header holds NaN"),
        (inner.replace('"n_prototypes": 12', '"n_prototypes": 1e999'), "its header holds 1e999"),
        (inner.replace('"n_prototypes": 12', f'"n_prototypes": {"9" * 5000}'), "must be whole"),
    ]:
        assert changed != inner
        header["__metadata__"]["protopinv"] = changed
        refused(join(tmp_path / "m", header, data), message)


def laid_out(path: Path, header: dict, tensors: dict[str, bytes]) -> Path:
    """A file whose places follow from its tensors."""
    at, body = 0, b""
    for name, raw in tensors.items():
        header[name]["data_offsets"] = [at, at + len(raw)]
        at, body = at + len(raw), body + raw
    return join(path, header, body)


def taken_apart(path: Path) -> tuple[dict, dict[str, bytes]]:
    header, data = split(path)
    names = [name for name in header if name != "__metadata__"]
    return header, {name: data[slice(*header[name]["data_offsets"])] for name in names}


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "message"),
    [
        ("history.ridge", "F64", [2**33, 0], "tensor history.ridge: invalid shape"),
        ("history.loss", "I8", [50], "not in float64"),
        ("features.scale", "F64", [6, 0], "tensor features.scale: invalid shape"),
        ("bank.inputs", "F32", [0, 12, 6], "must fit together"),
        ("examples.rows", "U8", [5000, 6], "must fit together"),
    ],
)
def test_shapes_that_would_grow_in_memory_are_refused(
    name: str, dtype: str, shape: list[int], message: str, tmp_path: Path
) -> None:
    header, tensors = taken_apart(MODEL)
    wide = {"F64": 8, "F32": 4, "I8": 1, "U8": 1}[dtype]
    header[name] |= {"dtype": dtype, "shape": shape}
    tensors[name] = bytes(int(np.prod(shape, dtype=object)) * wide)
    refused(laid_out(tmp_path / "m", header, tensors), message)


def test_a_row_of_weights_is_not_spread_over_many_features(tmp_path: Path) -> None:
    """Arithmetic on shapes that do not match would make a large model of a small file."""
    header, tensors = taken_apart(GOLDEN / "classes-float16.safetensors")
    for name in ("features.mean", "features.scale"):
        header[name]["shape"] = [3000]
        tensors[name] = np.ones(3000).tobytes()
    refused(laid_out(tmp_path / "m", header, tensors), "a first layer for other features")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("history", "ending"), "<script>alert(1)</script>"),
        (("history", "seconds"), "abc"),
        (("history", "kept_epoch"), "abc"),
        (("objective", "classes_dtype"), "(,)i4"),
        (("objective", "classes"), "012"),
        (("objective", "classes"), [0, 1, "\ud800"]),
        (("parameters", "device"), "cuda:7"),
        (("parameters", "hidden_sizes"), [[[[]]]] * 3),
    ],
    ids=str,
)
def test_facts_of_other_kinds_are_refused(path: tuple[str, str], value, tmp_path: Path) -> None:
    header, data = split(MODEL)
    inner = json.loads(header["__metadata__"]["protopinv"])
    inner[path[0]][path[1]] = value
    header["__metadata__"]["protopinv"] = json.dumps(inner)
    refused(join(tmp_path / "m", header, data), "must")


def test_a_newer_minor_version_is_read_without_what_is_new(tmp_path: Path) -> None:
    header, data = split(MODEL)
    inner = json.loads(header["__metadata__"]["protopinv"])
    inner["format"] = "1.7"
    for part in ("parameters", "config", "history"):
        inner[part]["unheard"] = 1
    inner["more"] = {}
    header["__metadata__"]["protopinv"] = json.dumps(inner)
    rows = np.zeros((3, 6))
    newer = load(join(tmp_path / "m", header, data))
    np.testing.assert_array_equal(newer.predict_proba(rows), load(MODEL).predict_proba(rows))


def test_factors_of_a_huge_matrix_are_refused(tmp_path: Path) -> None:
    """A small file must not become a large model."""
    header, data = split(GOLDEN / "factored-int8.safetensors")
    sizes = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
    assert "network.0.left" in sizes
    tensors = {
        name: np.frombuffer(data[slice(*header[name]["data_offsets"])], dtype=np.uint8)
        for name in sizes
    }
    n = 5000
    for name, shape in {
        "network.0.left": [n, 1],
        "network.0.left.scale": [1, 1],
        "network.0.right": [1, n],
        "network.0.right.scale": [1, n],
        "network.0.bias": [n],
    }.items():
        wide = 1 if header[name]["dtype"] == "I8" else 4
        header[name]["shape"] = shape
        tensors[name] = np.zeros(int(np.prod(shape)) * wide, dtype=np.uint8)
    at, body = 0, b""
    for name, raw in tensors.items():
        header[name]["data_offsets"] = [at, at + raw.size]
        at, body = at + raw.size, body + raw.tobytes()
    refused(join(tmp_path / "m", header, body), "factors of a matrix that is too large")


def test_numbers_that_drift_are_noticed(tmp_path: Path) -> None:
    header, data = split(MODEL)
    at = header["examples.outputs"]["data_offsets"][0]
    moved = np.frombuffer(data[at : at + 8], dtype=np.float64) + 1e-3
    changed = data[:at] + moved.tobytes() + data[at + 8 :]
    with pytest.warns(DriftWarning, match="answer the examples in its file as it did"):
        load(join(tmp_path / "m.safetensors", header, changed))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.safetensors")), ids=lambda p: p.stem)
def test_every_released_format_loads_for_ever(path: Path) -> None:
    """Files written once, by the version that their header names; they are never written anew."""
    kept = json.loads(path.with_suffix(".json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error", DriftWarning)
        model = load(path)
    rows = np.array(kept["rows"], dtype=object if path.stem.startswith("frame") else None)
    found = model.predict(rows)
    if isinstance(kept["predictions"][0], float | list):
        np.testing.assert_allclose(found, kept["predictions"], rtol=1e-6)
    else:
        assert found.tolist() == kept["predictions"]
    if "probabilities" in kept:
        probabilities = model.predict_proba(rows)
        np.testing.assert_allclose(probabilities, kept["probabilities"], atol=1e-6)


def test_damaged_files_are_refused_or_of_use(tmp_path: Path) -> None:
    """A short run; python -m benchmarks fuzz is the long one."""
    contents, plan = list(kinds().values()), FuzzPlan(seed=1)
    for content in contents:
        assert loads(content, tmp_path / "m.safetensors")
    loaded = 0
    for number in range(400):
        content, through_all = damaged_file(contents, plan, number)
        loaded += loads(content, tmp_path / "m.safetensors", through_all=through_all)
    assert 0 < loaded < 400
