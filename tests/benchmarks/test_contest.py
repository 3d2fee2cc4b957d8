"""The contest on public tables: folds, cells, errors, and a run that goes on where it stopped."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_multilabel_classification

from benchmarks.record import Records
from benchmarks.rules import CHANGES, DEFAULTS, measure_rules, usual
from benchmarks.tables import contest, contestants
from benchmarks.tables.contest import (
    Bout,
    ContestPlan,
    measure,
    measure_contest,
    prepared,
    scored_folds,
    splits_of,
)
from benchmarks.tables.contestants import CONTESTANTS, versions_of_peers, why_not
from benchmarks.tables.folded_mlp import FoldedMLPClassifier, FoldedMLPRegressor
from benchmarks.tables.scoring import log_loss, scores
from benchmarks.tables.suite import Table, suite
from protopinv.errors import ConfigError, MissingExtraError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wine() -> Table:
    return suite(None)["wine"]()


@pytest.fixture(scope="module")
def labels() -> Table:
    X, y = make_multilabel_classification(120, 6, n_classes=3, random_state=0)
    return Table("letters", "multi-label", X, y)


class Broken:
    def fit(self, X, y):  # noqa: ARG002
        raise ValueError("no such luck\nand more lines")


def test_a_contest_of_the_command_line_is_kept_and_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "contest", "--quick", "--json"]
    command += ["--contestants", "quick,linear", "--tables", "wine,diabetes"]
    command += ["--records", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    record = json.loads(result.stdout)
    assert record["name"] == "contest-development-quick-cpu"
    assert record["finished"]
    assert len(record["cells"]) == 2 * 2
    wine = record["cells"]["wine/quick/seed0"]
    assert {"accuracy", "log_loss", "balanced_accuracy"} <= set(wine)
    assert wine["accuracy"][0] > 0.8
    assert (wine["rows"], wine["features"], wine["outputs"]) == (178, 13, 3)
    assert (wine["folds"], wine["scored_folds"]) == (5, 1)
    assert record["cells"]["diabetes/linear/seed0"]["r2"][0] > 0.2

    (path,) = tmp_path.glob("*.json")
    del record["cells"]["diabetes/linear/seed0"]
    path.write_text(json.dumps({**record, "finished": False}))
    plan = ContestPlan(("quick", "linear"), tables=("wine", "diabetes"), quick=True)
    said: list[str] = []
    again = measure_contest(plan, Records(tmp_path, say=said.append), wheels=None)
    assert (again.path, again.kept) == (path, 3)
    assert len(again.cells) == 4
    assert again.cells["wine/quick/seed0"] == wine
    assert not any(line.startswith("wine") for line in said)  # it was not even read


def test_fits_beside_each_other_give_the_same_scores(tmp_path: Path) -> None:
    given = {"contestants": ("linear", "svm"), "tables": ("wine", "diabetes"), "seeds": 2}
    alone, beside = (
        measure_contest(ContestPlan(jobs=jobs, **given), Records(tmp_path / str(jobs)), wheels=None)
        for jobs in (1, 2)
    )
    assert (alone.content["plan"]["jobs"], beside.content["plan"]["jobs"]) == (1, 2)
    assert set(alone.cells) == set(beside.cells)
    for key, cell in alone.cells.items():
        scored = {name: value for name, value in cell.items() if not name.endswith("_seconds")}
        assert scored.items() <= beside.cells[key].items()


def test_tables_made_to_be_imbalanced_keep_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = suite(None)["wine"]
    monkeypatch.setattr(contest, "tables_of", lambda *_: {"imbalanced/wine": loader})
    for jobs in (1, 2):
        plan = ContestPlan(("linear",), seeds=1, jobs=jobs, imbalanced=True)
        record = measure_contest(plan, Records(tmp_path / str(jobs)), wheels=None)
        assert list(record.cells) == ["imbalanced/wine/linear/seed0"]


def test_only_ours_can_be_on_another_device() -> None:
    with pytest.raises(ConfigError, match=r"device must be some of cpu, cuda\. Got cuda:1"):
        ContestPlan(device="cuda:1")
    with pytest.raises(ConfigError, match="contestants on cuda must be some of quick"):
        ContestPlan(contestants=("balanced", "linear"), device="cuda")
    model = contestants.build("quick", "classification", several=False, seed=0, device="cuda")
    assert (model.device, model.effort) == ("cuda", "quick")


def test_only_tables_of_the_half_can_be_named(tmp_path: Path) -> None:
    for plan, message in (
        ({"contestants": ("oracle",)}, "contestants must be some of quick"),
        ({"tables": ("moon",)}, "tables must be some of breast_cancer.* Got moon"),
        ({"tables": ("iris",)}, "tables must be some of .* Got iris"),
        ({"tables": ("wine",), "tasks": ("regression",)}, "tables must be some of diabetes"),
        ({"tasks": ("poetry",)}, "tasks must be some of classification"),
        ({"half": "third"}, "half must be some of development, confirmation"),
        ({"folds": 1}, "folds must be 2 or more"),
        ({"seeds": 0}, "seeds must be 1 or more"),
        ({"imbalanced": True}, "imbalanced tables are in a wheel"),
    ):
        with pytest.raises(ConfigError, match=message):
            measure_contest(ContestPlan(**plan), Records(tmp_path), wheels=None)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_peer_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "catboost", None)
    plan = ContestPlan(contestants=("linear", "catboost"), tables=("wine",))
    with pytest.raises(MissingExtraError, match=r"catboost needs .*protopinv\[study\]"):
        measure_contest(plan, Records(tmp_path), wheels=None)
    assert list(tmp_path.iterdir()) == []
    assert versions_of_peers(("quick", "linear")) == {}


def test_an_error_of_a_contestant_is_kept(wine: Table) -> None:
    cell = measure(wine, lambda _: Broken(), 0)
    assert cell["error"] == "ValueError: no such luck"
    assert cell["rows"] == 178
    assert "accuracy" not in cell


def test_who_stays_away_says_why(wine: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not("svm", 25_000) is None
    assert why_not("linear", 10**6) is None
    monkeypatch.setitem(contestants.CONTESTANTS, "svm", replace(CONTESTANTS["svm"], most_rows=100))
    cell = contest._meet(ContestPlan(("svm",)), Bout(wine, "svm", 0))
    assert cell["skipped"] == "kernel methods are left out above 100 rows"


def test_a_seed_deals_the_folds(wine: Table, labels: Table) -> None:
    for table in (wine, labels):
        first, again, other = (splits_of(table, seed, 5) for seed in (0, 0, 1))
        assert all((a[1] == b[1]).all() for a, b in zip(first, again, strict=True))
        assert any(set(a[1]) != set(b[1]) for a, b in zip(first, other, strict=True))
        scored = np.concatenate([test for _, test in first])
        np.testing.assert_array_equal(np.sort(scored), np.arange(len(table.X)))
    for train, test in splits_of(wine, 3, 5):  # classes are dealt evenly
        assert set(wine.y[train]) == set(wine.y[test]) == {0, 1, 2}


def test_large_tables_are_scored_on_fewer_folds() -> None:
    assert [scored_folds(rows, 5) for rows in (2_999, 3_000, 15_000)] == [5, 1, 1]
    assert scored_folds(100, 2) == 2


def test_rare_classes_and_labels_are_left_out(wine: Table, labels: Table) -> None:
    y = wine.y.copy()
    y[:4] = 7
    found, left_out = prepared(replace(wine, y=y), 5, quick=False)
    assert (left_out, len(found.X)) == (4, 174)
    assert set(found.y) == {0, 1, 2}
    rare = np.column_stack([labels.y, np.arange(120) < 9, np.arange(120) >= 9])
    found, left_out = prepared(replace(labels, y=rare.astype(int)), 5, quick=False)
    assert (left_out, found.y.shape) == (2, (120, 3))


@pytest.mark.parametrize("name", ["quick", "linear", "svm", "hist-gradient", "scikit-mlp"])
def test_every_task_has_its_measures(
    name: str, wine: Table, labels: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "QUICK_ROWS", 60)
    numbers = Table("two", "regression", wine.X[:, :4], wine.X[:, 4:6])
    plan = ContestPlan((name,), quick=True)
    cells = [contest._meet(plan, Bout(table, name, 0)) for table in (wine, numbers, labels)]
    assert not [cell["error"] for cell in cells if "error" in cell]
    assert [cell["outputs"] for cell in cells] == [3, 2, 3]
    assert ("log_loss" in cells[0]) == (name != "svm")
    assert {"r2", "rmse"} <= set(cells[1])
    assert {"micro_f1", "macro_f1"} <= set(cells[2])
    times = ("fit_seconds", "row_seconds", "test_seconds")
    assert all(cell[time][0] > 0 for cell in cells for time in times)


@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "catboost", "xrfm"])
def test_a_peer_of_the_study_extra_can_be_met(name: str, wine: Table) -> None:
    for package in CONTESTANTS[name].packages:
        pytest.importorskip(package)
    cell = contest._meet(ContestPlan((name,), quick=True), Bout(wine, name, 0))
    assert cell["accuracy"][0] > 0.8


def test_an_mlp_chooses_its_epochs_in_folds(blobs: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = blobs
    X = (X - X.mean(0)) / X.std(0)
    model = FoldedMLPClassifier(max_epochs=12).fit(X, y)
    assert 1 <= model.n_epochs_ <= 12
    assert model.predict_proba(X).shape == (90, 3)
    assert (model.predict(X) == FoldedMLPClassifier(max_epochs=12).fit(X, y).predict(X)).all()
    several = FoldedMLPClassifier(max_epochs=2).fit(X, np.column_stack([y == 0, y > 0]) * 1)
    assert several.predict(X).shape == (90, 2)
    # with targets that nothing explains the first epochs are the best
    noise = np.random.default_rng(0).standard_normal(90)
    assert FoldedMLPRegressor(max_epochs=60).fit(X, noise).n_epochs_ < 60


def test_scores_are_those_of_the_textbook() -> None:
    truth, answers = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    sure = np.array([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0], [0.0, 2.0]])
    found = scores("classification", truth, answers, sure)
    assert found["accuracy"] == 0.75
    assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert found["log_loss"] == pytest.approx((2 * np.log(2) - np.log(1e-15)) / 4)
    assert log_loss(np.array([1]), np.array([[1, 3]])) == pytest.approx(np.log(4 / 3))
    assert scores("regression", truth, truth, None) == {"r2": 1.0, "rmse": 0.0}


def test_rules_are_measured_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {
        DEFAULTS: lambda _: {"max_epochs": 4},
        "no look": lambda _: {"max_epochs": 4, "effort": "quick"},
        "smoothing": lambda _: {"label_smoothing": 0.0},
    }
    monkeypatch.setattr("benchmarks.rules.CHANGES", short)
    monkeypatch.setattr("benchmarks.rules.ONLY_CLASSES", ("smoothing",))
    monkeypatch.setattr(contest, "QUICK_ROWS", 60)
    given = {"wheels": None, "tables": ("diabetes",), "jobs": 1, "quick": True}
    record = measure_rules(Records(tmp_path), **given)
    assert record.content["finished"]
    assert set(record.cells) == {f"diabetes/{label}/seed0" for label in short}
    assert "one class" in record.cells["diabetes/smoothing/seed0"]["skipped"]
    assert "r2" in record.cells["diabetes/no look/seed0"]
    assert measure_rules(Records(tmp_path), **given).kept == 3


def test_a_change_of_a_rule_leaves_the_others(wine: Table) -> None:
    settled = usual(wine)
    assert settled.early_stopping == "cross"
    assert CHANGES["one hidden layer"](settled)["hidden_sizes"] == settled.widths[:1]
    assert CHANGES[DEFAULTS](settled) == {}
