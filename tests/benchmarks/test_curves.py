"""Learning curves: samples that grow, rows that none of them holds, and where a curve falls."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.record import Records
from benchmarks.tables import curves
from benchmarks.tables.curves import (
    CurvePlan,
    Lesson,
    curve_tables,
    curves_of,
    largest_step_down,
    learn,
    measure_curves,
)
from benchmarks.tables.suite import Table
from protopinv.errors import ConfigError


def test_curves_are_measured_kept_and_told(tmp_path: Path) -> None:
    plan = CurvePlan(("linear", "svm"), tables=("wine", "diabetes"), quick=True)
    record = measure_curves(plan, Records(tmp_path), wheels=None)
    sizes = {"wine": (100,), "diabetes": (100, 150)}  # 178 rows less the test leave 143
    assert set(record.cells) == {
        f"{table}/{who}/{size}/seed0"
        for table, several in sizes.items()
        for size in several
        for who in ("linear", "svm")
    }
    assert record.cells["wine/linear/100/seed0"]["accuracy"] > 0.9
    assert measure_curves(plan, Records(tmp_path), wheels=None).kept == 6
    found = curves_of(record.content)
    assert list(found["diabetes"]["svm"]) == [150, 100]
    assert list(curves_of(record.content, "log_loss")) == ["wine"]
    text = "\n".join(curve_tables(record.content))
    assert "| wine   | 100" in text


def test_a_smaller_sample_is_part_of_a_larger_and_no_test_row_is_learned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Any, Any]] = []

    def note(_: Table, __: Any, train: Any, test: Any) -> dict[str, float]:
        seen.append((set(train), set(test)))
        return {"r2": 0.0}

    monkeypatch.setattr(curves, "fit_and_score", note)
    table = Table("made", "regression", np.zeros((200, 2)), np.arange(200.0))
    for size in (50, 100, 160):
        learn(Lesson(table, "linear", size, 3))
    (small, test), (middle, _), (large, last) = seen
    assert small < middle < large
    assert test == last
    assert len(test) == 40
    assert not large & test


def test_a_class_that_no_row_had_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(curves, "fit_and_score", lambda *given: asked.append(given) or {})
    y = np.zeros(100, dtype=int)
    y[np.random.default_rng(0).permutation(100)[80:]] = 1  # in the test rows only
    learn(Lesson(Table("made", "classification", np.zeros((100, 1)), y), "linear", 60, 0))
    assert len(asked[0][3]) == 0
    learn(Lesson(Table("made", "classification", np.zeros((100, 1)), 5 + y), "linear", 60, 0))
    table, _, train, _ = asked[1]
    assert set(table.y[train]) == {0}  # probabilities have a column for each class that was seen


def test_the_largest_step_down() -> None:
    assert largest_step_down({100: [0.5, 0.7], 200: [0.5], 400: [0.9]}) == (
        pytest.approx(0.1),
        100,
    )
    fall, after = largest_step_down({100: [0.5], 200: [0.6], 300: [0.9]})
    assert fall < 0
    assert after == 100
    assert largest_step_down({100: [0.5]})[0] == -np.inf


def test_bad_plans_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="sizes must be 1 or more"):
        CurvePlan(sizes=())
    with pytest.raises(ConfigError, match="tables must be some of"):
        measure_curves(CurvePlan(tables=("moon",)), Records(tmp_path), wheels=None)
    assert list(tmp_path.iterdir()) == []


def test_the_page_tells_of_steps_and_of_the_slowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    import curves_page

    try:
        _page(curves_page)
    finally:
        for name in ("curves_page", "results_page", "results_summary", "results_figures"):
            sys.modules.pop(name, None)


def _page(curves_page: Any) -> None:
    assert curves_page.curves_section(None) == ([], {})
    assert curves_page.gpu_section({}) == []
    environment = {"device": "it", "threads": 1, "python": "3", "versions": {}, "commit": "c"}
    head = {"date": "2026-01-01", "environment": environment, "file": "f.json"}
    scores = {100: 0.8, 200: 0.74, 300: 0.9}
    cells = {
        f"t/{who}/{size}/seed0": {"task": "regression", "rows": size, "r2": score}
        for who in ("quick", "linear")
        for size, score in scores.items()
    }
    plan = {"seeds": 1, "contestants": ["linear", "quick"]}
    record = {**head, "name": "curves-cpu", "plan": plan, "cells": cells}
    lines, drawn = curves_page.curves_section(record)
    assert list(curves_of(record)["t"]) == ["linear", "quick"]  # as planned, not as measured
    said = " ".join(lines)
    assert "6.00 points, of `quick` on t after 100 rows" in said
    assert drawn["curves.svg"].startswith(b"<?xml")

    plan = {"half": "development", "imbalanced": False, "quick": False, "device": "cuda"}
    plan |= {"seeds": 1, "folds": 5, "scored_folds": [], "contestants": ["balanced"]}
    shape = {"task": "regression", "features": 2, "outputs": 1}
    cells = {
        f"{name}/balanced/seed0": {**shape, "rows": rows, "fit_seconds": times}
        for name, rows, times in (
            ("slow", 900, [9.0, 2.5, 2.0]),
            ("quick", 900, [0.25]),
            ("huge", 60_000, [50.0]),
        )
    }
    part = {**head, "name": "contest-development-cuda", "plan": plan, "cells": cells}
    text = "\n".join(curves_page.gpu_section({part["name"]: part}))
    slow, quick = (next(x for x in text.splitlines() if f"| {n} " in x) for n in ("slow", "quick"))
    assert text.index(slow) < text.index(quick)
    assert "| 2.25 s" in slow  # without the first, which compiles
    assert "| 9 s" in slow
    assert quick.count("| 250 ms") == 2
    assert "huge" not in text
