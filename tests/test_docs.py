"""The figures of the README are those of records; test_pages.py runs its commands and code."""

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.record import newest_records
from benchmarks.tables.standings import contest_of, field_of, results, standings
from benchmarks.tables.suite import Task

README = Path(__file__).parents[1] / "README.md"
RECORDS = README.parent / "benchmarks" / "records"
TEXT = " ".join(README.read_text(encoding="utf-8").split())


@pytest.mark.parametrize(
    ("words", "who"),
    [("accuracy of {} %", "quick"), ("LightGBM {} %", "lightgbm"), ("CatBoost {} %", "catboost")],
)
def test_figures_of_adult_are_those_of_the_record(words: str, who: str) -> None:
    cells = newest_records(RECORDS)["frames-cpu"]["cells"]
    mean = np.mean([cells[f"adult/{who}/{seed}"]["score"] for seed in range(3)])
    assert words.format(f"{100 * mean:.2f}") in TEXT


@pytest.mark.parametrize(
    ("task", "n_tables", "words"),
    [
        (
            "classification",
            36,
            "accuracy of our default is {balanced:.2f} %; CatBoost has {catboost:.2f} %, LightGBM "
            "{lightgbm:.2f} %, scikit-learn's MLP on scaled columns {scikit-mlp:.2f} %",
        ),
        (
            "regression",
            22,
            "mean R2 is {balanced:.1f} %, against {catboost:.1f} %, {lightgbm:.1f} % and "
            "{scikit-mlp:.1f} %",
        ),
    ],
)
def test_scores_in_the_readme_are_those_of_the_contest(
    task: Task, n_tables: int, words: str
) -> None:
    record = contest_of(newest_records(RECORDS).values(), "confirmation")
    assert record is not None
    field = field_of(results(record), task)
    means = {s.name: 100 * s.mean for s in standings(field, "balanced") if s.mean is not None}
    assert len(field.tables) == n_tables
    assert re.sub(r"\{(.+?):(.+?)\}", lambda m: format(means[m[1]], m[2]), words) in TEXT


def test_times_in_the_readme_are_those_of_small_tables() -> None:
    cells = newest_records(RECORDS)["small-cpu"]["cells"]
    tables = [cells[f"table/{name}"] for name in ("iris", "wine", "breast_cancer")]
    quick, default = (
        sorted(table["seconds"][who] for table in tables)
        for who in ("protopinv, quick", "protopinv")
    )
    rows = sorted(table["rows"] for table in tables)
    assert f"tables of {rows[0]} to {rows[-1]} rows (iris, wine, breast cancer)" in TEXT
    assert f"in {quick[0]:.2f} to {quick[-1]:.2f} seconds on two cores" in TEXT
    assert f"the default in {default[0]:.2f} to {default[-1]:.2f}" in TEXT


def test_the_size_in_the_readme_is_that_of_the_record() -> None:
    cell = newest_records(RECORDS)["shipping-cpu"]["cells"]["digits, p = 30, h = 64"]
    tiny = cell["int8"]
    flash, memory = (tiny["code"] + tiny["constants"]) / 1000, tiny["ram"] / 1000
    words = "with {:.2f} % on {} test images takes {:.1f} kB of flash and {:.1f} kB of RAM"
    assert words.format(100 * cell["score"], tiny["rows"], flash, memory) in TEXT
