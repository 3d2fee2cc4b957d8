"""The README's examples run, and say what they should; its figures are those of records."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.tables.standings import contest_of, field_of, results, standings
from protopinv.bench.record import newest_records

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
# What each prints at least: accuracy, R2, micro-F1, accuracy twice.
LEAST = {
    "a classifier": 0.93,
    "a regressor": 0.25,
    "several labels": 0.65,
    "a frame": 0.9,
    "a quick fit": 0.9,
    "new classes": 0.85,
}


def test_there_is_a_bound_for_every_example() -> None:
    assert len(EXAMPLES) == len(LEAST)


@pytest.mark.parametrize("number", range(len(EXAMPLES)), ids=list(LEAST))
def test_an_example_in_the_readme_runs(number: int, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) > list(LEAST.values())[number]


def test_the_page_of_tables_shows_what_its_example_prints(tmp_path: Path) -> None:
    page = (README.parent / "docs" / "tables.md").read_text(encoding="utf-8")
    (example,), (shown,) = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text")
    )
    command = [sys.executable, "-W", "error", "-c", example]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == shown


@pytest.mark.parametrize(
    ("words", "who"),
    [("accuracy of {} %", "quick"), ("LightGBM {} %", "lightgbm"), ("CatBoost {} %", "catboost")],
)
def test_figures_of_adult_are_those_of_the_record(words: str, who: str) -> None:
    cells = newest_records(README.parent / "benchmarks" / "records")["frames-cpu"]["cells"]
    mean = np.mean([cells[f"adult/{who}/{seed}"]["score"] for seed in range(3)])
    text = " ".join(README.read_text(encoding="utf-8").split())
    assert words.format(f"{100 * mean:.2f}") in text


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ('`effort="quick"`', "quick"),
        ('`effort="balanced"`', "balanced"),
        ('`effort="best"`', "best"),
        ("CatBoost", "catboost"),
        ("TabM (pytabkit)", "tabm"),
        ("RealMLP-TD-S (pytabkit)", "realmlp"),
        ("LightGBM", "lightgbm"),
        ("scikit-learn's MLP, scaled", "scikit-mlp"),
    ],
)
def test_figures_in_the_readme_are_those_of_the_records(title: str, name: str) -> None:
    newest = newest_records(README.parent / "benchmarks" / "records")
    record = contest_of(newest.values(), "confirmation")
    assert record is not None
    found = results(record)
    fields = [field_of(found, task) for task in ("classification", "regression")]
    classes, numbers = (
        next(s for s in standings(field, "balanced") if s.name == name) for field in fields
    )
    assert [len(field.tables) for field in fields] == [36, 22]
    mine, ours = (
        np.concatenate([field.fit_seconds[:, field.contestants.index(n)] for field in fields])
        for n in (name, "balanced")
    )
    both = ~np.isnan(mine) & ~np.isnan(ours)
    assert both.sum() == {"realmlp": 51, "lightgbm": 0, "catboost": 0, "tabm": 0}.get(name, 58)
    times = f"{mine[both].sum() / ours[both].sum():.2f}" if both.any() else ""
    cells = [title, f"{100 * classes.mean:.2f} %", f"{100 * numbers.mean:.1f} %", times]
    shown = next(line for line in README.read_text().splitlines() if line.startswith(f"| {title}"))
    assert [cell.strip() for cell in shown.strip("|").split("|")] == cells
