"""Tables as people have them, on the command line."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import QUICK, answered, assert_refused, run

from protopinv import load
from protopinv.cli.output import ExitCode

N = 200


def table() -> pl.DataFrame:
    random = np.random.default_rng(0)
    city = random.choice(["Rome", "Oslo", "Lima"], N)
    age = random.integers(18, 80, N)
    return pl.DataFrame(
        {
            "age": [None if k % 7 == 0 else int(a) for k, a in enumerate(age)],
            "city": [None if k % 11 == 0 else str(c) for k, c in enumerate(city)],
            "zip": random.integers(1, 4, N),
            "since": [f"{2015 + k % 5}-0{1 + k % 9}-10" for k in range(N)],
            "churn": np.where(city == "Rome", "01", "1"),
        }
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table().write_csv("t.csv")
    return tmp_path


def test_text_dates_and_gaps_train_with_no_option_but_the_target(here: Path) -> None:
    result = run("train", "t.csv", "--target", "churn", *QUICK)
    assert result.returncode == 0, result.stderr
    for words in ("city   category, 3 values", "since  date", "age    number, mostly"):
        assert words in result.stderr
    scores = answered("evaluate", "model.safetensors", "t.csv", "--target", "churn")
    assert scores["accuracy"] > 0.9
    assert [part["label"] for part in scores["per_class"]] == ["01", "1"]
    told = answered("inspect", "model.safetensors")
    assert told["feature_names"] == ["age", "city", "zip", "since"]


def test_columns_of_numbers_can_be_names(here: Path) -> None:
    result = run("train", "t.csv", "--target", "churn", "--categorical", "zip", *QUICK)
    assert "zip    category, 3 values (1, 2, 3)" in result.stderr
    assert run("predict", "model.safetensors", "t.csv").returncode == 0


def test_predictions_are_written_as_the_ending_says(here: Path) -> None:
    run("train", "t.csv", "--target", "churn", *QUICK)
    for name in ("p.csv", "p.parquet", "p.jsonl"):
        run("predict", "model.safetensors", "t.csv", "-o", name, "--proba")
    wanted = pl.read_csv("p.csv", schema_overrides={"prediction": pl.String})
    assert pl.read_parquet("p.parquet")["prediction"].to_list() == wanted["prediction"].to_list()
    lines = [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()]
    assert [line["prediction"] for line in lines] == wanted["prediction"].to_list()


def test_rows_come_from_other_programs(here: Path) -> None:
    given = Path("t.csv").read_bytes()
    piped("train", "-", "--target", "churn", *QUICK, given=given)
    packed = gzip.compress(given.replace(b",", b";"))
    found = piped("predict", "model.safetensors", "-", given=packed)
    assert found == run("predict", "model.safetensors", "t.csv").stdout


def piped(*arguments: str, given: bytes) -> str:
    """What a command answers to what another writes."""
    command = [sys.executable, "-m", "protopinv", *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True).stdout.decode()


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a,b\n1,2\n1,2,3\n", [], ["Line 3", "--separator"]),
        ("a,a,b\n1,2,x\n", [], ["'a' is there twice"]),
        ("a,b\n1,x\n2,x\n", [], ["x"]),
        ("a,b\n,x\n,y\n", [], ["'a': it is empty"]),
        ("a,b\n1,x\n2,y\n", ["--separator", ";;"], ["one character"]),
        ("a,b\n1,x\n2,y\n", ["--categorical", "c"], ["no 'c'"]),
        ("a,b\n1,x\n2,y\n", ["--drop", "b"], ["cannot be used and left out"]),
    ],
    ids=["ragged", "twice", "one class", "empty", "separator", "categorical", "dropped target"],
)
def test_bad_tables_are_refused_in_one_line(
    here: Path, text: str, options: list[str], words: list[str]
) -> None:
    Path("bad.csv").write_text(text)
    before = sorted(here.iterdir())
    result = run("train", "bad.csv", "--target", "b", "--task", "classification", *options)
    code = ExitCode.USAGE if options[:1] in (["--separator"], ["--categorical"]) else ExitCode.DATA
    assert_refused(result, code, *words)
    assert sorted(here.iterdir()) == before


def test_a_folder_of_files_may_have_another_separator_and_encoding(tmp_path: Path) -> None:
    rows = [f"{'Köln' if n % 2 else 'Málaga'};{n};{'ja' if n % 2 else 'nein'}" for n in range(60)]
    folder = tmp_path / "rows"
    folder.mkdir()
    for name, part in (("a", rows[:40]), ("b", rows[40:])):
        text = "\n".join(["stadt;größe;antwort", *part, ""])
        (folder / f"{name}.csv").write_bytes(text.encode("cp1252"))
    path = tmp_path / "m.safetensors"
    command = ["train", folder, "--target", "antwort", "-o", path, *QUICK]
    answer = answered(*command, "--separator", ";", "--encoding", "cp1252")
    assert (answer["rows"], answer["classes"]) == (60, 2)
    assert load(path).feature_names_in_.tolist() == ["stadt", "größe"]


def test_a_folder_and_a_file_are_refused_in_the_same_words(here: Path) -> None:
    tables = {
        "an empty target": "a,b\n1,x\n2,\n3,y\n",
        "a name twice": "a,a,b\n1,2,x\n3,4,y\n",
        "lines of old Macs": "a,b\r1,x\r2\r",
        "one bad number": "a,b\n" + "".join(f"1,{n}.5\n" for n in range(95)) + "1,60kg\n",
        "infinity": "a,b\n1,1.5\n2,inf\n",
        "a gap word": "a,b\n1,1.5\n2,n/a\n",
    }
    for name, text in tables.items():
        folder = here / name
        folder.mkdir()
        (folder / "t.csv").write_text(text, newline="")
        options = ("--target", "b", "--missing-target", "error")
        errors = [run("train", place, *options) for place in (folder, folder / "t.csv")]
        for error in errors:
            assert_refused(error, ExitCode.DATA, "t.csv")
        assert len({error.stderr for error in errors}) == 1
    assert not Path("model.safetensors").exists()


@pytest.mark.parametrize("in_a_folder", [False, True])
def test_a_target_that_a_user_calls_classes_may_mix_them(here: Path, in_a_folder: bool) -> None:
    folder = here / "rows"
    folder.mkdir()
    labels = ["1", "2", "60kg", " 60kg"]
    text = "".join(f"{n % 7},{labels[n % 4] if n > 90 else n % 2 + 1}\n" for n in range(100))
    (folder / "t.csv").write_text("a,b\n" + text)
    data = folder if in_a_folder else folder / "t.csv"
    refused = run("train", data, "--target", "b")
    assert_refused(refused, ExitCode.DATA, "'60kg' in row 92", "--task classification")
    answer = answered("train", data, "--target", "b", "--task", "classification", *QUICK)
    assert answer["classes"] == 3


def test_a_table_of_text_is_the_same_model_from_a_folder(here: Path) -> None:
    folder = here / "rows"
    folder.mkdir()
    rows = "".join(f"0{n % 5};{n},5;{'True' if n % 2 else 'false'}\n" for n in range(200))
    (folder / "t.csv").write_text("zip;size;y\n" + rows)
    found = []
    for data in (folder, folder / "t.csv"):
        result = run("train", data, "--target", "y", *QUICK)
        assert result.returncode == 0, result.stderr
        assert "with commas in its decimals" in result.stderr
        assert "zip   category, 5 values (00, 01, 02, ...)" in result.stderr
        assert "size  number, mostly" in result.stderr
        found.append(run("predict", "model.safetensors", folder / "t.csv", "--proba").stdout)
    assert found[0] == found[1]
    assert found[0].startswith("prediction,probability_False,probability_True")


def test_a_model_of_names_is_scored_on_digits_alone(here: Path) -> None:
    rows = [f"{n % 7},{('01', '2', 'x')[n % 3]}" for n in range(90)]
    Path("names.csv").write_text("\n".join(["a,y", *rows, ""]))
    Path("digits.csv").write_text("\n".join(["a,y", *(row for row in rows if row[-1] == "2")]))
    answered("train", "names.csv", "--target", "y", *QUICK)
    scores = answered("evaluate", "model.safetensors", "digits.csv")
    assert [part["label"] for part in scores["per_class"] if part["n_rows"]] == ["2"]
