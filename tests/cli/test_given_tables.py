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
        ("a,a,b\n1,2,x\n", [], ["'a' twice"]),
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
