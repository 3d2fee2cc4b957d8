"""Any number of columns and classes, called anything, is saved and read like a few."""

import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from protopinv import ProtoPINVClassifier, load
from protopinv.errors import ModelFileError
from protopinv.model_file.summary import summary
from protopinv.plain import MOST_VALUES

GOLDEN = Path(__file__).parent / "golden" / "long-names.safetensors"
SMALL = {"n_prototypes": 6, "hidden_sizes": 4, "max_epochs": 2, "n_members": 1, "memory": 0}
SMALL |= {"early_stopping": False, "random_state": 0}


def long_names(n: int) -> list[str]:
    return [
        f"column {number} of {n}, called as long as a sentence {'x' * 200}" for number in range(n)
    ]


def saved(path: Path, X: object, y: object) -> ProtoPINVClassifier:
    model = ProtoPINVClassifier(**SMALL).fit(X, y)
    model.save(path)
    return model


@pytest.mark.parametrize("kind", ["numbers", "categories"])
def test_five_thousand_columns_are_saved_read_inspected_and_exported(
    kind: str, tmp_path: Path
) -> None:
    random, n = np.random.default_rng(0), 5_000
    cells = random.normal(size=(40, n))
    X = pd.DataFrame(cells if kind == "numbers" else np.where(cells > 0, "no", "yes, or so"))
    X.columns = long_names(n)
    path = tmp_path / "m.safetensors"
    model = saved(path, X, cells[:, 0] > 0)
    back = load(path)
    np.testing.assert_array_equal(back.predict_proba(X), model.predict_proba(X))
    assert back.feature_names_in_.tolist() == list(X.columns)
    facts = summary(path)
    assert facts["feature_names"] == list(X.columns)
    assert len(facts["columns"]) == n
    for ending in ("c", "mjs"):
        assert back.export(tmp_path / f"m.{ending}").file_bytes > n
    back.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_long_list_of_classes_is_saved_and_read(tmp_path: Path) -> None:
    classes = [f"class {number:05} {'y' * 100}" for number in range(600)]
    X = np.random.default_rng(0).normal(size=(1_200, 3))
    model = saved(tmp_path / "m.safetensors", X, np.repeat(classes, 2))
    back = load(tmp_path / "m.safetensors")
    assert back.classes_.tolist() == classes == summary(tmp_path / "m.safetensors")["classes"]
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_a_reader_is_told_of_long_values_and_a_short_file_has_none(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    saved(tmp_path / "m.safetensors", X, X[:, 0] > 0)
    for path, needs in ((GOLDEN, ["table", "long"]), (tmp_path / "m.safetensors", [])):
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        inner = json.loads(header["__metadata__"]["protopinv"])
        assert inner["needs"] == needs
        for name in header:
            if name.startswith("long."):
                assert name.removeprefix("long.") not in inner
        assert any(name.startswith("long.") for name in header) == bool(needs)


def with_text(path: Path, name: str, text: bytes, inner: dict[str, object] | None = None) -> Path:
    """The golden file with another text in one of its long values."""
    content = GOLDEN.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    bodies = {key: data[slice(*e["data_offsets"])] for key, e in header.items() if key[0] != "_"}
    bodies[name] = text
    header[name] = {"dtype": "U8", "shape": [len(text)]}
    at = 0
    for key, raw in bodies.items():
        header[key]["data_offsets"] = [at, at + len(raw)]
        at += len(raw)
    described = json.loads(header["__metadata__"]["protopinv"]) | (inner or {})
    header["__metadata__"]["protopinv"] = json.dumps(described)
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"".join(bodies.values()))
    return path


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("long.table", b"[" * 100_000, "must be whole"),
        ("long.table", b"[" * 50 + b"]" * 50, "nested more than 32 deep"),
        ("long.table", b'{"columns": [], "columns": []}', "'columns' appears twice"),
        (
            "long.table",
            b'{"a\\u001b[31m": 1, "a\\u001b[31m": 1}',
            r"a.{1,2}u001b\[31m' appears twice",
        ),
        ("long.table", b'{"columns": NaN}', "holds NaN"),
        ("long.table", b'{"columns": 1e999}', "holds 1e999"),
        ("long.table", b'["\\ud800"]', "must be whole"),
        ("long.table", b"\xff\xfe", "must be whole"),
        ("long.feature_names", b"[1]", "feature_names is .*, not a list of texts"),
        ("long.feature_names", b'["a"]', "1 feature names for 120 features"),
        ("long.feature_names", b"[" + b"0," * MOST_VALUES + b"0]", "has more than"),
        ("long.needs", b"[]", "is in its header too"),
        ("long.activation", b'"tanh"', "is in its header too"),
        ("long.no_such.name", b"1", "a tensor is called"),
    ],
)
def test_long_values_obey_the_rules_of_the_header(
    name: str, text: bytes, message: str, tmp_path: Path
) -> None:
    path = with_text(tmp_path / "m", name, text)
    # a look at a file does not ask whether its parts belong together
    for look in (load,) if "120 features" in message else (load, summary):
        with pytest.raises(ModelFileError, match=message):
            look(path)


def test_half_a_character_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = ProtoPINVClassifier(**SMALL).fit(X, X[:, 0] > 0)
    model.model_ = replace(model.model_, feature_names=("a", "b\ud800"))
    with pytest.raises(ModelFileError, match="must be of whole characters"):
        model.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
