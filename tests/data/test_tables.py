import gzip
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from protopinv.data import Dataset, load_data, open_table
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


def load_table(path: Path, **options: Any) -> Dataset:
    """All rows of a table, with or without a target."""
    return load_data(str(path), split="train", needs_target=False, **options)


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
    assert data.X.column_names == ["width", "count", "wet"]
    assert pl.from_arrow(data.X).equals(TABLE.select("width", "count", "wet"))
    assert data.y is not None
    assert data.y.tolist() == ["a", "b", "a", "b"]


def test_a_model_takes_its_own_columns_in_its_own_order(tmp_path: Path) -> None:
    data = load_table(written(TABLE, tmp_path), features=["count", "width"])
    assert data.X.column_names == ["count", "width"]
    assert data.y is None


def test_columns_can_be_left_out(tmp_path: Path) -> None:
    data = load_table(written(TABLE, tmp_path), target="wet", drop=["kind", "count"])
    assert data.X.column_names == ["width"]


def test_numbers_that_turn_up_late_in_a_column_are_seen(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("a,t\n" + "1,x\n2,y\n" * 3000 + "1.5,x\n")
    assert load_table(path, target="t").X["a"][-1].as_py() == 1.5


BAD = {
    "an unknown target": (TABLE, {"target": "knd"}, r"must be a column.*no 'knd'.*mean 'kind'\?"),
    "a missing feature": (TABLE, {"features": ["age"]}, r"Every feature.*no 'age'.*Check"),
    "a column to drop": (TABLE, {"drop": ["knd"]}, r"to drop must be in .*mean 'kind'\?"),
    "the target dropped": (
        TABLE,
        {"target": "kind", "drop": ["kind"]},
        r"cannot be used and left out\. 'kind' is a target",
    ),
    "a name that is used already": (
        TABLE,
        {"target": "kind", "drop": ["kin"]},
        r"to drop must be in .* Check the spelling",
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


WRITTEN = {
    "semicolons": ("a;t\n1.5;x\n2;y\n", {}),
    "tabs": ("a\tt\n1.5\tx\n2\ty\n", {}),
    "decimal commas": ("a;t\n1,5;x\n2,0;y\n", {}),
    "a byte order mark": ("\ufeffa,t\n1.5,x\n2,y\n", {}),
    "a separator that is named": ("a:t\n1.5:x\n2:y\n", {"separator": ":"}),
    "quotes": ('"a","t"\n"1.5","x"\n"2","y"\n', {}),
    "lines of another system": ("a,t\r\n1.5,x\r\n2,y\r\n", {}),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("text", "options"), WRITTEN.values(), ids=WRITTEN)
def test_text_is_read_however_it_is_written(
    tmp_path: Path, text: str, options: dict, packed: bool
) -> None:
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    data = load_table(path, target="t", **options)
    assert data.X["a"].to_pylist() == [1.5, 2.0]
    assert data.y.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    ("encoding", "named", "said"),
    [("cp1252", None, ("cp1252",)), ("utf-16", None, ("utf-16",)), ("cp1252", "cp1252", ())],
)
def test_other_encodings_are_recognised_or_named(
    tmp_path: Path, encoding: str, named: str | None, said: tuple[str, ...]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("Straße,t\n1,süß\n2,sauer\n".encode(encoding))
    data = load_table(path, target="t", encoding=named)
    assert data.X.column_names == ["Straße"]
    assert data.y.tolist() == ["süß", "sauer"]
    assert [word in line for word, line in zip(said, data.said, strict=True)] == [True] * len(said)


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        (["01", "1", "1", "01"], ["01", "1", "1", "01"]),
        (["3", "1", "2", "1"], [3, 1, 2, 1]),
        (["1.5", "2", "2", "1.5"], [1.5, 2.0, 2.0, 1.5]),
        (["None", "NA", "NA", "None"], ["None", "NA", "NA", "None"]),
    ],
)
def test_labels_keep_their_text(tmp_path: Path, labels: list[str], wanted: list) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,t\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels)))
    assert load_table(path, target="t").y.tolist() == wanted


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "a,b\n1,2\n1,2,3,4\n",
            {},
            r"Line 3 of .* has 4 between ',', the first has 2.*separator=",
        ),
        ("a,b,a\n1,2,3\n", {}, r"'a' is there twice in the first line of"),
        ("a,b\n1,ü\n", {"encoding": "ascii"}, r"Line 2 of .* is not in ascii"),
        ("a,b\n1,2\n", {"encoding": "klingon"}, r"known to Python\. Got encoding=.klingon"),
        (" \n", {}, r"is empty"),
    ],
)
def test_text_that_cannot_be_read_names_the_line_and_the_options(
    tmp_path: Path, text: str, options: dict, message: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_table(path, target="b", **options)


def test_decimal_commas_are_read_beside_gaps_and_in_the_target(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;y\n1,5;2,5\nNA;3,5\n2,5;4,0\n")
    data = load_table(path, target="y")
    assert data.y.tolist() == [2.5, 3.5, 4.0]
    assert data.X["a"].to_pylist() == ["1.5", "NA", "2.5"]
    assert "commas in its decimals" in data.said[0]


def test_leading_zeros_stay_and_truth_is_truth(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("zip,y\n01234,true\n99999,False\n")
    data = load_table(path, target="y")
    assert data.X["zip"].to_pylist() == ["01234", "99999"]
    assert data.y.tolist() == [True, False]


def test_a_gap_among_numbers_of_the_target_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,2.5\n2,NA\n")
    with pytest.raises(DataError, match=r"Column 'y' of .* holds 'NA' in row 2, among numbers"):
        load_table(path, target="y")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("cut.parquet", b"PAR1 and no more"),
        ("binary.csv", bytes(range(256)) * 10),
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
    with pytest.raises(DataError, match=r"must be a \.csv or \.parquet file.* Got sheet\.xlsx"):
        load_table(tmp_path / "sheet.xlsx")


def test_a_name_that_is_nothing_gives_the_choices() -> None:
    with pytest.raises(DataError, match=r"or one of digits, mnist, fashion-mnist\. There is no"):
        load_data("minst", split="train")


def test_a_table_needs_a_target_to_train_on(tmp_path: Path) -> None:
    path = written(TABLE, tmp_path)
    with pytest.raises(DataError, match=r"needs a target column\..*target=COLUMN"):
        load_data(str(path), split="train")


def test_a_named_set_has_its_own_target() -> None:
    with pytest.raises(DataError, match=r"has its own target\. Got target=.foo. for digits"):
        load_data("digits", split="train", target="foo")


def test_a_missing_package_names_its_extra() -> None:
    with pytest.raises(MissingExtraError, match=r"needs the package nosuch.*'protopinv\[table\]'"):
        require("nosuch.part", extra="table", why="Reading a table")


def test_commas_that_group_digits_stay_in_a_file_with_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;y\n1,234;1,234\n1,234,567;1,234,567\n5,678;5,678.5\n")
    rows = open_table(str(path), target="y", task="regression")
    assert rows.load()[1].tolist() == [1_234, 1_234_567, 5_678.5]
    assert load_table(path, target="y").X["a"].to_pylist() == ["1,234", "1,234,567", "5,678"]
