"""Rows in files: the same whatever they lie in, and one clear error for whatever is wrong."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from protopinv import open_rows
from protopinv.errors import DataError
from protopinv.rows import delimited, files


def everything(source) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    return source.load()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_rows_are_the_same_in_any_format(table, write, kind, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 5_000)
    source = open_rows(write(table, kind), "y", weight="w")
    X, y, weight = everything(source)
    np.testing.assert_array_equal(X, np.column_stack([table[f"x{i}"] for i in range(4)]))
    assert y.tolist() == table["y"].to_pylist()
    np.testing.assert_array_equal(weight, table["w"].to_numpy())
    assert source.names == ("x0", "x1", "x2", "x3")
    assert source.n_rows == 700
    assert len(source.blocks) > 4


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv"])
def test_a_block_is_read_alone_and_in_pieces(table, write, kind, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 5_000)
    monkeypatch.setattr(files, "LEAST_ROWS", 16)
    source = open_rows(write(table, kind), "y")
    block = source.blocks[-2]
    pieces = list(source.read(block, 16))
    assert [piece.first for piece in pieces] == list(range(0, block.n_rows, 16))
    whole = np.concatenate([piece.X for piece in pieces])
    expected = table.slice(block.start, block.n_rows)
    np.testing.assert_array_equal(whole[:, 1], expected["x1"].to_numpy())


def test_targets_can_be_read_without_features(table, write) -> None:
    source = open_rows(write(table), ["x3", "x2"])
    piece = next(source.read(source.blocks[0], 10, features=False))
    assert piece.X.shape == (90, 0)
    np.testing.assert_array_equal(piece.y[:, 0], table["x3"].to_numpy()[:90])


def test_dictionary_columns_booleans_and_decimals_are_decoded(tmp_path: Path) -> None:
    codes = pa.array([1.5, 2.5, 1.5]).dictionary_encode()
    labels = pa.array(["a", "b", "a"]).dictionary_encode()
    flags = pa.array([True, False, True])
    pq.write_table(pa.table({"c": codes, "f": flags, "y": labels}), tmp_path / "t.parquet")
    X, y, _ = open_rows(tmp_path / "t.parquet", "y").load()
    assert X.tolist() == [[1.5, 1.0], [2.5, 0.0], [1.5, 1.0]]
    assert y.tolist() == ["a", "b", "a"]


def test_what_is_wrong_with_a_file_is_said_with_its_name(table, write, tmp_path: Path) -> None:
    folder = write(table)
    (folder / "part-1.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match=r"readable\. .*part-1\.parquet is not"):
        open_rows(folder, "y")
    (folder / "part-1.parquet").write_bytes(b"")
    with pytest.raises(DataError, match=r"must not be empty\. .*part-1\.parquet has no bytes"):
        open_rows(folder, "y")
    (folder / "part-1.parquet").unlink()
    with pytest.raises(DataError, match=r"target must be a column.*no 'z'"):
        open_rows(folder, "z")
    pq.write_table(table.drop_columns(["x2"]), folder / "part-3.parquet")
    with pytest.raises(DataError, match=r"same columns\. part-3\.parquet has no 'x2'"):
        open_rows(folder, "y")
    other = table.set_column(2, "x2", table["x2"].cast(pa.string()))
    pq.write_table(other, folder / "part-3.parquet")
    with pytest.raises(DataError, match=r"'x2' is double in part-0\.parquet and string in part-3"):
        open_rows(folder, "y")
    with pytest.raises(DataError, match=r"There is no .*nowhere"):
        open_rows(tmp_path / "nowhere", "y")
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="holds none"):
        open_rows(tmp_path / "bare", "y")


def test_files_of_two_kinds_and_files_of_tools_are_told_apart(table, write) -> None:
    folder = write(table)
    (folder / "_metadata.csv").write_text("what a tool left behind")
    assert open_rows(folder, "y").n_rows == 700
    (folder / "more.csv").write_text("x0,y\n1,2\n")
    with pytest.raises(DataError, match=r"files of one kind.*csv and parquet"):
        open_rows(folder, "y")


def test_gaps_are_named_by_file_and_row(table, write) -> None:
    gap = pa.array([*table["x1"].to_pylist()[:650], None, *table["x1"].to_pylist()[651:]])
    source = open_rows(write(table.set_column(1, "x1", gap)), "y")
    assert source.is_framed
    assert source.load()[0]["x1"].null_count == 1
    numbers = source.with_columns(source.names, framed=False)
    with pytest.raises(DataError, match=r"'x1' of part-2\.parquet is empty in row 351"):
        [list(numbers.read(block, 100)) for block in source.blocks]


def test_text_among_features_comes_as_it_is_or_is_refused_as_numbers(table, write) -> None:
    source = open_rows(write(table), "x0")
    X, _, _ = source.load()
    assert source.is_framed
    assert X["y"].to_pylist() == table["y"].to_pylist()
    numbers = source.with_columns(source.names, framed=False)
    with pytest.raises(DataError, match=r"Features must be numbers\. Column 'y' of part-0"):
        next(numbers.read(source.blocks[0], 10))


def test_a_file_that_changes_while_it_is_read_is_noticed(table, write) -> None:
    folder = write(table)
    source = open_rows(folder, "y")
    pq.write_table(table.slice(0, 50), folder / "part-0.parquet")
    with pytest.raises(DataError, match=r"stay as it is.*part-0\.parquet had 90 rows"):
        source.load()


def test_a_csv_file_that_changes_while_it_is_read_is_noticed(table, write, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 5_000)
    folder = write(table, "csv")
    source, path = open_rows(folder, "y"), folder / "part-0.csv"
    lines = path.read_text().splitlines(keepends=True)
    for changed in (b"\xff" * 30_000, "".join(lines[:10]).encode(), "".join(lines[3:]).encode()):
        path.write_bytes(changed)
        with pytest.raises(DataError, match=r"part-0\.csv"):
            source.load()
    path.unlink()
    with pytest.raises(DataError, match=r"part-0\.csv is not .*No such file"):
        source.load()


def test_a_fingerprint_tells_files_apart(table, write) -> None:
    one, same = (open_rows(write(table, name=name), "y").fingerprint() for name in "ab")
    assert one == same
    changed = table.set_column(0, "x0", pa.array(table["x0"].to_numpy() + 1e-3))
    assert open_rows(write(changed, name="c"), "y").fingerprint() != one


def test_csv_may_have_another_separator_and_encoding(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 200)  # several stretches
    towns = ["Köln", "Málaga", "Besançon", "Ålesund"] * 20
    lines = [f"{number}.5;{town};{number % 2}" for number, town in enumerate(towns)]
    text = "\n".join(["größe;stadt;y", *lines, ""])
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    rows = open_rows(tmp_path, "y", separator=";", encoding="cp1252")
    assert rows.names == ("größe", "stadt")
    assert len(rows.blocks) > 3
    X, y, _ = rows.load()
    assert X["stadt"].to_pylist() == towns
    assert X["größe"].to_pylist() == [number + 0.5 for number in range(80)]
    assert y.tolist() == [number % 2 for number in range(80)]
    other = open_rows(tmp_path, "y", separator=";", encoding="latin-1")
    assert other.fingerprint() != rows.fingerprint()
    with pytest.raises(DataError, match=r"Line 1 of a\.csv is not in UTF-8"):
        open_rows(tmp_path, "y", separator=";", encoding="UTF-8")
    with pytest.raises(DataError, match="known to Python"):
        open_rows(tmp_path, "y", encoding="klingon")
    with pytest.raises(DataError, match="An encoding must be known to Python"):
        open_rows(tmp_path, "y", encoding="utf-7")


def test_a_separator_is_of_csv_files_alone(table, write) -> None:
    with pytest.raises(DataError, match=r"of CSV files\. part-0\.parquet is parquet"):
        open_rows(write(table), "y", separator=";")
