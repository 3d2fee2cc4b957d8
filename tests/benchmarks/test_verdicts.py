"""Verdicts on records whose answer is known, and the recipes against the record they come from."""

import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paper.ablations import (
    CHOOSING,
    AblationPlan,
    changes_key,
    chosen_changes,
    run_key,
    settings_of,
)
from benchmarks.paper.evidence import Ablations, rank_correlation, sweep_tables
from benchmarks.paper.methods import METHODS
from benchmarks.paper.sweeps import SWEEPS
from benchmarks.paper.table1 import paper_table, table_rows
from benchmarks.paper.verdicts import RULES, Verdict, read_claims, verdicts
from benchmarks.recipes import RECIPES, SHAPE
from benchmarks.record import newest_records
from benchmarks.tasks import NAMES
from benchmarks.text import percent

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "benchmarks" / "records"
SPLITS, SEEDS = 3, 5

Effect = Callable[[str, str], float]
Change = Callable[[str, str, dict[str, Any]], None]


def no_effect(sweep: str, label: str) -> float:
    return 0.0


def noise(split: int, seed: int, setting: int) -> float:
    """A tenth of a point between settings, and half a point between splits, which pairs undo."""
    return 0.005 * split + 0.0004 * ((7 * seed + 3 * setting + 5 * split) % 5 - 2)


def cell_of(accuracy: float, number: int) -> dict[str, Any]:
    """A run with nothing remarkable about it, but its accuracy."""
    wiggle = 0.01 * (number % 7)
    return {
        "held_out": accuracy,
        "train": 0.99,
        "best_held_out": accuracy,
        "early_roughness": 0.1 + 0.1 * wiggle,
        "skipped_steps": 0,
        "rate_cuts": 0,
        "ridge": [63.0, 0.07],
        "curve": {"10": accuracy, "25": accuracy},
        "every_epoch": [accuracy] * 250,
        "misses": {"own": [0.1] * 8, "all": [0.1] * 8},
        "generalisation": {
            "error_gap": 0.01 + 0.001 * wiggle,
            "loss_gap": 0.1,
            "kappa": 100.0 + (number * 37) % 11,
            "kappa_term": 0.1,
            "confidence_term": 0.005,
            "system_kappa": 10.0,
            "frobenius_norm": 1.0,
            "spectral_norm": 1.0,
            "inverse_margin": 1.0,
            "spectral_over_margin": None,
        },
        "layers": [{"condition": 100.0, "effective_rank": 5.0}] * 2,
        "allocation": {
            "start": [15] * 10,
            "end": [15] * 10,
            "mass": [0.1] * 10,
            "moved": 0,
            "ambiguity": [label / 10 for label in range(10)],
        },
    }


def ablations(dataset: str, effect: Effect = no_effect, change: Change | None = None) -> Ablations:
    """A record in which a setting adds ``effect`` points to 98 %, with the same noise everywhere.

    Of every list of choices the last has won, but of sixteen the last but one.
    """
    recipe = RECIPES[dataset]
    settings = settings_of(tuple(SWEEPS), recipe)
    cells: dict[str, Any] = {}
    for setting in settings.values():
        for number, choice in enumerate(setting.choices):
            key = run_key(recipe, {**setting.changes, **choice}, CHOOSING, 0)
            score = 0.9 + 0.001 * (number % 15)
            cells[key] = {"held_out": max(score, cells.get(key, {"held_out": 0})["held_out"])}
    chosen = chosen_changes(cells, settings, recipe, quick=False)
    for number, (place, changes) in enumerate(chosen.items()):
        sweep, _, label = place.partition("/")
        added, name = effect(sweep, label), changes_key(recipe, changes)
        for split, seed in product(range(1, SPLITS + 1), range(SEEDS)):
            key = f"{name}/split{split}/seed{seed}"
            if key in cells and not added and change is None:
                continue
            cell = cells.get(key) or cell_of(0.0, number)
            if added or key not in cells:
                cell["held_out"] = 0.98 + added / 100 + noise(split, seed, number)
                cell["curve"] = dict.fromkeys(("10", "25"), cell["held_out"])
            if change is not None:
                change(sweep, label, cell)
            cells[key] = cell
    plan = {"dataset": dataset, "splits": SPLITS, "seeds": SEEDS, "overlap": 1 / 9, "quick": False}
    plan |= {"recipe": {**SHAPE, **recipe}, "sweeps": list(SWEEPS)}
    return Ablations({"plan": plan, "cells": cells})


def judged(key: str, mnist: Ablations, fashion: Ablations) -> Verdict:
    records = {f"nested-{d}-cuda": a.record for d, a in zip(NAMES, (mnist, fashion), strict=True)}
    return next(verdict for verdict in verdicts(records) if verdict.claim.key == key)


def both(effect: Effect = no_effect, change: Change | None = None) -> tuple[Ablations, Ablations]:
    return ablations("mnist", effect, change), ablations("fashion-mnist", effect, change)


def adds(points: float, sweep: str, *labels: str) -> Effect:
    return lambda s, label: points if s == sweep and label in labels else 0.0


RATES = ("0.01", "0.05", "0.1", "0.2")
DEEP = ("4 x 256", "6 x 256", "8 x 256")


@pytest.mark.parametrize(
    ("key", "effect", "expected"),
    [
        ("ablation-prototypes", no_effect, "confirmed"),
        ("ablation-prototypes", adds(0.5, "prototypes", "300", "600"), "wrong"),
        ("ablation-prototypes-fashion", adds(0.5, "prototypes", "300"), "confirmed"),
        ("ablation-prototypes-fashion", no_effect, "wrong"),
        ("ablation-width", adds(1.0, "width", "768", "1024"), "confirmed"),
        ("ablation-width", adds(1.0, "width", "256", "512", "768", "1024"), "different"),
        ("ablation-width", adds(1.0, "width", "1024"), "different"),
        ("ablation-ridge", adds(0.25, "ridge", "last learned"), "confirmed"),
        ("ablation-ridge", adds(2.0, "ridge", "last learned"), "different"),
        ("ablation-ridge", no_effect, "wrong"),
        ("ablation-first-ridge", adds(-1.0, "ridge", "first learned"), "confirmed"),
        ("ablation-first-ridge", no_effect, "wrong"),
        ("ablation-dropout-hurts", adds(-1.0, "dropout", *RATES), "confirmed"),
        ("ablation-dropout-hurts", adds(-1.0, "dropout", "0.2"), "different"),
        ("extended-dropout", adds(-1.0, "dropout", "0.1", "0.2"), "confirmed"),
        ("extended-dropout", adds(-1.0, "dropout", "0.2"), "different"),
        ("extended-dropout", no_effect, "wrong"),
        ("ablation-decays", adds(1.0, "decay", "two decays, best of 16"), "confirmed"),
        ("method-output-decay", no_effect, "confirmed"),
        ("method-output-decay", adds(1.0, "output-decay", "T = 1, decay, best of 3"), "different"),
        ("introduction-hidden", adds(-1.0, "parts", "hidden fixed"), "confirmed"),
        ("introduction-hidden", no_effect, "wrong"),
        ("method-balanced", adds(-1.0, "outputs", "normal"), "confirmed"),
        ("method-balanced", no_effect, "wrong"),
        ("method-penalty", adds(0.6, "penalty", "1e-06"), "confirmed"),
        ("method-penalty", no_effect, "wrong"),
        ("method-temperature", no_effect, "confirmed"),
        ("method-temperature", adds(-2.0, "temperature", "0.1", "1.0", "3.0"), "wrong"),
        ("method-inputs", adds(-1.0, "inputs", "normal"), "wrong"),
        ("method-pca", adds(-1.0, "projection", "PCA-100"), "different"),
        ("limits-depth", no_effect, "wrong"),
        ("limits-depth", adds(-1.0, "depth", *DEEP), "confirmed"),
        ("limits-depth", adds(-1.0, "depth", "8 x 256"), "confirmed"),
        ("limits-few", adds(-3.0, "few", "10, ridge x 10", "25, ridge x 0.1"), "confirmed"),
        ("limits-few", no_effect, "wrong"),
    ],
)
def test_a_claim_is_judged_by_what_was_measured(key: str, effect: Effect, expected: str) -> None:
    found = judged(key, *both(effect))
    assert found.judgement == expected
    assert f"n = {SPLITS * SEEDS}" in found.evidence or found.evidence.startswith("as for")


def passing(epoch: int) -> list[float]:
    return [0.5] * (epoch - 1) + [0.99] * (251 - epoch)


@pytest.mark.parametrize(
    ("reached", "expected"), [(90, "confirmed"), (150, "different"), (220, "wrong")]
)
def test_time_to_best_is_when_cosine_passes_the_best_of_a_constant_rate(
    reached: int, expected: str
) -> None:
    """The constant rate passes its own best after 200 epochs, a few more or less."""

    def change(sweep: str, label: str, cell: dict[str, Any]) -> None:
        if sweep == "schedule":
            shift = round(1e4 * cell["held_out"]) % 5
            constant = label.startswith("constant")
            cell["every_epoch"] = passing((200 if constant else reached) + shift)

    assert judged("ablation-schedule", *both(change=change)).judgement == expected


@pytest.mark.parametrize(("factor", "expected"), [(0.5, "confirmed"), (3.0, "wrong")])
def test_smoothness_is_judged_by_roughness(factor: float, expected: str) -> None:
    def change(sweep: str, label: str, cell: dict[str, Any]) -> None:
        if sweep == "dropout":
            wiggle = 1e-3 * (round(1e4 * cell["held_out"]) % 5)
            cell["early_roughness"] = (0.1 if label == "0.0" else 0.1 * factor) + wiggle

    assert judged("ablation-dropout-smooths", *both(change=change)).judgement == expected


@pytest.mark.parametrize(("sign", "expected"), [(1, "confirmed"), (-1, "wrong")])
def test_allocation_is_judged_by_rank_correlation(sign: int, expected: str) -> None:
    def change(sweep: str, label: str, cell: dict[str, Any]) -> None:
        end = [15 + sign * (number - 4) for number in range(10)]
        cell["allocation"] = {**cell["allocation"], "end": end, "moved": 20}

    assert judged("ablation-allocation", *both(change=change)).judgement == expected


@pytest.mark.parametrize(("sign", "expected"), [(1, "confirmed"), (-1, "wrong"), (0, "wrong")])
def test_kappa_must_follow_the_gap(sign: float, expected: str) -> None:
    numbers = iter(range(10**6))

    def change(sweep: str, label: str, cell: dict[str, Any]) -> None:
        number = next(numbers)
        gap = {"error_gap": 0.001 * number, "kappa": 1e6 + sign * number}
        if not sign:
            gap["kappa"] = (number * 7919) % 1009
        cell["generalisation"] = {**cell["generalisation"], **gap}

    assert judged("proposition-kappa", *both(change=change)).judgement == expected


def test_splits_that_differ_do_not_hide_a_small_effect() -> None:
    """Half a point between splits, an effect of 0.3: pairs see it."""
    data, _ = both(adds(-0.3, "parts", "hidden fixed"))
    found = data.difference("parts", "all trained", "hidden fixed")
    assert found.mean == pytest.approx(0.3, abs=0.1)
    assert found.margin < 0.15
    assert data.score("parts", "all trained").sd > 0.3


def test_what_is_judged_is_what_was_chosen_on_the_first_split() -> None:
    data = ablations("mnist")
    setting = SWEEPS["decay"].settings(RECIPES["mnist"])["two decays, best of 16"]
    assert data.chosen["decay/two decays, best of 16"] == setting.choices[-2]
    for cells in (data.runs("decay", label) for label in data.labels("decay")):
        assert len(cells) == SPLITS * SEEDS
        assert cells[0] is not cells[-1]


def test_every_claim_of_the_paper_has_a_row_and_every_row_a_claim() -> None:
    claims = read_claims()
    assert {claim.key for claim in claims} == set(RULES)
    told = verdicts(newest_records(RECORDS))
    assert [verdict.claim for verdict in told] == claims
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for verdict in told:
        row = f"| {verdict.claim.place} | {verdict.claim.quote} | **{verdict.judgement}** |"
        assert row in page, row
        assert verdict.evidence


def test_what_is_said_to_be_shown_by_a_test_is() -> None:
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
    }
    named = {
        name
        for verdict in verdicts(newest_records(RECORDS))
        for name in re.findall(r"`(test_\w+)`", verdict.evidence)
    }
    assert len(named) > 8
    assert named <= there


def test_without_records_nothing_measured_is_judged() -> None:
    told = verdicts({})
    measured = [v for v in told if "no record" in v.evidence]
    assert len(measured) > 20
    assert {v.judgement for v in measured} == {"not tested"}


def test_the_table_is_judged_by_its_record() -> None:
    told = {v.claim.key: v for v in verdicts(newest_records(RECORDS))}
    assert told["table-elm"].judgement == "confirmed"
    assert told["table-elm-small"].judgement == "wrong"
    assert told["table-rf-linear"].judgement == "wrong"
    assert told["table-times"].judgement == "not tested"  # another GPU
    assert told["abstract-size"].judgement == "different"
    assert told["contribution-complexity"].judgement == "wrong"


def test_rank_correlation_knows_order_infinity_and_constants() -> None:
    assert rank_correlation([1, 2, float("inf")], [5, 6, 7]) == pytest.approx(1)
    assert rank_correlation([3, 2, 1], [5, 6, 7]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [5, 6, 7]) == 0


def test_tables_hold_every_setting() -> None:
    lines = sweep_tables([data.record for data in both()])
    for sweep in SWEEPS:
        for label in SWEEPS[sweep].settings(RECIPES["mnist"]):
            assert any(line.startswith(f"| {label} ") for line in lines), label


def test_the_recipes_are_what_the_recorded_search_chose() -> None:
    cells = newest_records(RECORDS)["paper-cuda"]["cells"]
    for dataset, recipe in RECIPES.items():
        chosen = cells[f"test/protopinv/{dataset}/seed0"]["parameters"]
        found = {k: tuple(v) if isinstance(v, list) else v for k, v in chosen.items()}
        now = {**SHAPE, **recipe}
        assert found == {name: now[name] for name in found}  # the record names no defaults
        assert set(recipe) <= set(found)


def test_the_table_gives_mean_and_deviation_over_seeds() -> None:
    record = newest_records(RECORDS)["paper-cuda"]
    rows = {row.method.key: row for row in table_rows(record)}
    assert set(rows) <= {method.key for method in METHODS}
    cells = [record["cells"][f"test/protopinv/mnist/seed{seed}"]["test"] for seed in range(5)]
    assert rows["protopinv"].scores["mnist"] == percent(cells)
    assert rows["protopinv"].scores["mnist"].mean >= 98.1
    assert rows["protopinv"].scores["fashion-mnist"].mean >= 89.5
    shown = f"{percent(cells)} (n = 5); paper 97.8"
    assert any(shown in line for line in paper_table(record))


def test_the_page_takes_new_records_as_soon_as_they_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    names = ("results_page", "results_summary", "results_figures")
    try:
        from results_page import results_page

        newest = newest_records(RECORDS)
        environment = newest["paper-cuda"]["environment"]
        for dataset, data in zip(NAMES, both(adds(-1.0, "parts", "hidden fixed")), strict=True):
            record = {**data.record, "environment": environment, "date": "2026-01-01"}
            newest[f"nested-{dataset}-cuda"] = {**record, "file": "made-up.json"}
        page, figures = results_page(newest)
    finally:
        for name in names:
            sys.modules.pop(name, None)
    assert "record made-up.json" in page
    assert "| hidden fixed " in page
    assert "there is no record of it yet; `make ablations`" not in page
    assert set(figures) >= {"sweeps.svg", "gap.svg", "schedules.svg"}


def test_a_plan_asks_for_as_many_splits_as_there_are() -> None:
    with pytest.raises(Exception, match=r"splits must be at most 9\. Got 10\. Lower it\."):
        AblationPlan("mnist", splits=10)
