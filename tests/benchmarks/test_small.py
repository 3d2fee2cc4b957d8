"""The time of small tables: a smoke run, kept in a record and told in a table."""

import json
from functools import partial
from pathlib import Path

import pytest

from benchmarks.record import Records
from benchmarks.tables import small
from benchmarks.tables.shipped import ShippedPlan, measure_shipped, shipped_table
from benchmarks.tables.small import SmallPlan, measure_small, small_tables
from protopinv import ProtoPINVClassifier
from protopinv.errors import ConfigError


def test_small_tables_are_measured_and_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(small, "PROCESSES", (1, 2))
    monkeypatch.setattr(small, "GRID_EPOCHS", 3)
    short = partial(ProtoPINVClassifier, max_epochs=20)  # types are checked here, which takes time
    monkeypatch.setattr(small, "ProtoPINVClassifier", short)
    plan = SmallPlan(tables=("iris",), repeats=1, quick=True)
    record = measure_small(plan, Records(tmp_path), wheels=None)
    kept = json.loads(record.path.read_text())
    assert set(kept["cells"]) == {"table/iris", "members/iris", "processes", "grid"}
    iris = kept["cells"]["table/iris"]
    assert iris["ratio"] == pytest.approx(
        iris["seconds"]["protopinv, quick"] / iris["seconds"]["scikit-mlp"]
    )
    assert iris["accuracies"]["protopinv, quick"][0] > 0.9
    assert kept["cells"]["grid"]["fits"] == 12
    text = "\n".join(small_tables(kept))
    assert f"mean ratio {iris['ratio']:.2f}" in text
    assert "while 2 processes fit" in text


def test_tables_without_classes_are_refused(tmp_path: Path) -> None:
    for name in ("moon", "diabetes"):
        with pytest.raises(ConfigError, match=f"tables must be some of breast_cancer.*Got {name}"):
            measure_small(SmallPlan(tables=(name,)), Records(tmp_path), wheels=None)


def test_what_is_shipped_is_weighed_and_told(tmp_path: Path) -> None:
    plan = ShippedPlan(tables=("iris",), quick=True)
    record = measure_shipped(plan, Records(tmp_path))
    cells = {key.split("/")[1]: cell for key, cell in record.cells.items()}
    assert set(cells) == {"quick", "balanced", "best", "scikit-mlp"}
    assert cells["scikit-mlp"]["numbers"] == 4 * 100 + 100 + 100 * 3 + 3 + 2 * 4
    assert cells["quick"]["numbers"] < cells["best"]["numbers"]
    assert all(0 < cell["row_seconds"] < cell["many_seconds"] for cell in cells.values())
    text = "\n".join(shipped_table(record.content))
    assert f"{cells['best']['numbers']:,}" in text
