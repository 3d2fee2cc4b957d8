"""Whole-number labels beyond what a float can hold stay apart, however they come."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from protopinv import ArrayRows, ProtoPINVClassifier, load
from protopinv.errors import DataError

N = 40
ABOVE, TOP = 2**53 + 1, 2**64 - 1
QUICK: dict[str, Any] = {
    "n_prototypes": 8,
    "hidden_sizes": 8,
    "n_members": 1,
    "max_epochs": 3,
    "early_stopping": False,
    "random_state": 0,
}
LABELS: dict[str, tuple[Any, list[int]]] = {
    "int64": (np.array([ABOVE, ABOVE - 1] * N), [ABOVE - 1, ABOVE]),
    "uint64": (np.array([TOP, TOP - 1] * N, dtype=np.uint64), [TOP - 1, TOP]),
    "objects": (np.array([ABOVE, ABOVE - 1] * N, dtype=object), [ABOVE - 1, ABOVE]),
    "objects with floats": (
        np.array([ABOVE, ABOVE - 1, 2.0, ABOVE] * (N // 2), dtype=object),
        [2, ABOVE - 1, ABOVE],
    ),
    "a list": ([TOP, 1] * N, [1, TOP]),
    "pandas": (pd.Series([ABOVE, ABOVE - 1] * N), [ABOVE - 1, ABOVE]),
    "pandas with room for gaps": (
        pd.Series([ABOVE, ABOVE - 1] * N, dtype="Int64"),
        [ABOVE - 1, ABOVE],
    ),
    "polars": (pl.Series([TOP, TOP - 1] * N, dtype=pl.UInt64), [TOP - 1, TOP]),
}


@pytest.mark.parametrize("way", ["array", "frame", "stream", "more"])
@pytest.mark.parametrize(("y", "classes"), LABELS.values(), ids=LABELS)
def test_large_labels_stay_apart(tmp_path: Path, y: Any, classes: list[int], way: str) -> None:
    X: Any = np.random.default_rng(0).standard_normal((2 * N, 3))
    model = ProtoPINVClassifier(**QUICK)
    if way == "stream":
        model.fit(ArrayRows(X, y, memory=0))
    elif way == "more":
        model.partial_fit(X, y)
    else:
        X = X if way == "array" else pd.DataFrame({"a": X[:, 0], "b": ["u", "v"] * N})
        model.fit(X, y)
    assert model.classes_.tolist() == classes
    assert set(model.predict(X).tolist()) <= set(classes)
    model.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").classes_.tolist() == classes


@pytest.mark.parametrize("memory", [0, 2**29])
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([2**80, 2**80 + 1], r"must fit into 64 bits.* Got 1208925819614629174706177"),
        ([TOP, -1], r"must fit into 64 bits.* Got 18446744073709551615"),
        ([ABOVE, 0.5], r"label"),
    ],
)
def test_what_no_integer_holds_is_refused(labels: list[Any], message: str, memory: int) -> None:
    X = np.random.default_rng(0).standard_normal((2 * N, 3))
    y = np.array(labels * N, dtype=object)
    with pytest.raises(DataError, match=message):
        ProtoPINVClassifier(**QUICK).fit(ArrayRows(X, y, memory=memory))
