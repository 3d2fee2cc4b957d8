"""Who stands where: laws of ranks, and that nothing is dropped without a word."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.tables.standings import (
    cliques,
    contest_of,
    critical_difference,
    field_of,
    log_losses,
    results,
    signed_rank_p,
    standings,
)
from benchmarks.tables.text import absence_lines, contest_tables

NAMES = ("balanced", "scikit-mlp", "linear")
# accuracies on three tables
SCORES = {"a": (0.9, 0.8, 0.7), "b": (0.9, 0.901, 0.5), "c": (0.5, 0.6, 0.4)}
SKIPPED = "kernel methods are left out above 25,000 rows"


def cell(score: float | None = None, *, task: str = "classification", **more: Any) -> dict:
    measures = {"classification": ("accuracy", "balanced_accuracy"), "regression": ("r2",)}[task]
    shape = {"task": task, "rows": 900, "features": 2, "outputs": 2, "left_out": 0}
    if score is None:
        return {**shape, **more}
    times = {"fit_seconds": [2.0, 4.0], "test_seconds": [0.1, 0.1], "row_seconds": [1e-3, 1e-3]}
    return {**shape, **{m: [score, score] for m in measures}, **times, **more}


def record(cells: dict[str, dict], **plan: Any) -> dict[str, Any]:
    usual = {"half": "development", "imbalanced": False, "quick": False, "seeds": 1, "folds": 5}
    usual |= {"scored_folds": [[3000, 5], [15000, 3]], "contestants": list(NAMES), "peers": {}}
    place = {"device": "a lamp", "versions": {"torch": "2"}, "python": "3", "commit": "abc"}
    return {
        "name": "contest-development-cpu",
        "date": "2026-11-16",
        "plan": usual | plan,
        "environment": place,
        "finished": True,
        "cells": cells,
        "file": "record.json",
    }


@pytest.fixture
def cells() -> dict[str, dict]:
    return {
        f"{table}/{name}/seed0": cell(score, log_loss=[1 - score])
        for table, row in SCORES.items()
        for name, score in zip(NAMES, row, strict=True)
    }


def test_standings_follow_the_scores(cells: dict[str, dict]) -> None:
    field = field_of(results(record(cells)), "classification")
    found = {standing.name: standing for standing in standings(field, "scikit-mlp")}
    ours = found["balanced"]
    assert (ours.wins, ours.level, ours.losses) == (1, 1, 1)
    assert ours.mean_rank == pytest.approx((1 + 2 + 2) / 3)
    assert ours.mean == pytest.approx((0.9 + 0.9 + 0.5) / 3)
    assert ours.normalised == pytest.approx((1 + 0.4 / 0.401 + 0.5) / 3)
    assert ours.seconds == pytest.approx(3 * 3.0)
    assert (found["linear"].normalised, found["linear"].p) == (0.0, 0.25)
    assert found["scikit-mlp"].p is None
    assert list(found)[-1] == "linear"


def test_ranks_of_a_table_sum_to_the_same_with_and_without_ties(cells: dict[str, dict]) -> None:
    cells["a/linear/seed0"] = cell(0.9)
    ranks = field_of(results(record(cells)), "classification").ranks()
    k = len(NAMES)
    np.testing.assert_allclose(np.sum(list(ranks.values()), axis=0), k * (k + 1) / 2)
    assert (ranks["balanced"][0], ranks["linear"][0]) == (1.5, 1.5)


def test_the_critical_difference_is_that_of_the_tables() -> None:
    """Of two it is the normal quantile; of five and ten as in Demšar, 2006."""
    assert critical_difference(2, 1) == pytest.approx(1.959964, abs=1e-5)
    assert critical_difference(2, 100) == pytest.approx(0.1959964, abs=1e-6)
    assert critical_difference(5, 30) == pytest.approx(2.728 * math.sqrt(30 / 180), abs=1e-3)
    assert critical_difference(10, 20) == pytest.approx(3.164 * math.sqrt(110 / 120), abs=1e-3)


def test_a_bar_joins_all_that_no_difference_parts() -> None:
    assert cliques([1.0, 1.5, 2.6, 4.0], 1.2) == [(1.0, 1.5), (1.5, 2.6)]
    assert cliques([1.0, 2.0, 3.0], 5.0) == [(1.0, 3.0)]
    assert cliques([1.0, 3.0], 1.0) == []


def test_equal_scores_say_nothing() -> None:
    assert signed_rank_p(np.zeros(4)) == 1.0
    assert signed_rank_p(np.empty(0)) is None
    assert signed_rank_p(np.arange(1.0, 9.0)) == pytest.approx(2 / 2**8)


def test_who_fails_is_last_and_who_stays_away_has_no_rank(cells: dict[str, dict]) -> None:
    cells["a/balanced/seed0"] = cell(error="ValueError: no such luck")
    cells["a/linear/seed0"] = cell(skipped=SKIPPED)
    field = field_of(results(record(cells)), "classification")
    assert field.ranked == ("balanced", "scikit-mlp")
    assert field.column("balanced")[0] == field.column("scikit-mlp")[0] == 0.8
    found = {standing.name: standing for standing in standings(field, "balanced")}
    linear = found["linear"]
    assert (linear.mean_rank, linear.mean, linear.seconds) == (None, None, None)
    assert linear.wins + linear.level + linear.losses == 2  # where both were
    text = "\n".join(contest_tables(record(cells)))
    assert f"linear stayed away from a: {SKIPPED}." in text
    assert "balanced failed on a: ValueError: no such luck." in text


def test_an_r2_far_below_zero_counts_as_minus_one() -> None:
    cells = {
        f"a/{name}/seed0": cell(score, task="regression")
        for name, score in zip(NAMES, (0.5, -40.0, 0.0), strict=True)
    }
    field = field_of(results(record(cells)), "regression")
    np.testing.assert_array_equal(field.scores, [[0.5, -1.0, 0.0]])


def test_lower_log_losses_are_better(cells: dict[str, dict]) -> None:
    found = results(record(cells))
    field = field_of(found, "classification", measure="log_loss")
    assert field.ranks()["linear"].tolist() == [3, 3, 3]
    losses = {loss.name: loss for loss in log_losses(found)}
    assert list(losses) == ["scikit-mlp", "balanced", "linear"]
    assert losses["balanced"].mean == pytest.approx((0.1 + 0.1 + 0.5) / 3)
    assert losses["balanced"].worst_ratio == pytest.approx(0.5 / 0.6)
    assert losses["balanced"].worst_table == "c"


def test_bands_part_the_tables_by_rows(cells: dict[str, dict]) -> None:
    for name in NAMES:
        cells[f"c/{name}/seed0"]["rows"] = 1_001
    found = results(record(cells))
    assert field_of(found, "classification", rows=(0, 1_000)).tables == ("a", "b")
    assert field_of(found, "classification", rows=(1_000, 3_000)).tables == ("c",)
    text = "\n".join(contest_tables(record(cells)))
    assert "up to 1,000 rows (2)" in text
    assert "up to 3,000 rows (1)" in text


def test_parts_are_read_as_one_contest_and_the_newest_counts(cells: dict[str, dict]) -> None:
    old = record(cells)
    new = record({"a/balanced/seed0": cell(0.99)}, contestants=["balanced"])
    new |= {"date": "2026-11-17", "name": "contest-development-ours-cpu"}
    others = [
        record({}, half="confirmation"),
        record({}, quick=True),
        record({}, imbalanced=True),
        {**record({}), "name": "rules-cpu"},
        record({"d/linear/seed0": cell(0.1)}, seeds=2),  # other folds than the newest
    ]
    found = contest_of([new, *others, old], "development")
    assert found is not None
    assert found["plan"]["contestants"] == list(NAMES)
    assert len(found["cells"]) == 9
    assert found["cells"]["a/balanced/seed0"]["accuracy"] == [0.99, 0.99]
    assert contest_of(others[2:4], "development") is None


def test_times_of_another_machine_are_not_compared(cells: dict[str, dict]) -> None:
    here, there = ({"device": name, "threads": 1} for name in ("here", "there"))
    ours = {key: cell for key, cell in cells.items() if "/balanced/" in key}
    theirs = {key: cell for key, cell in cells.items() if "/balanced/" not in key}
    parts = [record(ours, contestants=["balanced"]), record(theirs, contestants=list(NAMES[1:]))]
    for part, machine in zip(parts, (here, there), strict=True):
        part |= {"environment": machine, "name": f"contest-development-{machine['device']}-cpu"}
    for clock, seconds in ((there, None), (here, 9.0)):
        parts[1]["environment"] = clock
        found = contest_of(parts, "development")
        assert found is not None
        field = field_of(results(found), "classification")
        by_name = {standing.name: standing for standing in standings(field, "balanced")}
        assert by_name["balanced"].seconds == 9.0
        assert by_name["linear"].seconds == seconds
        assert by_name["linear"].mean_rank is not None
        assert by_name["linear"].times == (None if seconds is None else 1.0)
    again = {**parts[0], "date": "2027-01-01", "environment": there}
    again["name"] = "contest-development-again-cpu"
    found = contest_of([*parts, again], "development")  # the newest of ours sets the clock
    assert found is not None
    field = field_of(results(found), "classification")
    times = {standing.name: standing.seconds for standing in standings(field, "balanced")}
    assert times == {"balanced": 9.0, "scikit-mlp": None, "linear": None}


def test_what_is_missing_and_what_was_otherwise_is_told(cells: dict[str, dict]) -> None:
    del cells["b/linear/seed0"]
    cells["a/linear/seed0"]["remark"] = "trained on a GPU"
    lines = absence_lines(results(record(cells)))
    assert lines == ["- linear on a: trained on a GPU.", "- linear was not measured on b."]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    import contest_page

    yield contest_page
    for name in (
        "contest_page",
        "contest_figures",
        "results_page",
        "results_summary",
        "results_figures",
    ):
        sys.modules.pop(name, None)


def test_the_page_is_made_with_and_without_records(cells: dict[str, dict], page: Any) -> None:
    lines, drawn = page.contest_section({})
    assert drawn == {}
    assert lines.count(page.NONE_YET) == 2
    assert page.rules_worth(None)[0] == page.NO_RULES_YET

    cells["a/linear/seed0"] = cell(skipped=SKIPPED)
    cells["b/linear/seed0"]["left_out"] = 3
    newest = {"contest-development-cpu": record(cells)}
    lines, drawn = page.contest_section(newest)
    text = "\n".join(lines)
    assert f"- linear stayed away from a: {SKIPPED}." in text
    assert "- b: 3 rows of classes were too rare for folds." in text
    assert "| linear     | -  " in text
    assert lines.count(page.NONE_YET) == 1  # of the other half
    assert set(drawn) == {"contest-development-classification.svg"}
    assert drawn == page.contest_section(newest)[1]  # the same every time
    rules = page.rules_worth(record(cells, contestants=list(NAMES)))
    assert any("linear" in line for line in rules)
