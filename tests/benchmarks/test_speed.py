"""Speed: medians in turns, exponents, break-even points, and a whole small run."""

import json
import os
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.record import Record, Records
from benchmarks.speed import scaling
from benchmarks.speed.steps import StepFigures
from benchmarks.speed.study import SpeedPlan, measure_speed, speed_panels, speed_tables
from benchmarks.tasks import Rows, Task
from benchmarks.text import readable
from benchmarks.timing import Machine, crossing, exponent, measure_machine, medians
from protopinv.errors import ConfigError
from protopinv.kernels import fast_bfloat16


def test_works_take_turns_and_the_first_round_is_not_counted() -> None:
    calls: list[str] = []
    works = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    found = medians(works, repeats=2, device="cpu")
    assert calls == ["a", "b"] * 3
    assert all(value >= 0 for value in found.values())


def test_the_exponent_of_a_power_law_is_its_power() -> None:
    sizes = [10, 20, 40]
    assert exponent(sizes, [3 * n**1.5 for n in sizes]) == pytest.approx(1.5)


def test_two_power_laws_cross_where_they_are_equal() -> None:
    sizes = [10, 30, 100]
    flat, steep = [50.0] * 3, [float(n) for n in sizes]
    assert crossing(sizes, flat, steep) == pytest.approx(50)
    assert crossing(sizes, [1.0] * 3, steep) is None


def test_the_floor_is_the_longer_of_computing_and_moving() -> None:
    machine = Machine(float32=1e9, bfloat16=2e9, bandwidth=1e8)
    assert machine.floor(1e9, 1e6, "float32") == pytest.approx(1)
    assert machine.floor(1e9, 1e6, "bfloat16") == pytest.approx(0.5)
    assert machine.floor(1e9, 1e9, "float32") == pytest.approx(10)


@pytest.mark.parametrize(
    ("time", "text"), [(2.5, "2.5 s"), (0.25, "250 ms"), (0.00125, "1.25 ms"), (42e-6, "42 µs")]
)
def test_times_are_told_in_a_unit_that_suits_them(time: float, text: str) -> None:
    assert readable(time) == text


def test_a_plan_without_repeats_is_refused() -> None:
    with pytest.raises(ConfigError, match="repeats"):
        SpeedPlan(repeats=0)


@pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)
def test_a_small_run_tells_every_figure_and_is_continued(tmp_path: Path) -> None:
    plan = SpeedPlan(repeats=1, seeds=1, scaling=False, quick=True)
    record = measure_speed(plan, Records(tmp_path), device="cpu")
    text = "\n".join(speed_tables(json.loads(record.path.read_text())))
    for word in ("float32", "bfloat16", "listing", "scikit-learn", "predict_proba", "plain paths"):
        assert word in text
    cells = record.cells
    for parts in cells["profile"].values():
        assert "everything else" in parts
        assert any("512" in name for name in parts)
        assert min(parts.values()) >= 0
    floors = cells["epoch"]["floor"]
    assert floors["float32"] > floors.get("bfloat16", 0.0) / 10
    again = measure_speed(plan, Records(tmp_path), device="cpu")
    assert again.path == record.path
    assert again.cells == cells


def noise(n: int, seed: int) -> Rows:
    random = np.random.default_rng(seed)
    return Rows(random.integers(0, 256, (n, 784), dtype=np.uint8), np.arange(n) % 10)


def test_bfloat16_is_measured_where_it_is_fast_and_nowhere_else(tmp_path: Path) -> None:
    fast = fast_bfloat16(torch.device("cpu"))
    machine = measure_machine("cpu", repeats=1)
    assert (machine.bfloat16 is not None) == fast
    task = Task("noise", noise(500, 0), noise(50, 1), noise(50, 2))
    figures = StepFigures("cpu", machine, task, repeats=1, quick=True)
    record = Record(tmp_path, "speed-cpu", {}, "cpu")
    record.cell("machine", lambda: asdict(machine))
    for key, work in figures.all().items():
        record.cell(key, work)
    for path in figures.paths():
        record.cell(f"accuracy/{path}/seed0", partial(figures.accuracy, path, 0))
    kept = json.loads(record.path.read_text())
    kinds = {"float32", "bfloat16"} if fast else {"float32"}
    assert set(kept["cells"]["profile"]) == set(kept["cells"]["epoch"]["floor"]) == kinds
    text = "\n".join(speed_tables(kept))
    lines = [line for line in text.splitlines() if "epoch, bfloat16" in line or "t16 rows" in line]
    assert len(lines) >= 2
    assert all(("not here" in line) != fast for line in lines)


def test_scaling_is_measured_told_and_drawn(tmp_path: Path, monkeypatch) -> None:
    small = scaling.Sizes(200, 10, 12, 8)
    monkeypatch.setitem(scaling.BASE, "cpu", small)
    monkeypatch.setattr(scaling, "BREAK_EVEN", (4, 16))
    said: list[str] = []
    record = Record(tmp_path, "speed-cpu", {}, "cpu", say=said.append)
    scaling.measure_scaling(record, "cpu", repeats=1, quick=True)
    assert len(said) == len(scaling.AXES)
    assert record.cells["scaling/p"]["sizes"] == [4, 8, 16, 32, 64]
    assert len(speed_panels(record.content)) == len(scaling.AXES) + 2
