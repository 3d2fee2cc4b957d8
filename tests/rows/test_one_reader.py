"""A table in text is the same whether it is read whole or a piece at a time."""

import codecs
import gzip
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protopinv import open_rows
from protopinv.data import Dataset, load_data
from protopinv.errors import ConfigError, DataError
from protopinv.rows import delimited, source
from protopinv.rows import text as text_module

# A byte or two of each block: every cut there can be.
SMALL = 1


def load_table(path: Path, **options: Any) -> Dataset:
    """All rows of a table, with or without a target."""
    return load_data(str(path), split="train", needs_target=False, **options)


def at_once(path: Path, target: str = "y") -> Any:
    """What the command line reads of a file that fits in memory."""
    return outcome(lambda: load_table(path, target=target))


def pieces(path: Path, target: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What is read of it a block at a time, each block by itself and from the last to the first."""
    monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)

    def read() -> Any:
        import pyarrow as pa

        rows = open_rows(path, target, cache=None)
        rows.require_plain_targets()
        framed = rows.with_columns(rows.names, framed=True)
        read = [list(framed.read(block, 2)) for block in reversed(framed.blocks)]
        parts = [piece for block in reversed(read) for piece in block]
        return Read(pa.concat_tables(p.X for p in parts), np.concatenate([p.y for p in parts]))

    seen = outcome(read)
    monkeypatch.undo()
    return seen


class Read:
    """Features and targets."""

    def __init__(self, X: Any, y: Any) -> None:
        self.X, self.y = X, y


def outcome(read: Any) -> Any:
    """Columns with their types and values and the targets, or the error."""
    try:
        rows = read()
    except DataError as error:
        return str(error)
    columns = [(n, str(rows.X[n].type), rows.X[n].to_pylist()) for n in rows.X.column_names]
    return columns, str(rows.y.dtype), rows.y.tolist()


def assert_alike(path: Path, monkeypatch: pytest.MonkeyPatch, target: str = "y") -> Any:
    """One outcome, whatever the size of the blocks."""
    expected = at_once(path, target)
    for block_bytes in (SMALL, 23, 100):
        assert pieces(path, target, block_bytes, monkeypatch) == expected
    return expected


TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "leading zeros far below": ("a,y\n" + "12345,x\n" * 150 + "01234,z\n", {"a": "string"}),
    "hexadecimals": ("a,y\n1,x\n0x10,z\n", {"a": "string"}),
    "fractions far below": ("a,y\n" + "1,x\n" * 50 + "1.5,z\n", {"a": "double"}),
    "exponents": ("a,y\n1e5,x\n-2.5E-3,z\n", {"a": "double"}),
    "beyond 64 bits": ("a,y\n1,x\n99999999999999999999,z\n", {"a": "double"}),
    "infinities": ("a,y\n1.5,x\ninf,z\n2,x\n", {"a": "string"}),
    "nan": ("a,y\n1.5,x\nnan,z\n2,x\n", {"a": "string"}),
    "gap words": ("a,b,y\n1,NA,x\n2,?,z\nnull,3,x\n", {"a": "string", "b": "string"}),
    "gaps": ("a,b,y\n1,,x\n,,z\n3,,x\n", {"a": "int64", "b": "string"}),
    "truth": ("a,b,y\nTrue,1,x\nfalse,true,z\n", {"a": "bool", "b": "string"}),
    "days are text": ("a,b,y\n2020-01-01,09:30,x\n2021-01-01,10:30,z\n", {"a": "string"}),
    "blanks around numbers": ("a, y\n 1 ,x\n 2,z\n", {"a": "int64"}),
    "line breaks in quotes": ('a,y\n"one\ntwo\n\n three",x\n"f\r\ng",z\n', {"a": "string"}),
    "separators in quotes": ('a,b,y\n"1,5",2,x\n"3,5",4,z\n', {"a": "string", "b": "int64"}),
    "quotes in quotes": ('a,y\n"say ""hi"",\n""bye""",x\n"""",z\n', {"a": "string"}),
    "inches": ('a,b,y\n5" pipe,1,x\n"6"" pipe\n",2,z\n7" a"b",3,x\n', {"a": "string"}),
    "text behind quotes": ('a,y\n"x"y,1\n"x\n"z,2\n', {"a": "string"}),
    "names in quotes": ('"a\nb","c,d",y\n1,2,x\n3,4,z\n', {"a\nb": "int64", "c,d": "int64"}),
    "no name": (",b,\n1,2,3\n4,5,6\n", {"column 1": "int64", "column 3": "int64"}),
    "semicolons": ("a;b;y\n1.5;x,y;1\n2;z;2\n", {"a": "double", "b": "string"}),
    "tabs": ("a\tb\ty\n\t1,5\tx\n2\t2,5\tz\n", {"a": "int64", "b": "double"}),
    "bars": ("a|b|y\n1|2|x\n007|4|z\n", {"a": "string"}),
    "decimal commas": ("a;b;y\n1;1,5;2,5\n2;NA;3,5\n3;2,5;4,0\n", {"a": "int64", "b": "string"}),
    "decimal commas far below": ("a;y\n" + "1;2\n" * 150 + "1,5;2\n", {"a": "double"}),
    "lines of Windows": ("a,y\r\n1.5,x\r\n2,z\r\n\r\n", {"a": "double"}),
    "lines of old Macs": ("a,y\r1,x\r2,z\r", {"a": "int64"}),
    "empty lines": ("\n\na,y\n\n1,x\n\n\n2,z\n\n\n", {"a": "int64"}),
    "no line end": ("a,y\n1,x\n2,z", {"a": "int64"}),
    "classes with blanks": ("a,y\n1,p\n2,p \n3, q\n", {"a": "int64"}),
}


@pytest.mark.parametrize(("text", "kinds"), TABLES.values(), ids=TABLES)
def test_a_table_is_the_same_in_one_block_and_in_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kinds: dict[str, str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    target = " y" if text.startswith("a, y") else "b" if text.startswith(",b,") else "y"
    columns, _, _ = assert_alike(path, monkeypatch, target)
    assert {name: kind for name, kind, _ in columns if name in kinds} == kinds


def test_values_keep_line_breaks_and_quotes(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text('a,y\n"one\ntwo",x\n"say ""hi""",z\n5" pipe,x\n')
    columns, _, _ = assert_alike(path, monkeypatch)
    assert columns[0][2] == ["one\ntwo", 'say "hi"', '5" pipe']


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
def test_every_encoding_and_ending_is_read_on_both_roads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, encoding: str, packed: bool
) -> None:
    text = 'größe\tstadt\ty\n1,5\tKöln\tja\n2,5\t"Málaga\n€"\tnein\n' * 1
    raw = text.encode(encoding)
    raw = codecs.BOM_UTF16_BE + raw if encoding == "utf-16-be" else raw
    path = tmp_path / f"t.{ending}{'.gz' if packed else ''}"
    path.write_bytes(gzip.compress(raw) if packed else raw)
    columns, _, y = assert_alike(path, monkeypatch)
    assert columns == [
        ("größe", "double", [1.5, 2.5]),
        ("stadt", "string", ["Köln", "Málaga\n€"]),
    ]
    assert y == ["ja", "nein"]


REFUSED = {
    "an empty target": ("a,y\n1,p\n2,q\n3,\n", r"'y' of t\.csv is empty in row 3\. Fill it"),
    "a blank target": ('a,y\n1,p\n2," "\n', r"'y' of t\.csv is empty in row 2"),
    "a name twice": ("a,b,a,y\n1,2,3,x\n", r"'a' is there twice in the first line of"),
    "only names": ("a,y\n", r"at least one row and one feature\. t\.csv has 0 rows"),
    "nothing but the target": ("y\n1\n2\n", r"has 2 rows and 0 feature columns"),
    "too many fields": ('a,y\n"1\n",x\n\n2,z,3\n', r"Line 5 of t\.csv has 3 between ','"),
    "too few fields": ("a,b,y\n1,2,x\n3,z\n", r"Line 3 of t\.csv has 2 between ','.*first has 3"),
    "a comment": ("# made by hand\na,y\n1,x\n", r"Line 2 of t\.csv has 2 .*the first has 1"),
    "an open quote": ('a,y\n1,x\n2,"z\n3,x\n', r"must be closed\. The one in line 3 of t\.csv"),
    "a zero byte": ("a,y\n1,x\n2,\0\n", r"holds other bytes, a zero in line 3"),
    "a unit": (
        "a,y\n" + "".join(f"1,{n}.5\n" for n in range(40)) + "1,60kg\n",
        r"'60kg' in row 41",
    ),
    "the first of several": (
        "a,y\n" + "".join(f"1,{n}.5\n" for n in range(20)) + "1,60kg\n1,2.5\n1,70kg\n",
        r"'60kg' in row 21",
    ),
    "infinity": ("a,y\n1,1.5\n2,inf\n3,2.5\n", r"holds 'inf' in row 2, among numbers"),
    "a gap word": ("a,y\n1,1\n2,n/a\n3,2\n", r"'n/a' in row 2, among numbers.*ProtoPINVClassifier"),
    "digits beyond 64 bits": ("a,y\n1,1\n2,123456789012345678901\n", r"must fit into 64 bits"),
    "an unknown target": ("a,z\n1,1\n", r"no 'y'; it has 'a', 'z'\."),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_errors_are_the_same_in_one_block_and_in_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, newline="")
    error = assert_alike(path, monkeypatch)
    assert isinstance(error, str)
    with pytest.raises(DataError, match=message):
        raise DataError(error)


def test_messy_tables_are_the_same_in_one_block_and_in_many(tmp_path: Path, monkeypatch) -> None:
    chance, outcomes = random.Random(0), set()
    for number in range(300):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(messy(chance))
        expected = at_once(path)
        assert pieces(path, "y", chance.randint(1, 60), monkeypatch) == expected, path.read_bytes()
        outcomes.add(expected[:25] if isinstance(expected, str) else "read")
    assert len(outcomes) > 3  # it says something of more than errors
    assert "read" in outcomes


FIELDS = (
    ["1", "2.5", "-3", "1e3", "007", "", "NA", "inf", "true", "False", " 4 ", "1,5", "2020-01-02"],
    ["x", "y z", '"q"', '"a,b"', '"a;b"', '"l\nm"', '"""p"""', '5"', "+7", "0x1", "é", "  ", '"'],
)


def messy(chance: random.Random) -> bytes:
    """A table as nobody should write one."""
    separator, end = chance.choice(",;\t|"), chance.choice(["\n", "\r\n", "\r"])
    width = chance.randint(1, 4)
    fields = FIELDS[0] + FIELDS[1] if chance.random() < 0.3 else FIELDS[0]
    columns = [chance.sample(fields, 3) for _ in range(width)]
    rows = [[chance.choice(column) for column in columns] for _ in range(chance.randint(0, 12))]
    if chance.random() < 0.1 and rows:
        rows[-1].append("more")
    y = [chance.choice(["1", "2", "a", " a"][: chance.randint(2, 4)]) for _ in rows]
    lines = [[*(f"c{n}" for n in range(width)), "y"]]
    lines += [[*row, label] for row, label in zip(rows, y, strict=True)]
    text = end.join(separator.join(line) for line in lines) + end * chance.randint(0, 3)
    return text.encode(chance.choice(["utf-8", "utf-8", "cp1252", "utf-16"]), "replace")


def test_files_of_a_folder_have_the_types_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c,y\n1,1,1,1\n2,2,2,2\n")
    (tmp_path / "b.csv").write_text("a,b,c,y\n1.5,x,,1.5\n")
    (tmp_path / "c.csv").write_text("a,b,c,y\n")
    (tmp_path / "readme.txt").write_text("What these are.")
    X, y, _ = open_rows(tmp_path, "y").load()
    assert X["a"].to_pylist() == [1.0, 2.0, 1.5]
    assert X["b"].to_pylist() == ["1", "2", "x"]
    assert X["c"].to_pylist() == [1, 2, None]
    assert y.tolist() == [1.0, 2.0, 1.5]


def test_a_packed_file_is_refused_by_its_unpacked_size(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n" + b"1,x\n2,z\n" * 50_000))
    assert path.stat().st_size < 2_000
    monkeypatch.setattr(source, "IN_MEMORY_BYTES", 100_000)
    for read in (lambda: load_table(path, target="y"), lambda: open_rows(path, "y")):
        with pytest.raises(
            DataError, match=r"packed table .* t\.csv\.gz has more\. Unpack it first"
        ):
            read()


def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,y\n" + b"1,x\n2,z\n" * 5_000)[:-20])
    for read in (lambda: load_table(path, target="y"), lambda: open_rows(path, "y")):
        with pytest.raises(DataError, match=r"packed table must be whole\. t\.csv\.gz is not"):
            read()


@pytest.mark.parametrize("separator", [";;", "", '"', "\n", "§"])
def test_a_separator_that_cannot_be_is_refused(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;y\n1;2\n")
    with pytest.raises(ConfigError, match=r"one character, .* Got .*\. Change it"):
        open_rows(path, "y", separator=separator)


def test_a_field_may_be_long_and_a_table_wide(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'a,y\n"{"x" * 200_000}",1\nz,2\n')
    assert load_table(path, target="y").X["a"].to_pylist() == ["x" * 200_000, "z"]
    path.write_text(f'a,y\n"{"x" * 200_000}",1\nz,2,3\n')
    with pytest.raises(DataError, match=r"Line 3 of t\.csv has 3"):
        load_table(path, target="y")
    names = [f"c{n}" for n in range(5_000)]
    rows = "".join(",".join([str(n)] * 5_000) + f",{n}\n" for n in range(4))
    path.write_text(",".join([*names, "y"]) + "\n" + rows)
    assert load_table(path, target="y").X.shape == (4, 5_000)
    monkeypatch.setattr(text_module, "LONGEST_ROW", 10_000)
    path.write_text('a,y\n1,x\n2,"' + "z\n" * 10_000)
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1_000)
    with pytest.raises(DataError, match=r"A row of a table must end\. The one in line 3 of t\.csv"):
        load_table(path, target="y")


def test_an_empty_line_is_a_row_where_there_is_one_column(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n\n3\n\n\n")
    for block_bytes in (SMALL, 1_000):
        monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)
        assert load_table(path).X["a"].to_pylist() == [1, None, 3]


LABELS = {
    "above what a float can hold": (
        ["9007199254740993", "9007199254740992", "9007199254740993"],
        "int64",
    ),
    "above what a sign leaves room for": (
        ["18446744073709551615", "18446744073709551614"],
        "uint64",
    ),
    "with a point": (["1.0", "2.0", "1"], "int64"),
    "with a plus": (["+1", "2", "1"], "int64"),
    "truth": (["True", " false", "TRUE"], "bool"),
    "truth and numbers": (["True", "0", "1"], "object"),
    "leading zeros": (["01", "1", "01"], "object"),
    "codes of two digits": ([f"{n:02}" for n in range(60)], "object"),
    "text with some numbers": (["1", "2", "3", "many"], "object"),
    "gap words alone": (["None", "NA", "None"], "object"),
}


@pytest.mark.parametrize(("labels", "kind"), LABELS.values(), ids=LABELS)
def test_labels_are_the_same_in_one_block_and_in_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: list[str], kind: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{n},{label}\n" for n, label in enumerate(labels)))
    _, dtype, y = assert_alike(path, monkeypatch)
    assert dtype == kind
    assert len(set(y)) == len(
        {label.strip().lower().removesuffix(".0").lstrip("+") for label in labels}
    )


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv"])
def test_targets_are_the_same_in_every_format(tmp_path: Path, write, ending: str) -> None:
    """Text, and what becomes of it, over several files and blocks."""
    import pyarrow as pa

    n = 700
    columns: dict[str, list[Any]] = {
        "whole": [str(k % 3) for k in range(n)],
        "fraction": ["1.0" if k < n - 1 else "2.5" for k in range(n)],
        "truth": ["True" if k % 2 else " false" for k in range(n)],
        "name": ["p " if k % 2 else " p" for k in range(n - 1)] + ["q"],
        "zero": ["1"] * (n - 1) + ["01"],
    }
    folder = write(pa.table({"a": list(range(n)), **columns}), ending)
    expected = {
        "whole": ("int64", [0, 1, 2]),
        "fraction": ("float64", [1.0, 2.5]),
        "truth": ("bool", [False, True]),
        "name": ("object", ["p", "q"]),
        "zero": ("object", ["01", "1"]),
    }
    for name, (kind, labels) in expected.items():
        drop = [other for other in columns if other != name]
        _, y, _ = open_rows(folder, name, drop=drop).load()
        assert (str(y.dtype), np.unique(y).tolist()) == (kind, labels)
        one_file = load_table(folder / f"part-2.{ending}", target=name, drop=drop)
        assert str(one_file.y.dtype) == kind
    bad = pa.table({"a": list(range(n)), "y": [*(f"{k}.5" for k in range(n - 1)), "60kg"]})
    with pytest.raises(
        DataError, match=rf"part-2\.{ending} holds '60kg' in row 400, among numbers"
    ):
        open_rows(write(bad, ending, "bad"), "y").require_plain_targets()


@pytest.mark.parametrize("damage", range(40))
def test_a_damaged_parquet_file_is_one_clear_error(tmp_path: Path, table, damage: int) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    pq.write_table(table, path)
    raw, chance = bytearray(path.read_bytes()), random.Random(damage)
    place = len(raw) - 8 - chance.randrange(1_500)  # in its table of contents
    raw[place : place + 8] = chance.randbytes(8)
    path.write_bytes(raw)
    seen = outcome(lambda: load_table(path, target="y"))
    assert not isinstance(seen, str) or "\n" not in seen
