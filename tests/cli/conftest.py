"""A table, and a model trained on it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import QUICK, answered


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, blobs) -> Path:
    """A table and a model trained on it."""
    folder = tmp_path_factory.mktemp("cli")
    X, y = blobs
    columns = {f"f{index}": column for index, column in enumerate(X.T)}
    table = pl.DataFrame({**columns, "kind": np.array(["ant", "bee", "cat"])[y]})
    table.write_csv(folder / "bugs.csv")
    table.write_parquet(folder / "bugs.parquet")
    answer = answered(
        "train", folder / "bugs.csv", "--target", "kind", "-o", folder / "m.safetensors", *QUICK
    )
    assert answer["rows"] == 90
    assert answer["features"] == 5
    assert answer["classes"] == 3
    assert answer["validation_accuracy"] is None
    return folder
