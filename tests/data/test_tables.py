from pathlib import Path

import numpy as np
import polars as pl
import pytest

from protopinv.data import load_data
from protopinv.data.tables import load_table
from protopinv.errors import DataError, MissingExtraError
from protopinv.optional import require

TABLE = pl.DataFrame(
    {
        "width": [1.5, 2.5, 3.5, 4.5],
        "count": [1, 2, 3, 4],
        "wet": [True, False, True, False],
        "kind": ["a", "b", "a", "b"],
    }
)


def written(table: pl.DataFrame, folder: Path, suffix: str = ".csv") -> Path:
    path = folder / f"table{suffix}"
    if suffix.lower() == ".csv":
        table.write_csv(path)
    else:
        table.write_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".CSV", ".parquet", ".pq"])
def test_csv_and_parquet_give_the_same_numbers(tmp_path: Path, suffix: str) -> None:
    data = load_table(written(TABLE, tmp_path, suffix), target="kind")
    assert data.X.columns == ["width", "count", "wet"]
    np.testing.assert_array_equal(
        data.X.to_numpy(), [[1.5, 1, 1], [2.5, 2, 0], [3.5, 3, 1], [4.5, 4, 0]]
    )
    assert data.y is not None
    assert data.y.tolist() == ["a", "b", "a", "b"]


def test_a_model_takes_its_own_columns_in_its_own_order(tmp_path: Path) -> None:
    data = load_table(written(TABLE, tmp_path), features=["count", "width"])
    assert data.X.columns == ["count", "width"]
    assert data.y is None


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    data = load_table(written(TABLE, tmp_path), target="wet", drop=["kind", "count"])
    assert data.X.columns == ["width"]


def test_numbers_that_turn_up_late_in_a_column_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("a,t\n" + "1,x\n2,y\n" * 3000 + "1.5,x\n")
    assert load_table(path, target="t").X["a"][-1] == 1.5


BAD = {
    "an unknown target": (TABLE, {"target": "knd"}, r"must be a column.*no 'knd'.*mean 'kind'\?"),
    "a missing feature": (TABLE, {"features": ["age"]}, r"Every feature.*no 'age'.*Check"),
    "a column to drop": (TABLE, {"drop": ["knd"]}, r"to drop must be in .*mean 'kind'\?"),
    "text": (TABLE, {}, r"must be numbers\. Column 'kind' .* such as 'a'\. Encode"),
    "text among numbers": (
        TABLE.with_columns(width=pl.Series(["1.5", "2", "NA", "3"])),
        {"target": "kind"},
        r"Column 'width' .* such as 'NA'\. Encode",
    ),
    "a gap": (
        TABLE.with_columns(width=pl.Series([1.0, None, 2.0, 3.0])),
        {"target": "kind"},
        r"finite numbers\. Column 'width' .* holds None in row 2\. Fill",
    ),
    "nan": (
        TABLE.with_columns(width=pl.Series([1.0, 2.0, float("nan"), 3.0])),
        {"target": "kind"},
        r"finite numbers\. Column 'width' .* holds nan in row 3\. Fill",
    ),
    "inf": (
        TABLE.with_columns(width=pl.Series([1.0, 2.0, float("inf"), 3.0])),
        {"target": "kind"},
        r"finite numbers\. Column 'width' .* holds inf in row 3\. Fill",
    ),
    "a missing target": (
        TABLE.with_columns(kind=pl.Series(["a", None, "b", "b"])),
        {"target": "kind"},
        r"Every row needs a target\. Column 'kind' .* is empty in row 2",
    ),
    "no rows": (TABLE.head(0), {"target": "kind"}, r"at least one row .* has 0 rows"),
    "no features": (TABLE.select("kind"), {"target": "kind"}, r"and 0 feature columns"),
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(("table", "options", "message"), BAD.values(), ids=BAD)
def test_a_table_that_cannot_be_used_gives_one_clear_error(
    tmp_path: Path, table: pl.DataFrame, options: dict, message: str, suffix: str
) -> None:
    with pytest.raises(DataError, match=message):
        load_table(written(table, tmp_path, suffix), **options)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("cut.parquet", b"PAR1 and no more"),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n"),
        ("binary.csv", bytes(range(128, 256)) * 10),
    ],
)
def test_a_file_that_is_no_table_gives_one_clear_error(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as failure:
        load_table(tmp_path / name)
    assert "\n" not in str(failure.value)


def test_other_file_types_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sheet.xlsx").touch()
    with pytest.raises(DataError, match=r"must be a \.csv or \.parquet file\. Got sheet\.xlsx"):
        load_table(tmp_path / "sheet.xlsx")


def test_a_name_that_is_nothing_gives_the_choices() -> None:
    with pytest.raises(DataError, match=r"or one of digits, mnist, fashion-mnist\. There is no"):
        load_data("minst", split="train")


def test_a_table_needs_a_target_to_train_on(tmp_path: Path) -> None:
    path = written(TABLE, tmp_path)
    with pytest.raises(DataError, match=r"needs a target column\..*--target COLUMN"):
        load_data(str(path), split="train")


def test_a_named_set_has_its_own_target() -> None:
    with pytest.raises(DataError, match=r"has its own target\. Got --target foo for digits"):
        load_data("digits", split="train", target="foo")


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"needs the package nosuch.*'protopinv\[table\]'"):
        require("nosuch.part", extra="table", why="Reading a table")
