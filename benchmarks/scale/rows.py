"""Rows to measure with: Parquet files of any length, made by a formula."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FEATURES = 100
ROWS_A_FILE = 655_360
ROWS_A_GROUP = 32_768
DIRECTIONS = 8


def make_rows(n: int, number: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Normal features; the class follows from products of a few directions, and some noise."""
    weights = np.random.default_rng(0).standard_normal((FEATURES, DIRECTIONS)) / 10
    random = np.random.default_rng([1, number])
    X = random.standard_normal((n, FEATURES), dtype=np.float32)
    Z = np.tanh(3 * X @ weights.astype(np.float32))
    signal = Z[:, 0] * Z[:, 1] + Z[:, 2] * Z[:, 3] + Z[:, 4]
    y = (signal + 0.3 * random.standard_normal(n) > 0).astype(np.int8)
    return X, y


def write_rows(folder: Path, n: int) -> Path:
    """So many rows in a folder of their own, which is made once; float32, not compressed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = folder / f"rows-{n}"
    if made.is_dir():
        return made
    partial = folder / f".rows-{n}"
    partial.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, n, ROWS_A_FILE)):
        X, y = make_rows(min(ROWS_A_FILE, n - start), number)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(FEATURES)}, "y": y})
        pq.write_table(
            table,
            partial / f"part-{number:04}.parquet",
            row_group_size=ROWS_A_GROUP,
            compression="none",
            use_dictionary=["y"],
        )
    partial.rename(made)
    return made


def held_out() -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Rows that are in no file."""
    return make_rows(100_000, 1_000_000)
