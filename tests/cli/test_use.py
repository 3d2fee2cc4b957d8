"""protopinv evaluate, predict, inspect, diagnose: a model that is there is used and looked at."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import answered, assert_refused, run

from protopinv import ProtoPINVClassifier, load
from protopinv.cli.output import ExitCode
from protopinv.cli.using import ROWS_AT_ONCE


@pytest.mark.parametrize("table", ["bugs.csv", "bugs.parquet"])
def test_evaluate_scores_the_table(folder: Path, table: str) -> None:
    answer = answered("evaluate", folder / "m.safetensors", folder / table, "--target", "kind")
    assert answer["accuracy"] == 1
    assert np.trace(answer["confusion"]) == answer["n_rows"] == 90
    assert [score["label"] for score in answer["per_class"]] == ["ant", "bee", "cat"]


def test_a_model_knows_its_target(folder: Path, tmp_path: Path) -> None:
    model = folder / "m.safetensors"
    named = answered("evaluate", model, folder / "bugs.csv", "--target", "kind")
    assert answered("evaluate", model, folder / "bugs.csv") == named
    scored = answered("report", model, "--data", folder / "bugs.csv", "-o", tmp_path / "page.html")
    assert scored["data"] == str(folder / "bugs.csv")
    # numbers without a name leave it to the user
    X = pl.read_csv(folder / "bugs.csv").drop("kind")
    unnamed = ProtoPINVClassifier(effort="quick", max_epochs=1).fit(X, np.arange(90) % 3)
    unnamed.save(tmp_path / "m.safetensors")
    for command in (
        ("evaluate", tmp_path / "m.safetensors", folder / "bugs.csv"),
        (
            "report",
            tmp_path / "m.safetensors",
            "--data",
            folder / "bugs.csv",
            "-o",
            tmp_path / "p.html",
        ),
    ):
        assert_refused(run(*command), ExitCode.DATA, "needs a target column", "Use --target")


def test_predict_gives_the_predictions_of_the_model(folder: Path) -> None:
    model = load(folder / "m.safetensors")
    X = pl.read_csv(folder / "bugs.csv").drop("kind")
    result = run("predict", folder / "m.safetensors", folder / "bugs.csv", "--proba")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["prediction"] for row in rows] == model.predict(X).tolist()
    probabilities = [[float(row[f"probability_{c}"]) for c in model.classes_] for row in rows]
    np.testing.assert_array_equal(probabilities, model.predict_proba(X))
    answer = answered("predict", folder / "m.safetensors", folder / "bugs.csv")
    assert answer["prediction"] == model.predict(X).tolist()


def test_predict_writes_a_file_whole(folder: Path) -> None:
    out = folder / "predictions.csv"
    result = run("predict", folder / "m.safetensors", folder / "bugs.csv", "-o", out)
    assert result.stdout == ""
    assert f"wrote 90 predictions to {out}" in result.stderr
    assert len(out.read_text().splitlines()) == 91


@pytest.mark.parametrize("ending", [".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".pq"])
def test_predictions_are_written_as_the_name_ends(folder: Path, ending: str) -> None:
    out = folder / f"predictions{ending}"
    command = ["predict", folder / "m.safetensors", folder / "bugs.csv", "-o", out]
    assert run(*command).returncode == 0
    if ending == ".json":
        found = json.loads(out.read_text())["prediction"]
    else:
        readers = {".csv": pl.read_csv, ".jsonl": pl.read_ndjson, ".ndjson": pl.read_ndjson}
        found = readers.get(ending, pl.read_parquet)(out)["prediction"].to_list()
    assert found == pl.read_csv(folder / "bugs.csv")["kind"].to_list()


def test_inspect_shows_shape_counts_and_configuration(folder: Path) -> None:
    answer = answered("inspect", folder / "m.safetensors")
    assert answer["layers"] == [5, 10, 3]
    assert answer["trained_numbers"] == 12 * (5 + 10 + 3) + 5  # and the scale of features
    assert answer["shipped_numbers"] == 6 * 10 + 11 * 3
    assert answer["config"]["max_epochs"] == 40
    assert answer["feature_names"] == ["f0", "f1", "f2", "f3", "f4"]
    assert answer["guard"] == []
    assert answer["classes"] == ["ant", "bee", "cat"]


def test_diagnose_shows_the_conditioning_of_every_layer(folder: Path) -> None:
    found = answered("diagnose", folder / "m.safetensors")
    model = load(folder / "m.safetensors")
    conditions = [layer.condition for layer in model.diagnose().layers]
    assert [layer["condition"] for layer in found["layers"]] == pytest.approx(conditions)
    assert all(0 < layer["change"] <= layer["bound"] for layer in found["perturbed"])
    text = run("diagnose", folder / "m.safetensors").stdout
    assert text.count("system condition") == len(conditions)


def test_people_get_text(folder: Path) -> None:
    for arguments in (
        ("inspect", folder / "m.safetensors"),
        ("evaluate", folder / "m.safetensors", folder / "bugs.csv", "--target", "kind"),
    ):
        result = run(*arguments)
        assert result.returncode == 0
        assert "ant" in result.stdout
        assert result.stderr == ""
    assert run("--version").stdout.startswith("protopinv ")
    assert "Watch a network train" in run("--help").stdout


def test_many_rows_are_predicted_in_pieces(folder: Path, tmp_path: Path) -> None:
    table = pl.read_csv(folder / "bugs.csv")
    many = pl.concat([table] * (ROWS_AT_ONCE // len(table) + 2))
    assert len(many) > ROWS_AT_ONCE
    many.write_parquet(tmp_path / "many.parquet")
    command = ["predict", folder / "m.safetensors", tmp_path / "many.parquet", "--proba"]
    result = run(*command, "-o", tmp_path / "answers.parquet")
    assert result.returncode == 0, result.stderr
    answers = pl.read_parquet(tmp_path / "answers.parquet")
    assert answers["prediction"].to_list() == many["kind"].to_list()
    assert answers.columns[1:] == ["probability_ant", "probability_bee", "probability_cat"]


def test_columns_are_matched_by_name(folder: Path, tmp_path: Path) -> None:
    table, model = pl.read_csv(folder / "bugs.csv"), folder / "m.safetensors"
    wider = table.with_columns(pl.lit("x").alias("extra"))
    wider.select(reversed(wider.columns)).write_csv(tmp_path / "wider.csv")
    table.drop("f1").write_csv(tmp_path / "narrower.csv")
    note = "warning: Rows should have the columns of the fit, and no others. They have 'extra' too."
    for command in ("predict", "evaluate"):
        plain = run(command, model, folder / "bugs.csv", "--json")
        result = run(command, model, tmp_path / "wider.csv", "--json")
        answers = [json.loads(each.stdout) for each in (plain, result)]
        first, second = ({n: v for n, v in each.items() if n != "data"} for each in answers)
        assert first == second
        assert result.stderr.startswith(note)
        assert result.stderr.count("\n") == 1
        refused = run(command, model, tmp_path / "narrower.csv")
        assert_refused(refused, ExitCode.DATA, "Every feature of the model", "There is no 'f1'")
