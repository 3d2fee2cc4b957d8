"""bench speed: medians in turns, exponents, break-even points, and a whole small run."""

import json
import os
from pathlib import Path

import pytest

from protopinv.bench import scaling
from protopinv.bench.record import Record
from protopinv.bench.speed import SpeedPlan, measure_speed
from protopinv.bench.speed_tables import readable, speed_panels, speed_tables
from protopinv.bench.timing import Machine, crossing, exponent, medians
from protopinv.errors import ConfigError


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
    record = measure_speed(plan, device="cpu", folder=tmp_path)
    text = "\n".join(speed_tables(json.loads(record.path.read_text())))
    for word in ("float32", "bfloat16", "listing", "scikit-learn", "predict_proba", "plain paths"):
        assert word in text
    cells = record.cells
    for parts in cells["profile"].values():
        assert "everything else" in parts
        assert any("512" in name for name in parts)
        assert min(parts.values()) >= 0
    assert cells["epoch"]["floor"]["float32"] > cells["epoch"]["floor"]["bfloat16"] / 10
    again = measure_speed(plan, device="cpu", folder=tmp_path)
    assert again.path == record.path
    assert again.cells == cells


def test_scaling_is_measured_told_and_drawn(tmp_path: Path, monkeypatch) -> None:
    small = scaling.Sizes(200, 10, 12, 8)
    monkeypatch.setitem(scaling.BASE, "cpu", small)
    monkeypatch.setattr(scaling, "BREAK_EVEN", (4, 16))
    record = Record(tmp_path, "speed-cpu", {}, "cpu")
    said: list[str] = []
    scaling.measure_scaling(record, "cpu", repeats=1, quick=True, say=said.append)
    assert len(said) == len(scaling.AXES)
    assert record.cells["scaling/p"]["sizes"] == [4, 8, 16, 32, 64]
    assert len(speed_panels(record.content)) == len(scaling.AXES) + 2
