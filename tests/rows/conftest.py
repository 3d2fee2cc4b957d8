"""Rows in files of every kind."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

Write = Callable[..., Path]


@pytest.fixture
def table() -> pa.Table:
    random = np.random.default_rng(0)
    columns = {f"x{i}": random.standard_normal(700) for i in range(4)}
    labels = np.array(["low", "high"], dtype=object)[(columns["x0"] > 0).astype(int)]
    return pa.table({**columns, "y": pa.array(labels), "w": random.uniform(0.5, 2, 700)})


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a table in three files, as Parquet, Arrow or CSV; gives their folder."""

    def written(table: pa.Table, kind: str = "parquet", name: str = "rows") -> Path:
        folder = tmp_path / f"{name}-{kind}"
        folder.mkdir()
        for number, (start, length) in enumerate([(0, 300), (300, 0), (300, table.num_rows)]):
            part = table.slice(start, length)
            path = folder / f"part-{number}.{kind}"
            if kind == "parquet":
                pq.write_table(part, path, row_group_size=90)
            elif kind == "arrow":
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, part.schema) as out:
                    out.write_table(part, max_chunksize=90)
            else:
                pa.csv.write_csv(part, path)
        return folder

    return written
