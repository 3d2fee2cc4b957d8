"""A model remembers what the columns that it predicts are called."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load, open_rows

SMALL: dict[str, Any] = {"effort": "quick", "max_epochs": 1, "random_state": 0}
X = np.random.default_rng(0).normal(size=(40, 3))
NUMBERS = X[:, :2]


@pytest.mark.parametrize(
    ("y", "names"),
    [
        (pd.Series(NUMBERS[:, 0], name="price"), ("price",)),
        (pl.Series("price", NUMBERS[:, 0]), ("price",)),
        (pd.DataFrame(NUMBERS, columns=("a", "b, c")), ("a", "b, c")),
        (pd.Series(NUMBERS[:, 0]), None),
        (pl.Series(NUMBERS[:, 0]), None),
        (pd.DataFrame(NUMBERS), None),
        (NUMBERS[:, 0], None),
    ],
)
def test_the_name_comes_with_y_and_stays_in_the_file(
    y: Any, names: tuple[str, ...] | None, tmp_path: Path
) -> None:
    model = ProtoPINVRegressor(**SMALL).fit(X, y)
    assert model.model_.target_names == names
    model.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").model_.target_names == names
    assert model.fit(X, NUMBERS[:, 0]).model_.target_names is None


def test_files_and_first_calls_bring_it_too(tmp_path: Path) -> None:
    kind = pd.Series(np.arange(40) % 2, name="kind")
    pd.DataFrame(X, columns=list("abc")).assign(kind=kind).to_csv(tmp_path / "t.csv", index=False)
    source = open_rows(tmp_path / "t.csv", "kind")
    for learn in (
        lambda model: model.fit(source),
        lambda model: model.partial_fit(source, classes=[0, 1]),
        lambda model: model.partial_fit(X, kind, classes=[0, 1]).partial_fit(X, kind.to_numpy()),
    ):
        assert learn(ProtoPINVClassifier(**SMALL)).model_.target_names == ("kind",)
