"""Streams: a batch is predicted before it is learned, and a decay chosen without the future."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from benchmarks.continual.drift import DECAYS, PEERS, STREAMS, OneByOne, Stream, _followed, peer
from benchmarks.continual.river_text import (
    LEARNING,
    RECENT,
    ahead_of,
    best,
    chosen_always,
    chosen_first,
    is_error,
    river_tables,
    scores_of,
    tracks_of,
)
from benchmarks.continual.study import RIVER, ContinualPlan
from benchmarks.record import newest_records
from benchmarks.tasks import Rows
from protopinv.errors import MissingExtraError

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"


class Parrot:
    """Says what it has learned last."""

    last: Any = None

    def learn(self, _: np.ndarray, y: np.ndarray) -> None:
        self.last = y[-1]

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.last)

    def predict_one(self, _: dict[int, float]) -> Any:
        return self.last

    def learn_one(self, _: dict[int, float], target: Any) -> None:
        self.last = target


def stream_of(*targets: list[Any], are_numbers: bool = False) -> Stream:
    batches = [Rows(np.zeros((len(y), 2)), np.array(y)) for y in targets]
    return Stream(batches, are_numbers)


def test_a_batch_is_predicted_before_it_is_learned() -> None:
    cell = _followed(Parrot(), stream_of([0, 1], [1, 0], [1, 1], [1, 0]))
    assert cell == {"accuracy": 1 / 3, "after": [0.5, 0.0, 0.5]}
    numbers = _followed(Parrot(), stream_of([1.0, 2.0], [4.0, 5.0], are_numbers=True))
    assert numbers == {"error": 2.5, "after": [2.5]}


def test_one_that_learns_row_by_row_is_scored_both_ways() -> None:
    cell = _followed(OneByOne(Parrot()), stream_of([0, 1], [1, 0], [0, 0]))
    assert cell["after"] == [0.5, 1.0]
    assert cell["row by row"] == 0.75


def test_a_decay_is_chosen_by_scores_that_are_known() -> None:
    n = 20
    tracks = {"calm": [0.9] * 10 + [0.5] * 10, "quick": [0.8] * n}
    assert best(tracks, 0, 6, lower=False) == "calm"
    assert best(tracks, 0, 6, lower=True) == "quick"
    assert chosen_first(tracks, 6, lower=False) == pytest.approx((4 * 0.9 + 10 * 0.5) / 14)
    # two bad batches of five make the mean of calm less than that of quick
    late = 2
    wanted = (4 * 0.9 + late * 0.5 + (10 - late) * 0.8) / 14
    assert chosen_always(tracks, 6, lower=False) == pytest.approx(wanted)


def test_the_future_has_no_say() -> None:
    rng = np.random.default_rng(0)
    tracks = {name: rng.random(12) for name in "abc"}
    changed = {name: np.append(scores[:11], 0.5) for name, scores in tracks.items()}
    known, other = (chosen_always(each, RECENT, lower=False) * 7 for each in (tracks, changed))
    picked = best(tracks, 11 - RECENT, 11, lower=False)
    assert known - tracks[picked][11] == pytest.approx(other - 0.5)


def test_without_river_the_plan_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.datasets", None)
    with pytest.raises(MissingExtraError, match=r"package river.*pip install 'protopinv\[study\]'"):
        ContinualPlan(RIVER)


@pytest.fixture
def record() -> dict[str, Any]:
    """As a study would leave it, with scores that are made up."""
    rng, cells = np.random.default_rng(0), {}
    for seed in range(2):
        for kind in STREAMS:
            score = "error" if kind == "TrumpApproval" else "accuracy"
            for name in (*DECAYS, *PEERS):
                after = rng.random(9).tolist()
                rows = {"row by row": after[0]} if name in PEERS else {}
                cells[f"{kind}/{name}/{seed}"] = {score: after[1], "after": after, **rows}
    place = {"device": "a machine", "python": "3", "commit": "abc", "versions": {"river": "7.8.9"}}
    plan = {"seeds": 2, "part": RIVER}
    return {
        "date": "2026-01-01",
        "environment": place,
        "plan": plan,
        "cells": cells,
        "file": "a file",
    }


def test_errors_are_told_in_their_own_unit(record: dict[str, Any]) -> None:
    header, _, *rows = river_tables(record)
    column = [name.strip() for name in header.split("|")].index("TrumpApproval (error)")
    first = np.mean([record["cells"][f"TrumpApproval/never/{seed}"]["error"] for seed in (0, 1)])
    assert rows[0].split("|")[column].strip().startswith(f"{first:.2f} ±")


def test_the_page_tells_of_streams_and_of_the_choice(record: dict[str, Any]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
    from continual_page import continual_page

    text, figures = continual_page({f"continual-{RIVER}-cpu": record})
    assert set(figures) == {f"continual-{RIVER}.svg"}
    assert "river 7.8.9" in text
    assert text.index("### Streams of river") < text.index("### How to choose a decay")


def test_what_the_page_says_of_choices_is_measured() -> None:
    """Its prose speaks of the newest record."""
    record = newest_records(RECORDS)[f"continual-{RIVER}-cpu"]
    for kind in STREAMS:
        low = is_error(record, kind)
        first, always, hindsight = [], [], []
        for tracks in tracks_of(record, kind):
            n, end = len(tracks["decay 0"]) // 3, len(tracks["decay 0"])
            first.append(chosen_first(tracks, n, lower=low))
            always.append(chosen_always(tracks, n, lower=low))
            hindsight.append(np.mean(tracks[best(tracks, n, end, lower=low)][n:]))
        assert abs(np.mean(always) - np.mean(hindsight)) < (0.05 if low else 0.02)
        if kind in ("Agrawal, abrupt", "SEA, gradual"):
            assert np.mean(first) < np.mean(always)
        means = {name: np.mean(scores_of(record, kind, name)) for name in LEARNING}
        top = (min if low else max)(means.values())
        assert abs(means["decay 0.6"] - top) < (0.05 if low else 0.01)


def test_where_the_forest_is_ahead_is_told_by_means(record: dict[str, Any]) -> None:
    for kind in STREAMS:
        sign = -1 if kind == "TrumpApproval" else 1
        forest = np.mean(scores_of(record, kind, "forest"))
        for name in LEARNING:
            worse = sign * (np.mean(scores_of(record, kind, name)) - forest) < 0
            assert (name in ahead_of(record, kind)) == worse


def joined(batches: list[Rows]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([b.X for b in batches]), np.concatenate([b.y for b in batches])


@pytest.mark.parametrize("name", ["Agrawal, abrupt", "SEA, gradual", "ImageSegments"])
def test_streams_change_where_they_should(name: str) -> None:
    pytest.importorskip("river", reason="needs river, of the extra study")
    batches, again, other = (STREAMS[name](seed).batches for seed in (0, 0, 1))
    np.testing.assert_array_equal(batches[-1].X, again[-1].X)
    assert (batches[0].X != other[0].X).any()
    third = len(batches) // 3
    first, next_, last = (
        joined(part) for part in (batches[:third], [batches[third]], batches[-3:])
    )
    tree = DecisionTreeClassifier(min_samples_leaf=10, random_state=0).fit(*first)
    assert (tree.score(*next_) - tree.score(*last) > 0.05) == (name != "ImageSegments")


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("kind", ["SEA, gradual", "TrumpApproval", "ImageSegments"])
def test_a_peer_learns_two_classes_many_and_numbers(name: str, kind: str) -> None:
    pytest.importorskip("river", reason="needs river, of the extra study")
    whole = STREAMS[kind](0)
    cell = _followed(peer(name, 0, whole), Stream(whole.batches[:3], whole.are_numbers))
    assert cell["row by row"] > 0.5
