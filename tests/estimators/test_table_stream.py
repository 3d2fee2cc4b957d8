"""Tables with text, dates and gaps that are read a piece at a time are what they are in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor, load, open_rows
from protopinv.errors import DataError
from protopinv.tables.rows import encode_table
from protopinv.train.targets import LabelCounts

N = 3_000
QUICK: dict[str, Any] = {
    "n_prototypes": 20,
    "hidden_sizes": 16,
    "n_members": 1,
    "max_epochs": 4,
    "early_stopping": False,
    "batch_size": None,
    "random_state": 0,
}


def people() -> pl.DataFrame:
    random = np.random.default_rng(0)
    city = random.choice(["Rome", "Oslo", "Lima"], N)
    age = random.integers(18, 60, N).astype(float)
    return pl.DataFrame(
        {
            "age": [None if k % 7 == 0 else a for k, a in enumerate(age)],
            "city": [None if k % 11 == 0 else str(c) for k, c in enumerate(city)],
            "street": [f"street {k}" for k in random.integers(0, 80, N)],
            "since": pl.Series([f"202{k % 4}-0{1 + k % 9}-10" for k in range(N)]).str.to_date(),
            "churn": np.where((city == "Rome") | (age > 45), "yes", "no"),
            "price": age + 10 * (city == "Rome"),
        }
    )


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(3):
        part = people()[number * 1_000 : (number + 1) * 1_000]
        part.write_parquet(folder / f"part-{number}.parquet", row_group_size=400)
    return folder


@pytest.mark.parametrize(
    ("estimator", "target", "other"),
    [(ProtoPINVClassifier, "churn", "price"), (ProtoPINVRegressor, "price", "churn")],
)
def test_files_are_understood_as_the_frame_they_hold(
    files: Path, tmp_path: Path, estimator: Any, target: str, other: str
) -> None:
    X, y = people().drop(target, other), people()[target].to_numpy()
    streamed = estimator(**QUICK).fit(open_rows(files, target, drop=[other], memory=0))
    whole = estimator(**QUICK).fit(X, y)
    assert str(streamed.table_) == str(whole.table_)
    assert streamed.n_features_in_ == 4
    assert streamed.feature_names_in_.tolist() == X.columns
    assert streamed.score(X, y) == pytest.approx(whole.score(X, y), abs=0.05)
    streamed.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.predict(X), streamed.predict(X))


def test_few_rows_are_read_once_and_trained_on_as_a_frame(files: Path) -> None:
    X, y = people().drop("churn", "price"), people()["churn"].to_numpy()
    found = ProtoPINVClassifier(**QUICK).fit(open_rows(files, "churn", drop=["price"]))
    whole = ProtoPINVClassifier(**QUICK).fit(X, y)
    np.testing.assert_allclose(found.predict_proba(X), whole.predict_proba(X))


def test_training_rows_have_not_seen_their_targets(files: Path) -> None:
    """What is read to train on differs from what is predicted with, in the averages alone."""
    rows = open_rows(files, "churn", drop=["price"], memory=0)
    model = ProtoPINVClassifier(class_weight="balanced", **QUICK)
    source = encode_table(rows, None, LabelCounts())
    X = np.concatenate([p.X for b in source.blocks for p in source.read(b, 500)])
    table = source.table
    seen = table.features(table.codes(columns(people())))
    averages = np.array(["average" in name for name in table.feature_names])
    np.testing.assert_array_equal(X[:, ~averages], seen[:, ~averages])
    assert (X[:, averages] != seen[:, averages]).mean() > 0.9
    model.fit(rows)
    assert model.table_ is not None


def test_what_a_user_says_of_columns_counts_here_too(files: Path) -> None:
    rows = open_rows(files, "churn", drop=["price"], memory=0)
    model = ProtoPINVClassifier(columns={"street": "drop"}, **QUICK).fit(rows)
    assert [column.name for column in model.table_.columns] == ["age", "city", "since"]


@pytest.mark.parametrize("memory", [0, 2**29])
def test_columns_of_numbers_in_files_can_be_names(tmp_path: Path, memory: int) -> None:
    random = np.random.default_rng(0)
    zips, y = random.integers(0, 5, 400), random.integers(0, 2, 400)
    pl.DataFrame({"zip": zips, "y": y}).write_parquet(tmp_path / "t.parquet")
    rows = open_rows(tmp_path / "t.parquet", "y", memory=memory)
    model = ProtoPINVClassifier(columns={"zip": "category"}, **QUICK).fit(rows)
    assert model.table_.columns[0].values == ("0", "1", "2", "3", "4")
    assert ProtoPINVClassifier(**QUICK).fit(rows).table_ is None


def test_a_gap_in_the_target_names_file_and_row(files: Path) -> None:
    part = people().head(10).with_columns(churn=pl.lit(None, dtype=pl.String))
    part.write_parquet(files / "part-9.parquet")
    rows = open_rows(files, "churn", drop=["price"], memory=0)
    with pytest.raises(DataError, match=r"'churn' of part-9\.parquet is empty in row 1"):
        ProtoPINVClassifier(**QUICK).fit(rows)


def test_text_is_text_however_files_store_it(tmp_path: Path) -> None:
    part = people().head(300).select("city", "age", "churn")
    part.write_parquet(tmp_path / "a.parquet")
    part.with_columns(pl.col("city").cast(pl.Categorical)).write_parquet(tmp_path / "b.parquet")
    model = ProtoPINVClassifier(**QUICK).fit(open_rows(tmp_path, "churn"))
    assert model.table_.columns[0].values == ("Lima", "Oslo", "Rome")


def test_classes_that_count_nothing_are_not_there(tmp_path: Path) -> None:
    part = people().head(2_000).drop("price")
    nobody = pl.Series(["zzz"] * 5 + ["yes"] * 1_995)
    churn = pl.when(pl.int_range(pl.len()) < 5).then(nobody).otherwise("churn")
    weight = (pl.int_range(pl.len()) >= 5).cast(pl.Int8)
    part.with_columns(churn.alias("churn"), weight.alias("w")).write_parquet(tmp_path / "t.parquet")
    rows = open_rows(tmp_path / "t.parquet", "churn", weight="w", memory=0)
    assert ProtoPINVClassifier(**QUICK).fit(rows).classes_.tolist() == ["no", "yes"]


def test_numbers_of_which_no_row_counts_are_refused(tmp_path: Path) -> None:
    people().drop("churn").with_columns(w=0.0).write_parquet(tmp_path / "t.parquet")
    rows = open_rows(tmp_path / "t.parquet", "price", weight="w", memory=0)
    with pytest.raises(DataError, match=r"Some rows must count\. All weights are zero"):
        ProtoPINVRegressor(**QUICK).fit(rows)


def columns(frame: pl.DataFrame) -> Any:
    from protopinv.rows import frame_columns

    return frame_columns(frame)
