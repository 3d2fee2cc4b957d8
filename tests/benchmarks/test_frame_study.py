"""The study of frames: what every contestant sees, what is measured, and a run that resumes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, roc_auc_score

from benchmarks.record import Records, newest_records
from benchmarks.tables import frames, native
from benchmarks.tables.contest import splits_of
from benchmarks.tables.contestants import CONTESTANTS
from benchmarks.tables.frames import FramePlan, _from_file, measure_frames, task_of
from benchmarks.tables.native import (
    FRAME_CONTESTANTS,
    GAP,
    MOST_OF_HIST,
    NativeColumns,
    _network,
    build_native,
)
from benchmarks.tables.text import frame_tables
from protopinv.errors import ConfigError, DataError, DataFileError, MissingExtraError

ROOT = Path(__file__).parents[2]


def people(rows: int = 240) -> pd.DataFrame:
    """Text with gaps and rare values, numbers with gaps, Booleans, categories and dates."""
    random = np.random.default_rng(0)
    city = random.choice(["Rome", "Oslo", "Lima"], rows)
    frame = pd.DataFrame(
        {
            "city {}": pd.Series(city).where(np.arange(rows) % 11 > 0),
            "age": np.where(np.arange(rows) % 7 > 0, random.standard_normal(rows), np.nan),
            "whole": pd.array([None, *range(rows - 1)], dtype="Int64"),
            "is": city == "Oslo",
            "street": [f"street {number // 2}" for number in range(rows)],
            "size": pd.Categorical(random.choice(["S", "M"], rows)),
            "since": pd.Timestamp("2020-01-01", tz="UTC") + pd.to_timedelta(np.arange(rows), "D"),
        }
    )
    frame["target"] = np.where(frame["age"].fillna(0) + 2 * (city == "Rome") > 1, "yes", "no")
    return frame


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "frames"
    path.mkdir()
    frame = people()
    frame.to_parquet(path / "people.parquet")
    frame.assign(target=frame["whole"].astype(float).fillna(0) ** 0.5).to_parquet(
        path / "roots.parquet"
    )
    kinds = frame["city {}"].fillna("?")
    frame.assign(target=kinds).drop(columns="city {}").to_parquet(path / "three.parquet")
    return path


def test_a_study_of_the_command_line_has_a_cell_for_each_fit(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "frames", "--json", "--folder", str(folder)]
    command += ["--contestants", "hist-gradient,linear", "--frames", "people,roots"]
    command += ["--folds", "2", "--records", str(tmp_path / "records")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    record = json.loads(result.stdout)
    assert record["name"] == "frames-folder-cpu"
    assert set(record["cells"]) == {
        f"{frame}/{who}/fold{fold}"
        for frame in ("people", "roots")
        for who in ("hist-gradient", "linear")
        for fold in (0, 1)
    }
    assert str(folder) not in result.stdout  # a record names frames, not where they lie
    cell = record["cells"]["people/linear/fold1"]
    assert {"roc_auc", "log_loss", "accuracy", "fit_seconds", "test_seconds"} <= set(cell)
    assert cell["roc_auc"][0] > 0.9
    assert (cell["rows"], cell["features"], cell["outputs"]) == (240, 7, 2)
    assert {"rmse", "r2"} <= set(record["cells"]["roots/linear/fold0"])
    assert "linear         fold 1" in result.stderr


def test_a_study_resumes_where_it_stopped(folder: Path, tmp_path: Path) -> None:
    plan = FramePlan(("three", "people"), ("linear",), folds=2)
    record = measure_frames(plan, Records(tmp_path), folder=folder)
    del record.cells["people/linear/fold1"]
    record.path.write_text(json.dumps({**record.content, "finished": False}))
    said: list[str] = []
    again = measure_frames(plan, Records(tmp_path, say=said.append), folder=folder)
    assert (again.path, again.kept, len(again.cells)) == (record.path, 3, 4)
    assert [line.split()[0] for line in said if " fold " in line] == ["people"]
    # another file under the name of a frame is another record
    people(200).to_parquet(folder / "people.parquet")
    assert measure_frames(plan, Records(tmp_path), folder=folder).kept == 0


def test_scores_are_those_of_scikit_learn_on_the_fold(folder: Path, tmp_path: Path) -> None:
    plan = FramePlan(("people",), ("linear",))
    cells = measure_frames(plan, Records(tmp_path), folder=folder).cells
    table = _from_file(folder / "people.parquet")
    train, test = splits_of(table, 0, 3)[2]
    model = build_native("linear", table.X, table.task, 0)
    model.fit(table.X.iloc[train], table.y[train])
    likely = model.predict_proba(table.X.iloc[test])[:, 1]
    cell = cells["people/linear/fold2"]
    assert cell["roc_auc"][0] == pytest.approx(roc_auc_score(table.y[test], likely), abs=1e-6)
    assert cell["accuracy"][0] == pytest.approx(accuracy_score(table.y[test], likely > 0.5), 1e-5)


def test_contestants_that_are_not_installed_are_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pytabkit", None)
    said: list[str] = []
    plan = FramePlan(("roots",), ("linear", "tabm"), quick=True)
    record = measure_frames(plan, Records(tmp_path, say=said.append), folder=folder)
    assert set(record.cells) == {"roots/linear/fold0"}
    assert "tabm is left out: pytabkit is not installed" in said
    assert "- tabm was left out: pytabkit is not installed." in frame_tables(record.content)
    with pytest.raises(MissingExtraError, match=r"None of tabm is installed.*protopinv\[study\]"):
        measure_frames(FramePlan(("roots",), ("tabm",)), Records(tmp_path), folder=folder)


def test_tables_show_all_kinds_of_frames(folder: Path, tmp_path: Path) -> None:
    plan = FramePlan(contestants=("quick", "linear"), quick=True)
    lines = frame_tables(measure_frames(plan, Records(tmp_path), folder=folder).content)
    headings = [line for line in lines if line.endswith(tuple("123"))]
    assert headings == [
        "two classes, ROC AUC, %, frames: 1",
        "more classes, log loss, frames: 1",
        "all classes, accuracy, %, frames: 2",
        "all classes, log loss, frames: 2",
        "numbers, RMSE, frames: 1",
        "numbers, R2, %, frames: 1",
    ]
    text = "\n".join(lines)
    assert all(f"| {name}" in text for name in ("people", "roots", "three", "quick", "linear"))


def test_log_losses_of_one_set_of_frames_are_shown_once(folder: Path, tmp_path: Path) -> None:
    plan = FramePlan(("three",), ("linear",), quick=True)
    lines = frame_tables(measure_frames(plan, Records(tmp_path), folder=folder).content)
    assert [line for line in lines if line.endswith("frames: 1")] == [
        "more classes, log loss, frames: 1",
        "all classes, accuracy, %, frames: 1",
    ]


def test_an_error_of_a_contestant_is_a_cell_and_a_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object, X: pd.DataFrame) -> object:
        raise ValueError(f"no room for {X.shape[1]} columns")

    monkeypatch.setitem(native.FORMS, "linear", broken)
    plan = FramePlan(("people",), ("quick", "linear"), quick=True)
    content = measure_frames(plan, Records(tmp_path), folder=folder).content
    assert content["cells"]["people/linear/fold0"]["error"] == "ValueError: no room for 7 columns"
    (line,) = [line for line in frame_tables(content) if "failed" in line]
    assert line == "- linear failed on all tables: ValueError: no room for 7 columns."


def test_the_page_shows_records_of_folds_and_of_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    from tables_page import tables_page

    def cut(package: str, item: str, targets: list[str]) -> pd.DataFrame:
        return people().rename(columns={"target": targets[0]})

    monkeypatch.setattr(frames, "r_frame", cut)
    plan = FramePlan(("telco",), ("linear",), quick=True)
    record = measure_frames(plan, Records(tmp_path))
    content = {**record.content, "file": record.path.name}
    assert "240 x 7, 2" in tables_page({"frames-cpu": content})
    of_seeds = newest_records(ROOT / "benchmarks" / "records")["frames-cpu"]
    assert "| adult, 48,842 rows" in tables_page({"frames-cpu": of_seeds})
    assert "## What it is worth" not in tables_page({})


@pytest.mark.parametrize("who", FRAME_CONTESTANTS)
def test_every_contestant_takes_frames_as_they_are(who: str) -> None:
    for package in CONTESTANTS[who].packages:
        pytest.importorskip(package)
    if who in ("balanced", "best"):
        pytest.skip("of the same class as quick")
    frame = people(600)
    X, y = frame.drop(columns="target"), (frame["target"] == "yes").to_numpy().astype(int)
    seen, before = slice(0, 540), X.copy()
    assert X["street"][seen].nunique() > MOST_OF_HIST
    model = build_native(who, X, "classification", 0).fit(X[seen], y[seen])
    unseen = X[540:].assign(**{"city {}": "Bonn", "size": pd.Categorical(["XL"] * 60)})
    assert model.predict_proba(unseen).shape == (60, 2)
    assert (np.asarray(model.predict(X[:540])).ravel() == y[seen]).mean() > 0.8
    numbers = build_native(who, X, "regression", 0).fit(X[seen], y[seen] * 2.0)
    assert np.corrcoef(np.asarray(numbers.predict(X)).ravel(), y)[0, 1] > 0.5
    pd.testing.assert_frame_equal(X, before)


def test_categories_are_those_of_training_and_dates_are_days() -> None:
    X = people().drop(columns="target")
    native = NativeColumns().fit(X[:100])
    columns = native.transform(X.assign(street="new"))
    assert [str(kind) for kind in columns.dtypes] == [
        *("category", "float64", "float64", "float64", "category", "category", "float64")
    ]
    assert list(columns["column_0"].cat.categories) == ["Lima", "Oslo", "Rome"]
    assert columns["column_0"].isna().sum() == X["city {}"].isna().sum()
    assert columns["column_4"].isna().all()
    assert set(np.diff(columns["column_6"])) == {1.0}
    assert np.isnan(columns["column_2"][0])
    assert columns["column_2"][1] == 0
    short = NativeColumns(most=2).fit(X).transform(X)["column_4"]
    assert len(short.cat.categories) == 2


def test_networks_of_others_see_no_gaps_and_know_categories() -> None:
    X = people().drop(columns="target")
    model = _network("passthrough", X)
    columns = model.fit(X).transform(X)
    assert not columns.isna().any(axis=None)
    is_category = columns.dtypes == "category"
    assert is_category.sum() == 3
    assert any(GAP in columns[name].cat.categories for name in columns.columns[is_category])
    assert (columns.dtypes[~is_category] == "float64").all()


@pytest.mark.parametrize(
    ("target", "task"),
    [
        ([1.0, 2.0], "regression"),
        ([1, 2], "classification"),
        (range(21), "regression"),
        (["1", "2"], "classification"),
        ([True, False], "classification"),
        (pd.Categorical([1.5, 2]), "classification"),
    ],
)
def test_the_type_of_a_target_decides_what_it_is(target: object, task: str) -> None:
    assert task_of(pd.Series(target)) == task


def test_what_cannot_be_measured_is_refused(folder: Path, tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    with pytest.raises(DataFileError, match=r"no \*.parquet in"):
        measure_frames(FramePlan(), records, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"frames must be some of people, roots, three\. Got me"):
        measure_frames(FramePlan(("me",)), records, folder=folder)
    with pytest.raises(ConfigError, match="contestants must be some of quick"):
        FramePlan(contestants=("svm",))
    with pytest.raises(ConfigError, match="folds must be 2 or more"):
        FramePlan(folds=1)
    (folder / "text.parquet").write_text("a,b")
    with pytest.raises(DataFileError, match=r"text\.parquet cannot be read as one"):
        measure_frames(FramePlan(("text",), ("linear",)), records, folder=folder)
    frame = people()
    frame[["target"]].to_parquet(folder / "alone.parquet")
    with pytest.raises(DataError, match=r"alone\.parquet has 1 columns"):
        measure_frames(FramePlan(("alone",), ("linear",)), records, folder=folder)
    frame.loc[:3, "target"] = None
    frame.to_parquet(folder / "gaps.parquet")
    with pytest.raises(DataError, match=r"4 rows of gaps\.parquet have none in 'target'"):
        measure_frames(FramePlan(("gaps",), ("linear",)), records, folder=folder)
