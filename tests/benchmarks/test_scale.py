"""The study of scale: its rows, its cost model, and a run of all of it on a few rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from forked import Started

from benchmarks.scale.kills import KillPlan, _Job
from benchmarks.scale.model import Machine, Work, fitted_cpu, total
from benchmarks.scale.rows import make_rows, write_rows
from benchmarks.scale.study import power_of_rows


def test_rows_are_the_same_whenever_they_are_made(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    X, y = make_rows(500, 0)
    table = pq.read_table(write_rows(tmp_path, 500))
    np.testing.assert_array_equal(table["x3"].to_numpy(), X[:, 3])
    np.testing.assert_array_equal(table["y"].to_numpy(), y)
    assert 0.3 < y.mean() < 0.7
    assert not (tmp_path / ".rows-500").exists()


def test_the_model_counts_what_a_step_takes() -> None:
    work = Work(1000, (10, 20, 3), members=2, batch=100)
    assert work.weights == 2 * (11 * 20 + 21 * 3)
    assert work.operations == 2 * 1000 * 2 * (2 * 200 + 3 * 60)
    assert work.bytes_read == 1000 * 10 * 4
    assert work.steps == 10
    assert work.bytes_reduced == 10 * 2 * work.weights * 8
    machine = Machine(operations=1e9, read=1e6)
    alone, both = (machine.seconds(work, ranks) for ranks in (1, 2))
    assert alone["messages"] == 0
    assert both["computing"] == alone["computing"] / 2
    assert total(alone) == max(alone["computing"], alone["reading"])


def test_rates_are_fitted_to_the_record() -> None:
    cells = {}
    for network, widths in (("1 x 128", (100, 128, 2)), ("2 x 128", (100, 128, 128, 2))):
        for n in (1000, 10_000):
            seconds = Work(n, widths).operations / 5e9
            cells[f"memory/{network}/{n}/0"] = {"epoch_seconds": [seconds]}
            cells[f"stream/{network}/{n}/0"] = {"epoch_seconds": [seconds + n * 400 / 2e9]}
    record = {"plan": {"rows": [1000, 10_000]}, "cells": cells}
    found = fitted_cpu(record)
    assert found.operations == pytest.approx(5e9)
    assert found.read == pytest.approx(2e9)
    assert power_of_rows(record, "1 x 128") == pytest.approx(1.0)


def test_a_quick_run_measures_everything_there_is(tmp_path: Path) -> None:
    folders = ["--rows", tmp_path, "--records", tmp_path / "records"]
    done = Started("benchmarks", "scale", "--quick", *folders, OMP_NUM_THREADS="1").end()
    assert done.returncode == 0, done.stderr
    (path,) = (tmp_path / "records").glob("*-scale-quick-cpu.json")
    record = json.loads(path.read_text())
    assert record["finished"]
    assert {key.split("/")[0] for key in record["cells"]} == {"stream", "memory", "ranks", "peer"}
    assert "times as fast" in done.stdout


def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """One kill of one kind; python -m benchmarks kills is the long run."""
    job = _Job("mini-batches", 1, tmp_path, tmp_path / "job")
    cell = job.survive(KillPlan(kills=1))
    assert cell["kills"] == 1
    assert cell["same_bit_for_bit"] == cell["runs"] >= 1
