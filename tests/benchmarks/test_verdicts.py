"""Verdicts on records whose answer is known, and the recipes against the record they come from."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.paper.table_verdicts import table_verdicts
from benchmarks.paper.theory_verdicts import theory_verdicts

from benchmarks.paper.ablations import SEARCHED_PARTS, cell_key
from benchmarks.paper.evidence import Ablations, rank_correlation
from benchmarks.paper.methods import METHODS
from benchmarks.paper.recipes import RECIPES
from benchmarks.paper.sweeps import SWEEPS, decay_label
from benchmarks.paper.table1 import table_rows
from benchmarks.paper.text import paper_table, sweep_tables
from benchmarks.paper.verdicts import CLAIMS, verdicts
from protopinv.bench.markdown import markdown
from protopinv.bench.record import newest_records
from protopinv.bench.scores import percent
from protopinv.bench.shape import SHAPE

RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
SEEDS = 3
NOISE = (-0.001, 0.0, 0.001)  # one tenth of a point between seeds

Effect = Callable[[str, str], float]


def no_effect(sweep: str, label: str) -> float:
    return 0.0


def cell_of(accuracy: float, **parts: Any) -> dict[str, Any]:
    """A run with nothing remarkable about it, but its accuracy."""
    flat = {"condition": 100.0, "effective_rank": 5.0}
    cell = {
        "held_out": accuracy,
        "test": accuracy,
        "best_held_out": accuracy,
        "best_epoch": 200,
        "early_roughness": 0.1,
        "skipped_steps": 0,
        "ridge": [63.0, 0.07],
        "curve": {"10": accuracy, "25": accuracy},
        "every_epoch": [accuracy] * 250,
        "layers": [flat, flat],
        "generalisation": {
            "error_gap": 0.01,
            "loss_gap": 0.1,
            "kappa": 100.0,
            "system_kappa": 10.0,
            "frobenius_norm": 1.0,
            "spectral_norm": 1.0,
            "inverse_margin": 1.0,
            "spectral_over_margin": None,
        },
        "allocation": {
            "start": [15] * 10,
            "end": [15] * 10,
            "mass": [0.1] * 10,
            "moved": 0,
            "ambiguity": [label / 10 for label in range(10)],
        },
    }
    return {**cell, **parts}


def ablations(dataset: str, effect: Effect = no_effect, **parts: Any) -> Ablations:
    """A record in which a setting adds ``effect`` points to 98 %, the same noise everywhere."""
    recipe = RECIPES[dataset]
    cells: dict[str, Any] = {}
    for seed, noise in enumerate(NOISE):
        for sweep in SWEEPS:
            for label, changes in SWEEPS[sweep].settings(recipe).items():
                added = effect(sweep, label)
                key = cell_key(recipe, changes, seed)
                if key not in cells or added:
                    cells[key] = cell_of(0.98 + added / 100 + noise, **parts)
        for part in SEARCHED_PARTS:
            added = effect("searched", part)
            cells[f"searched/{part} fixed/seed{seed}"] = cell_of(0.98 + added / 100 + noise)
    plan = {"dataset": dataset, "seeds": SEEDS, "recipe": {**SHAPE, **recipe}}
    return Ablations({"plan": {**plan, "sweeps": list(SWEEPS)}, "cells": cells})


def judged(claim: str, mnist: Ablations, fashion: Ablations) -> str:
    records = {"mnist": mnist, "fashion-mnist": fashion}
    found = [*verdicts(records), *theory_verdicts(records)]
    (verdict,) = {v.judgement for v in found if v.claim.startswith(claim)}
    return verdict


def both(effect: Effect = no_effect, **parts: Any) -> tuple[Ablations, Ablations]:
    return ablations("mnist", effect, **parts), ablations("fashion-mnist", effect, **parts)


def adds(points: float, sweep: str, *labels: str) -> Effect:
    return lambda s, label: points if s == sweep and label in labels else 0.0


def test_the_margin_is_two_standard_errors_of_a_difference() -> None:
    data = ablations("mnist")
    correction = math.sqrt(2 / (2 * math.log(2)))  # the median of chi-square with 2 is 2 log 2
    assert data.noise == pytest.approx(0.1 * correction)
    assert data.margin == pytest.approx(2 * 0.1 * correction * (2 / SEEDS) ** 0.5)


@pytest.mark.parametrize(
    ("claim", "effect", "expected"),
    [
        ("150 prototypes", no_effect, "confirmed"),
        ("150 prototypes", adds(0.5, "prototypes", "600"), "different"),
        ("Accuracy improves up to", adds(1.0, "width", "768", "1024"), "confirmed"),
        ("Accuracy improves up to", adds(1.0, "width", "256", "512", "768", "1024"), "different"),
        ("Learning λ₂", adds(0.25, "ridge", "last learned"), "confirmed"),
        ("Learning λ₂", adds(2.0, "ridge", "last learned"), "different"),
        ("Learning λ₂", no_effect, "wrong"),
        ("λ₁ is often", adds(-1.0, "ridge", "first learned"), "confirmed"),
        ("λ₁ is often", no_effect, "different"),
        ("Dropout on H", adds(-1.0, "dropout", "0.01", "0.05", "0.1", "0.2"), "confirmed"),
        ("Dropout on H", adds(-1.0, "dropout", "0.2"), "different"),
        ("Dropout of 0.1", adds(-1.0, "dropout", "0.1", "0.2"), "confirmed"),
        ("Dropout of 0.1", adds(-1.0, "dropout", "0.2"), "different"),
        ("Dropout of 0.1", no_effect, "wrong"),
        ("Small dropout", no_effect, "wrong"),
        ("Separate decays", adds(1.0, "decay", decay_label(0.1, 3.0)), "confirmed"),
        ("Separate decays", adds(1.0, "decay", decay_label(3.0, 3.0)), "different"),
        ("Decay on Y is gen", no_effect, "confirmed"),
        ("Decay on Y is gen", adds(1.0, "output-decay", "T 1, decay 0.1"), "different"),
        ("Optimising hidden", adds(-1.0, "searched", "hidden"), "confirmed"),
        ("Optimising hidden", no_effect, "wrong"),
        ("Balanced one-hot", adds(-1.0, "outputs", "normal"), "confirmed"),
        ("Balanced one-hot", no_effect, "wrong"),
    ],
)
def test_a_claim_is_judged_by_what_was_measured(claim: str, effect: Effect, expected: str) -> None:
    assert judged(claim, *both(effect)) == expected


@pytest.mark.parametrize(
    ("mnist", "fashion", "expected"),
    [
        (0.0, 0.5, "confirmed"),
        (0.0, 0.0, "different"),
        (0.0, 3.0, "different"),
        (0.9, 0.5, "different"),
    ],
)
def test_fashion_should_gain_modestly_and_more_than_mnist(
    mnist: float, fashion: float, expected: str
) -> None:
    records = (
        ablations(name, adds(points, "prototypes", "400"))
        for name, points in (("mnist", mnist), ("fashion-mnist", fashion))
    )
    assert judged("Fashion benefits", *records) == expected


@pytest.mark.parametrize(
    ("reached", "expected"), [(100, "confirmed"), (150, "different"), (220, "wrong")]
)
def test_time_to_best_is_when_cosine_passes_the_best_of_a_constant_rate(
    reached: int, expected: str
) -> None:
    """The constant rate passes its own best, less the margin, after 200 epochs."""
    records = both(every_epoch=passing(reached))
    for data in records:
        for label, runs in data.runs("schedule").items():
            for cell in runs:
                if label.startswith("constant"):
                    cell["every_epoch"] = passing(200)
    assert judged("Cosine", *records) == expected


def passing(epoch: int) -> list[float]:
    return [0.5] * (epoch - 1) + [0.99] * (251 - epoch)


@pytest.mark.parametrize(("sign", "expected"), [(1, "confirmed"), (-1, "different")])
def test_allocation_is_judged_by_rank_correlation(sign: int, expected: str) -> None:
    moved = {
        "start": [15] * 10,
        "end": [15 + sign * (label - 4) for label in range(10)],
        "mass": [0.1] * 10,
        "moved": 20,
        "ambiguity": [label / 10 for label in range(10)],
    }
    assert judged("Capacity moves", *both(allocation=moved)) == expected


def gaps(kappa_of_gap: float) -> tuple[Ablations, Ablations]:
    """Every run has another gap; kappa follows it, or its opposite, or nothing."""
    records = both()
    for data in records:
        for number, cell in enumerate(data.record["cells"].values()):
            found = cell["generalisation"]
            cell["generalisation"] = {
                **found,
                "error_gap": 0.001 * number,
                "kappa": 1000 + kappa_of_gap * number,
            }
    return records


@pytest.mark.parametrize(("follows", "expected"), [(1, "confirmed"), (-1, "wrong"), (0, "wrong")])
def test_kappa_must_follow_the_gap(follows: float, expected: str) -> None:
    assert judged("The gap grows", *gaps(follows)) == expected


@pytest.mark.parametrize(
    ("claim", "effect", "expected"),
    [
        ("Errors may accumulate", no_effect, "different"),
        (
            "Errors may accumulate",
            lambda sweep, label: -1.0 if sweep == "depth" and label.startswith("512-512-") else 0.0,
            "confirmed",
        ),
    ],
)
def test_depth_is_judged_at_equal_width(claim: str, effect: Effect, expected: str) -> None:
    assert judged(claim, *both(effect)) == expected


def test_the_table_is_judged_by_its_record() -> None:
    found = {v.claim: v.judgement for v in table_verdicts(newest_records(RECORDS)["paper-cuda"])}
    assert found["ELM reaches 96.2 and 88.3 %"] == "confirmed"
    assert found["the same with 102k numbers in all"] == "wrong"
    assert found["the same with linear features"] == "wrong"
    assert found["That MLP needs 100 to 150 s, 25 times ours and more"] == "wrong"


def test_every_sentence_of_both_sections_has_its_claim() -> None:
    """The paper's sections hold eleven and six statements; some are made twice."""
    sections = [where for where, _, _ in CLAIMS]
    assert sections.count("Ablations and practical findings") == 11
    assert sections.count("Extended ablations") == 6


def test_rank_correlation_knows_order_infinity_and_constants() -> None:
    assert rank_correlation([1, 2, float("inf")], [5, 6, 7]) == pytest.approx(1)
    assert rank_correlation([3, 2, 1], [5, 6, 7]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [5, 6, 7]) == 0


def test_tables_hold_every_setting() -> None:
    lines = sweep_tables([data.record for data in both()])
    for sweep in SWEEPS:
        for label in SWEEPS[sweep].settings(RECIPES["mnist"]):
            assert any(line.startswith(f"| {label} ") for line in lines), label
    assert len({len(line) for line in markdown(["a", "bb"], [["ccc", "d"]])}) == 1


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
