"""Targets that are written as people write numbers, and rows that have none."""

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from protopinv import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.data import open_table
from protopinv.errors import DataError
from protopinv.rows import ArrowRows, delimited, open_rows

N = 600
X = np.random.default_rng(0).normal(size=N).round(4)
Y = (40 + 10 * X).round(2)
LOST = np.arange(N) % 50 == 7
QUICK = {"effort": "quick", "max_epochs": 4, "random_state": 0}


def written(folder: Path, targets: list, suffix: str = ".csv") -> str:
    frame, path = pl.DataFrame({"x": X, "y": targets}, strict=False), folder / f"t{suffix}"
    if suffix == ".csv":
        frame.write_csv(path)
    elif suffix == ".parquet":
        frame.write_parquet(path, row_group_size=100)
    else:
        frame.write_ipc(path)
    return str(path)


def read(rows: ArrowRows) -> None:
    """As the command line does where a missing target is an error."""
    rows.require_plain_targets()
    rows.load()


def with_gaps(values: list, gap: object) -> list:
    return [gap if lost else value for value, lost in zip(values, LOST, strict=True)]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize(
    ("targets", "gap"),
    [
        (Y.tolist(), None),
        (list(map(str, Y.tolist())), "NA"),
        ([f"{y} %" for y in Y.tolist()], "n/a"),
        ([f"{y} %" for y in Y.tolist()], " "),
    ],
)
@pytest.mark.parametrize("block_bytes", [2**24, 700])
def test_rows_without_a_target_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, targets: list, gap, block_bytes
) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)
    path = written(tmp_path, with_gaps(targets, gap), suffix)
    rows = open_table(path, target="y", missing_target="drop", memory=0)
    assert "12 rows have no target and were left out" in rows.said
    assert rows.n_rows == N - 12
    features, y, _ = rows.load()
    np.testing.assert_allclose(y, Y[~LOST])
    np.testing.assert_allclose(features[:, 0], X[~LOST])
    refused = open_rows(path, "y").with_number_targets(few_too=False)
    with pytest.raises(DataError, match=r"Every row needs a target.*(empty|holds).*row 8\b"):
        read(refused)


def test_missing_numbers_of_a_parquet_file_may_be_nan(tmp_path: Path) -> None:
    path = written(tmp_path, with_gaps(Y.tolist(), float("nan")), ".parquet")
    assert open_table(path, target="y", missing_target="drop").n_rows == N - 12


def test_names_that_are_words_for_gaps_are_names(tmp_path: Path) -> None:
    path = written(tmp_path, with_gaps(["rain"] * N, "none"))
    assert open_table(path, target="y", missing_target="drop").n_rows == N
    path = written(tmp_path, with_gaps(["rain"] * N, None))
    rows = open_table(path, target="y", missing_target="drop")
    assert rows.load()[1].tolist() == ["rain"] * (N - 12)


def test_a_table_without_any_target_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [None] * N)
    with pytest.raises(DataError, match="'y' is empty in all 600 rows"):
        open_table(path, target="y", missing_target="drop")


def test_rows_read_in_pieces_train_on_what_has_a_target(tmp_path: Path) -> None:
    path = written(tmp_path, with_gaps([f"${y:,.2f}" for y in Y * 1000], "?"))
    rows = open_table(path, target="y", missing_target="drop", memory=0)
    assert not rows.fits_in_memory()
    model = ProtoPINVRegressor(**QUICK).fit(rows)
    assert model.history_.n_epochs == 4
    low, high = model.predict(pl.DataFrame({"x": [-1.0, 1.0]}))
    assert 20_000 < low < high < 60_000


def test_a_form_reads_nearly_all_targets_and_others_are_named(tmp_path: Path) -> None:
    targets = [f"{y} %" for y in Y.tolist()]
    path = written(tmp_path, [*targets[:-1], "a third"])
    rows = open_table(path, target="y")
    assert any("'y' is a number, written as 1,234.56 %" in line for line in rows.said)
    with pytest.raises(DataError, match="'a third' in row 600, among numbers written as"):
        rows.load()


def test_few_numbers_with_a_unit_are_classes_unless_numbers_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, [f"{3 + k % 3} doors" for k in range(N)])
    assert open_table(path, target="y").load()[1][0] == "3 doors"
    assert open_table(path, target="y", task="classification").load()[1][0] == "3 doors"
    assert open_table(path, target="y", task="regression").load()[1][0] == 3
    assert "3 doors" in ProtoPINVClassifier(**QUICK).fit(open_rows(path, "y")).classes_
    with pytest.warns(UserWarning, match="'y' is a number, written as 1,234.56 doors"):
        model = ProtoPINVRegressor(**QUICK).fit(open_rows(path, "y"))
    assert 2.5 < model.predict(pl.DataFrame({"x": [0.0]}))[0] < 5.5


def test_targets_that_look_like_numbers_in_several_forms_are_named(tmp_path: Path) -> None:
    path = written(tmp_path, [f"{k} {('kg', 'lb')[k % 3 == 0]}" for k in range(N)])
    (line,) = open_table(path, target="y").said
    assert re.search(r"'y' looks like numbers, such as '\d+ kg' and '\d+ lb', and no form", line)
