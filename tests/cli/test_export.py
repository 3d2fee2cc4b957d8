"""protopinv export and inspect --card: a model leaves as a user would take it."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import polars as pl
import pytest
from commands import answered, assert_refused, run

from protopinv import load
from protopinv.cli.output import ExitCode


def test_onnx_from_the_command_line_answers_as_predict_does(folder: Path) -> None:
    answer = answered("export", folder / "m.safetensors", folder / "m.onnx")
    assert answer["format"] == "ONNX"
    assert answer["file_bytes"] == (folder / "m.onnx").stat().st_size
    X = pl.read_csv(folder / "bugs.csv").drop("kind")
    session = onnxruntime.InferenceSession(folder / "m.onnx")
    labels = session.run(["label"], {"X": X.to_numpy().astype(np.float32)})[0]
    assert labels.tolist() == load(folder / "m.safetensors").predict(X).tolist()


def test_whole_numbers_are_calibrated_and_their_cost_is_told(folder: Path) -> None:
    table = folder / "bugs.csv"
    answer = answered(
        *("export", folder / "m.safetensors", folder / "m.c", "--dtype", "int8"),
        *("--calibrate", table, "--data", table, "--target", "kind"),
    )
    assert answer["accuracy_before"] == 1
    assert answer["accuracy_after"] > 0.95
    assert answer["compared_on_rows"] == 90
    assert answer["flash_bytes_of_constants"] < 1000
    assert [Path(file).name for file in answer["files"]] == ["m.c", "m.h", "m_test.c"]
    if (gcc := shutil.which("gcc")) is not None:
        sources = [str(folder / name) for name in ("m.c", "m_test.c")]
        command = [gcc, "-std=c99", *sources, "-o", str(folder / "cases"), "-lm"]
        subprocess.run(command, check=True)
        subprocess.run([str(folder / "cases")], check=True)


def test_a_smaller_file_still_serves_every_command_that_needs_no_bank(folder: Path) -> None:
    small = folder / "small.safetensors"
    answer = answered("export", folder / "m.safetensors", small, "--dtype", "float16")
    assert answer["file_bytes"] < (folder / "m.safetensors").stat().st_size
    assert answer["same_labels"] == 1
    assert answered("inspect", small)["prototypes"] is None
    table = ["--target", "kind"]
    assert answered("evaluate", small, folder / "bugs.csv", *table)["accuracy"] == 1
    result = run("diagnose", small)
    assert_refused(result, ExitCode.MODEL_FILE, "needs the prototypes of a model")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["m.onnx", "--dtype", "int8"], "ONNX is written in float32"),
        (["m.safetensors"], "must leave the model as it is"),
        (["m.safetensors", "--dtype", "int4"], "must be float64"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line(folder: Path, arguments: list[str], words: str) -> None:
    before = sorted(folder.iterdir())
    where, *rest = arguments
    name = where if "leave the model" in words else f"new-{where}"
    result = run("export", folder / "m.safetensors", folder / name, *rest)
    code = ExitCode.USAGE if "must be" in words else ExitCode.EXPORT
    assert_refused(result, code, words)
    assert sorted(folder.iterdir()) == before


def test_a_card_is_markdown_with_front_matter(folder: Path) -> None:
    result = run("inspect", folder / "m.safetensors", "--card")
    assert result.returncode == 0, result.stderr
    _, front, body = result.stdout.split("---\n", 2)
    facts = dict(line.split(": ", 1) for line in front.splitlines())
    assert json.loads(facts["library_name"]) == "protopinv"
    assert json.loads(facts["pipeline_tag"]) == "tabular-classification"
    assert "- classes: ant, bee, cat" in body
    assert "no measure here is of a test set" in body
