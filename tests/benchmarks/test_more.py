"""More prototypes where ours is behind: the same winners, and a page that says what came of it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.images.accuracy import corrected_meetings, winner_of
from benchmarks.images.contenders import ROWS
from benchmarks.images.more import MorePlan, enlarged, more_found
from benchmarks.record import newest_records
from benchmarks.tasks import NAMES

ROOT = Path(__file__).parents[2]
NEWEST = newest_records(ROOT / "benchmarks" / "records")


def made_up(gain: float) -> dict[str, Any]:
    plan = MorePlan()
    cells = {}
    for row in plan.rows:
        ours = winner_of(NEWEST[f"accuracy-{row}-fashion-mnist-cuda"], "protopinv")["held_out"]
        for seed, score in enumerate(ours):
            cells[f"{row}/seed{seed}"] = {"held_out": score + gain / 100}
    return {"plan": {**vars(plan), "rows": list(plan.rows)}, "cells": cells}


def test_a_winner_is_the_best_mean_of_three_seeds_and_was_tested() -> None:
    for row in ROWS:
        record = NEWEST[f"accuracy-{row.key}-mnist-cuda"]
        winner = winner_of(record, "protopinv")
        assert len(winner["held_out"]) == 3
        tested = record["cells"][f"test/{row.key}/protopinv/seed0"]["parameters"]
        found = {n: list(v) if isinstance(v, tuple) else v for n, v in winner["parameters"].items()}
        assert found.items() <= tested.items()


def test_ridges_grow_with_the_prototypes() -> None:
    grown = enlarged({"n_prototypes": 50, "ridge": (2.0, 0.5), "lr": 0.1}, 3)
    assert grown == {"n_prototypes": 150, "ridge": (6.0, 1.5), "lr": 0.1}


@pytest.mark.parametrize(("gain", "seen"), [(3.0, True), (0.0, False)])
def test_the_page_says_whether_more_prototypes_help(
    gain: float, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = made_up(gain)
    assert all(each.gain.is_more == seen for each in more_found(record, NEWEST))
    monkeypatch.syspath_prepend(ROOT / "docs")
    try:
        from results_summary import beyond_section

        told = "\n".join(beyond_section({**NEWEST, "more-fashion-mnist-cuda": record}))
    finally:
        sys.modules.pop("results_summary", None)
    assert ("is what it lacks" in told) == seen
    assert ("the reason is another" in told) != seen


def test_the_plain_statement_of_the_page_holds_in_the_records() -> None:
    """Best with one hidden layer on rows as they are; no lead is seen where there is more."""
    records = [NEWEST[f"accuracy-{row.key}-{d}-cuda"] for row in ROWS for d in NAMES]
    meetings = {(m.row.key, m.dataset): m for m in corrected_meetings(*records)}
    for dataset in NAMES:
        ahead = {key: m.ahead.mean for (key, name), m in meetings.items() if name == dataset}
        assert ahead["one"] >= max(ahead.values()) - 0.01
    assert not any(m.ahead.is_more for (key, _), m in meetings.items() if key != "one")
    assert any(m.ahead.is_less for (_, name), m in meetings.items() if name == "fashion-mnist")
