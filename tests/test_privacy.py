"""What leaves the process holds no training row, unless a user asks for it."""

import base64
import binascii
import pickle
import re
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load
from protopinv.errors import ConfigError
from protopinv.export.card import card
from protopinv.model_file.saving import shareable
from protopinv.report import write_report

SMALL: dict[str, Any] = {
    "effort": "quick",
    "n_prototypes": 12,
    "hidden_sizes": 8,
    "max_epochs": 3,
    "random_state": 0,
}
GOLDEN = Path(__file__).parent / "golden"


def _staff(n: int = 60) -> tuple[pd.DataFrame, Any]:
    """Employees: a name each, a salary, a day, and one of three departments."""
    random = np.random.default_rng(1)
    days = np.datetime64("2001-01-01T00:00") + random.integers(0, 9_000_000, n).astype("m8[m]")
    frame = pd.DataFrame(
        {
            "name": [f"person {number % 20}" for number in range(n)],
            "salary": random.uniform(2_000, 9_000, n),
            "department": random.choice(["sales", "lab", "office"], n),
            "hired": days,
            "score": random.normal(size=n),
        }
    )
    return frame, np.where(frame["score"] > 0, "stays", "leaves")


def _numbers(n: int = 60) -> tuple[pd.DataFrame, Any]:
    """Numbers alone, one of them with a heavy tail."""
    random = np.random.default_rng(2)
    frame = pd.DataFrame(random.normal(size=(n, 5)), columns=list("abcde"))
    frame["b"] = np.exp(3 * frame["b"])
    return frame, frame["a"].to_numpy() + random.normal(size=n)


def _gaps(n: int = 60) -> tuple[pd.DataFrame, Any]:
    """Gaps, Booleans and few different values, and several labels."""
    random = np.random.default_rng(3)
    frame = pd.DataFrame(random.uniform(-50, 50, (n, 4)), columns=["p", "q", "r", "s"])
    frame["is new"] = random.random(n) > 0.5
    frame["stars"] = random.integers(1, 6, n)
    frame.loc[::7, "q"] = np.nan
    return frame, np.column_stack([frame["p"] > 0, frame["r"] > frame["s"]]).astype(int)


def _rare(n: int = 21) -> tuple[pd.DataFrame, Any]:
    """A class with a single row, whose mean is that row."""
    random = np.random.default_rng(4)
    frame = pd.DataFrame(random.normal(size=(n, 6)) * 100, columns=[f"v{i}" for i in range(6)])
    return frame, np.array(["one", "two"] * (n // 2) + ["rare"])


def _float32(n: int = 60) -> tuple[pd.DataFrame, Any]:
    """Two texts and numbers in float32; two targets."""
    random = np.random.default_rng(5)
    frame = pd.DataFrame(random.normal(7, 3, (n, 3)).astype(np.float32), columns=["x", "y", "z"])
    frame["city"] = random.choice(list("ABCDEFGH"), n)
    frame["colour"] = random.choice(["red", "green"], n)
    return frame, np.column_stack([frame["x"], frame["y"] * 3])


FRAMES: dict[str, Callable[[], tuple[pd.DataFrame, Any]]] = {
    "staff": _staff,
    "numbers": _numbers,
    "gaps": _gaps,
    "rare": _rare,
    "float32": _float32,
}


@cache
def fitted(name: str) -> tuple[Any, pd.DataFrame, Any]:
    """A model of the frame; caution: tests share it."""
    X, y = FRAMES[name]()
    kind = ProtoPINVRegressor if name in ("numbers", "float32") else ProtoPINVClassifier
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(**SMALL).fit(X, y), X, y


def numbers_in(content: bytes) -> np.ndarray:
    """Every number that can be read in a file: in binary at any place, in base64, as decimals."""
    packed = re.findall(rb"[A-Za-z0-9+/]{16,}={0,2}", content)
    binary = [content]
    for run in packed:
        try:
            binary.append(base64.b64decode(run[: len(run) // 4 * 4]))
        except binascii.Error:
            continue
    read = []
    for raw in binary:
        for kind, size in (("<f8", 8), ("<f4", 4)):
            for start in range(size):
                part = raw[start : start + (len(raw) - start) // size * size]
                with np.errstate(invalid="ignore"):
                    read.append(np.frombuffer(part, dtype=kind).astype(np.float64))
    decimals = re.findall(rb"-?\d+\.?\d*(?:[eE][-+]?\d+)?", content)
    read.append(np.array([float(text) for text in decimals]))
    everything = np.concatenate(read)
    return np.unique(everything[np.isfinite(everything)])


def rows_in(content: bytes, X: pd.DataFrame) -> list[int]:
    """Rows all of whose telling numbers are in there; values of a category always may be.

    A number tells a row if no other has it. Whoever writes few digits writes five.
    """
    cells = X.select_dtypes(["number", "datetime"]).copy()
    for name in cells.select_dtypes("datetime"):
        cells[name] = (cells[name] - pd.Timestamp(0)) / pd.Timedelta(days=1)
    cells = cells.loc[:, cells.nunique() > len(cells) / 2]
    assert cells.shape[1] >= 3
    values = cells.to_numpy(np.float64)
    there = numbers_in(content)
    place = np.searchsorted(there, values).clip(1, len(there) - 1)
    off = np.minimum(np.abs(there[place - 1] - values), np.abs(there[place] - values))
    is_there = (off <= 1e-5 * np.abs(values)) | np.isnan(values)
    return np.flatnonzero(is_there.all(axis=1)).tolist()


def files_of(estimator: Any, X: Any, y: Any, folder: Path, **options: bool) -> dict[str, bytes]:
    """All that a model can be written to."""
    estimator.save(folder / "model.safetensors", **options)
    estimator.save(folder / "small.safetensors", bank=False, dtype="float32", **options)
    for ending in ("c", "onnx", "mjs", "safetensors"):
        estimator.export(folder / f"export.{ending}", **options)
    write_report(estimator, folder / "page.html")
    write_report(estimator, folder / "scored.html", X, y)
    (folder / "card.md").write_text(card(estimator.model_, "m", "1"))
    (folder / "pickle").write_bytes(pickle.dumps(estimator))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", FRAMES)
def test_no_training_row_leaves_the_process(name: str, tmp_path: Path) -> None:
    estimator, X, y = fitted(name)
    files = files_of(estimator, X, y, tmp_path)
    assert {file for file, content in files.items() if rows_in(content, X)} == set()


def test_rows_that_are_asked_for_are_found(tmp_path: Path) -> None:
    estimator, X, y = fitted("numbers")
    files = files_of(estimator, X, y, tmp_path, examples=True)
    held = {file: len(rows_in(content, X)) for file, content in files.items()}
    assert {file: n for file, n in held.items() if n} == {
        "model.safetensors": 32,
        "small.safetensors": 32,
        "export.safetensors": 32,
        "export_test.c": 8,
    }


def test_images_leave_neither() -> None:
    random = np.random.default_rng(0)
    X = random.integers(0, 256, (60, 12, 12), dtype=np.uint8)
    estimator = ProtoPINVClassifier(**SMALL).fit(X, np.arange(60) % 2)
    content = pickle.dumps(estimator) + pickle.dumps(shareable(estimator.model_).examples)
    for image in X:
        forms = (image.tobytes(), image.astype(np.float32).tobytes(), image.astype(float).tobytes())
        assert not any(form in content for form in forms)
    assert shareable(estimator.model_).image_range == (0, 255)


def test_a_class_that_is_forgotten_takes_its_rows_along(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.normal(size=(90, 4)), columns=list("abcd"))
    y = np.arange(90) % 3
    estimator = ProtoPINVClassifier(**SMALL).fit(X, y).forget(1)
    assert not any((row == estimator.model_.examples).all(1).any() for row in X[y == 1].to_numpy())
    with pytest.raises(ConfigError, match="a class was forgotten"):
        estimator.save(tmp_path / "m.safetensors", examples=True)
    estimator.save(tmp_path / "m.safetensors")
    assert rows_in((tmp_path / "m.safetensors").read_bytes(), X) == []


def test_rows_of_an_older_file_are_dropped_when_it_is_saved_again(tmp_path: Path) -> None:
    older = load(GOLDEN / "classes.safetensors")
    rows = older.model_.examples
    assert len(rows) > 1
    older.save(tmp_path / "with.safetensors", examples=True)
    older.save(tmp_path / "without.safetensors")
    assert np.array_equal(load(tmp_path / "with.safetensors").model_.examples, rows)
    assert len(load(tmp_path / "without.safetensors").model_.examples) == 0
    without = (tmp_path / "without.safetensors").read_bytes()
    assert not any(row.astype(kind).tobytes() in without for row in rows for kind in ("f4", "f8"))


def test_a_loaded_model_has_no_rows_to_pass_on(tmp_path: Path) -> None:
    estimator, X, _ = fitted("staff")
    estimator.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    for bare in (again, pickle.loads(pickle.dumps(estimator))):
        assert bare.model_.examples.shape == (0, estimator.model_.examples.shape[1])
        with pytest.raises(ConfigError, match="This model has none"):
            bare.export(tmp_path / "m.c", examples=True)
    assert np.array_equal(again.predict_proba(X), estimator.predict_proba(X))
    # what is made up follows from the model, so that files do not change from hand to hand
    again.save(tmp_path / "again.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == (
        tmp_path / "again.safetensors"
    ).read_bytes()
    header = (tmp_path / "m.safetensors").read_bytes()[8:]
    assert rb"\"examples\": \"made-up\"" in header
