"""Commands as a user runs them: real processes, real files, exit codes, one line an error."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from protopinv import load
from protopinv.cli.output import ExitCode

QUICK = ["--n-prototypes", "12", "--hidden-sizes", "10", "--max-epochs", "40"]
QUICK += ["--early-stopping", "false"]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "protopinv", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


def answered(*arguments: object) -> dict:
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_refused(result: subprocess.CompletedProcess[str], code: ExitCode, *words: str) -> None:
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, blobs) -> Path:
    """A table and a model trained on it."""
    folder = tmp_path_factory.mktemp("cli")
    X, y = blobs
    columns = {f"f{index}": column for index, column in enumerate(X.T)}
    table = pl.DataFrame({**columns, "kind": np.array(["ant", "bee", "cat"])[y]})
    table.write_csv(folder / "bugs.csv")
    table.write_parquet(folder / "bugs.parquet")
    answer = answered(
        "train", folder / "bugs.csv", "--target", "kind", "-o", folder / "m.safetensors", *QUICK
    )
    assert answer["rows"] == 90
    assert answer["features"] == 5
    assert answer["classes"] == 3
    assert answer["validation_accuracy"] is None
    return folder


def test_demo_learns_the_digits_it_has_not_seen() -> None:
    answer = answered("demo")
    assert answer["accuracy"] >= 0.97
    assert answer["test_rows"] == 450


def test_training_twice_writes_the_same_weights(folder: Path) -> None:
    again = folder / "again.safetensors"
    answered("train", folder / "bugs.parquet", "--target", "kind", "-o", again, *QUICK)
    first, second = load(folder / "m.safetensors"), load(again)
    for mine, theirs in zip(first.network_.weights, second.network_.weights, strict=True):
        assert mine.equal(theirs)


def test_every_hyperparameter_reaches_the_model(folder: Path) -> None:
    path = folder / "options.safetensors"
    answered(
        *("train", folder / "bugs.csv", "--target", "kind", "-o", path, "--seed", 7),
        *("--hidden-sizes", "8,6", "--ridge", "3,2,1", "--learn-ridge", "false,true,true"),
        *("--n-components", "none", "--batch-size", "30", "--lr-ratios", "1,0.5,2"),
        *("--activation", "gelu", "--early-stopping", "true", "--validation-fraction", "0.2"),
        *("--max-epochs", "12", "--n-prototypes", "9", "--normalize-inputs"),
        *("--drop", "f0", "--drop", "f2"),
    )
    assert load(path).feature_names_in_.tolist() == ["f1", "f3", "f4"]
    params = load(path).get_params()
    expected = {
        "random_state": 7,
        "hidden_sizes": (8, 6),
        "ridge": (3, 2, 1),
        "learn_ridge": (False, True, True),
        "n_components": None,
        "batch_size": 30,
        "lr_ratios": (1, 0.5, 2),
        "activation": "gelu",
        "early_stopping": True,
        "validation_fraction": 0.2,
        "normalize_inputs": True,
    }
    assert {name: params[name] for name in expected} == expected


@pytest.mark.parametrize("table", ["bugs.csv", "bugs.parquet"])
def test_evaluate_scores_the_table(folder: Path, table: str) -> None:
    answer = answered("evaluate", folder / "m.safetensors", folder / table, "--target", "kind")
    assert answer["accuracy"] == 1
    assert np.trace(answer["confusion"]) == answer["n_rows"] == 90
    assert [score["label"] for score in answer["per_class"]] == ["ant", "bee", "cat"]


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


def test_inspect_shows_shape_counts_and_configuration(folder: Path) -> None:
    answer = answered("inspect", folder / "m.safetensors")
    assert answer["layers"] == [5, 10, 3]
    assert answer["trained_numbers"] == 12 * (5 + 10 + 3)
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


@pytest.mark.parametrize(
    ("drop", "left"),
    [
        (["--drop", "f0,f2"], ["f1", "f,3"]),
        (["--drop", "f0, f2", "--drop", "f1"], ["f,3"]),
        (["--drop", "f,3"], ["f0", "f1", "f2"]),
        (["--drop", "f,3", "--drop", "f0,f1"], ["f2"]),
    ],
    ids=" ".join,
)
def test_columns_are_left_out_one_by_one_or_as_a_list(
    folder: Path, drop: list[str], left: list[str]
) -> None:
    table = pl.read_csv(folder / "bugs.csv").drop("f4").rename({"f3": "f,3"})
    table.write_csv(folder / "commas.csv")
    out = folder / "dropped.safetensors"
    short = ["--n-prototypes", "5", "--hidden-sizes", "4", "--max-epochs", "2"]
    answered("train", folder / "commas.csv", "--target", "kind", "-o", out, *short, *drop)
    assert load(out).feature_names_in_.tolist() == left


def test_progress_elsewhere_says_which_epoch_its_numbers_are_of(folder: Path) -> None:
    out = folder / "watched.safetensors"
    result = run(
        *("train", folder / "bugs.csv", "--target", "kind", "-o", out, "--verbose", *QUICK),
        *("--early-stopping", "cross"),
    )
    task, *lines, saved = result.stderr.splitlines()
    assert task.startswith("task: classification")
    assert saved == f"saved {out}"
    assert lines
    for line in lines:
        assert re.fullmatch(r"epoch \d+/\d+ loss \S+( validation (loss )?\S+)?", line)


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


@pytest.fixture(scope="module")
def tables(folder: Path) -> Path:
    """Numbers, two numbers, three labels, weights: what other tasks are trained on."""
    random = np.random.default_rng(0)
    X = random.standard_normal((120, 3))
    columns = {f"x{index}": column for index, column in enumerate(X.T)}
    pl.DataFrame(
        {
            **columns,
            "price": 100 + 20 * X[:, 0] - 5 * X[:, 1],
            "size": X[:, 2] * 3,
            "red": (X[:, 0] > 0).astype(int),
            "old": X[:, 1] > 0,
            "big": (X[:, 2] > 0.5).astype(float),
            "grade": np.round(X[:, 0]).astype(int),
            "count": np.arange(120),
            "often": random.integers(1, 4, 120),
        }
    ).write_csv(folder / "things.csv")
    return folder


OTHERS = {"price", "size", "red", "old", "big", "grade", "count", "often"}


def trained(tables: Path, target: str, *options: str) -> tuple[dict, Path]:
    """A model for the features x0, x1, x2 only."""
    out = tables / "task.safetensors"
    drop = ",".join(sorted(OTHERS - set(target.split(",")) - set(options)))
    result = run(
        *("train", tables / "things.csv", "--target", target, "-o", out, "--drop", drop, "--json"),
        *("--n-prototypes", "20", "--hidden-sizes", "16", "--max-epochs", "120", *options),
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert f"task: {answer['task']} (" in result.stderr or "--task" in options
    return answer, out


@pytest.mark.parametrize(
    ("target", "task", "sizes"),
    [
        ("price", "regression", {"targets": 1}),
        ("price,size", "regression", {"targets": 2}),
        ("red,price", "regression", {"targets": 2}),
        ("red,old,big", "multi-label", {"labels": 3}),
        ("old", "classification", {"classes": 2}),
        ("grade", "classification", {}),
        ("count", "regression", {"targets": 1}),
    ],
)
def test_the_target_says_which_task_it_is(
    tables: Path, target: str, task: str, sizes: dict
) -> None:
    answer, _ = trained(tables, target, "--max-epochs", "2")
    assert answer["task"] == task
    assert sizes.items() <= answer.items()


def test_numbers_are_trained_scored_and_predicted(tables: Path) -> None:
    _, model = trained(tables, "price,size", "--validation-fraction", "0.2")
    score = answered("evaluate", model, tables / "things.csv", "--target", "price,size")
    assert score["r2"] > 0.9
    assert [part["target"] for part in score["per_target"]] == ["price", "size"]
    assert score["rmse"] == pytest.approx(np.mean([p["rmse"] for p in score["per_target"]]))
    text = run("evaluate", model, tables / "things.csv", "--target", "price,size").stdout
    assert re.search(r"^price +0\.9", text, re.MULTILINE)
    predicted = answered("predict", model, tables / "things.csv")
    X = pl.read_csv(tables / "things.csv").select("x0", "x1", "x2")
    expected = load(model).predict(X)
    assert list(predicted) == ["prediction_1", "prediction_2"]
    np.testing.assert_array_equal(np.column_stack(list(predicted.values())), expected)
    told = answered("inspect", model)
    assert (told["task"], told["targets"], told["members"]) == ("regression", 2, 1)
    assert "validation_r2" in told
    refused = run("predict", model, tables / "things.csv", "--proba")
    assert_refused(refused, ExitCode.USAGE, "predicts numbers. Leave out --proba.")
    refused = run("evaluate", model, tables / "things.csv", "--target", "price")
    assert_refused(refused, ExitCode.DATA, "Targets must be those of the model: 2")


def test_one_number_is_called_prediction(tables: Path) -> None:
    _, model = trained(tables, "price", "--loss", "huber")
    assert load(model).config_.loss == "huber"
    assert list(answered("predict", model, tables / "things.csv")) == ["prediction"]
    text = run("evaluate", model, tables / "things.csv", "--target", "price").stdout
    assert "r2 " in text
    assert "target" not in text.replace("targets", "")


def test_labels_are_trained_scored_and_predicted(tables: Path) -> None:
    _, model = trained(tables, "red,old,big")
    score = answered("evaluate", model, tables / "things.csv", "--target", "red,old,big")
    assert score["micro_f1"] > 0.9
    assert [part["label"] for part in score["per_label"]] == ["red", "old", "big"]
    predicted = answered("predict", model, tables / "things.csv", "--proba")
    kinds = ("prediction", "probability")
    assert list(predicted) == [f"{kind}_{n}" for kind in kinds for n in (1, 2, 3)]
    chance = np.array([predicted[f"probability_{n}"] for n in (1, 2, 3)])
    answers = np.array([predicted[f"prediction_{n}"] for n in (1, 2, 3)])
    np.testing.assert_array_equal(chance > 0.5, answers == 1)


def test_weights_reach_training_and_scores(tables: Path) -> None:
    _, plain = trained(tables, "price", "--drop", "often")
    before = load(plain).network_.weights[0]
    drop = ",".join(sorted(OTHERS - {"price", "often"}))
    out = tables / "weighted.safetensors"
    answered(
        *("train", tables / "things.csv", "--target", "price", "--weight", "often", "-o", out),
        *("--n-prototypes", "20", "--hidden-sizes", "16", "--max-epochs", "120", "--drop", drop),
    )
    model = load(out)
    assert model.feature_names_in_.tolist() == ["x0", "x1", "x2"]
    assert not model.network_.weights[0].equal(before)
    scored = ("evaluate", out, tables / "things.csv", "--target", "price")
    assert answered(*scored, "--weight", "often")["mae"] != answered(*scored)["mae"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ("--target price --task multi-label", ExitCode.USAGE, "Got one target"),
        ("--target red,old --task classification", ExitCode.USAGE, "has one target. Got 2"),
        ("--target grade --loss huber --task classification", ExitCode.USAGE, "--loss does not go"),
        ("--target price --task regression --label-smoothing 0.1", ExitCode.USAGE, "does not go"),
        ("--target price --weight oftn", ExitCode.DATA, "Did you mean 'often'?"),
        ("--target price,siz", ExitCode.DATA, "Did you mean 'size'?"),
    ],
)
def test_what_does_not_fit_a_task_is_refused(
    tables: Path, options: str, code: ExitCode, words: str
) -> None:
    assert_refused(run("train", tables / "things.csv", *options.split()), code, words)


def test_a_stem_and_copies_are_given_flat(tmp_path: Path) -> None:
    out = tmp_path / "stem.safetensors"
    answered(
        *(
            "train",
            "digits",
            "-o",
            out,
            "--stem",
            "pca",
            "--stem-filters",
            "4",
            "--stem-patch",
            "3",
        ),
        *("--stem-pool", "2", "--image-copies", "1", "--copy-shift", "0.5", "--max-epochs", "2"),
        *("--n-prototypes", "20", "--hidden-sizes", "16"),
    )
    params = load(out).get_params()
    found = {name: params[name] for name in ("stem__kind", "stem__filters", "copies__n")}
    assert found == {"stem__kind": "pca", "stem__filters": 4, "copies__n": 1}
    assert answered("inspect", out)["config"]["stem_filters"] == 4


@pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"),
    reason="needs PROTOPINV_DATA: a folder with the public image sets",
)
def test_mnist_is_learned_from_its_files(tmp_path: Path) -> None:
    path = tmp_path / "mnist.safetensors"
    answer = answered(
        *("train", "mnist", "-o", path, "--scaling", "global", "--max-epochs", "2"),
        *("--batch-size", "1000", "--lr", "0.05", "--validation-fraction", "0.1"),
        *("--hidden-sizes", "128", "--n-components", "100", "--n-prototypes", "100"),
    )
    assert answer["rows"] == 60_000
    score = answered("evaluate", path, "mnist")
    assert score["n_rows"] == 10_000
    assert score["accuracy"] > 0.92
    assert abs(score["accuracy"] - answer["validation_accuracy"]) < 0.03


def test_a_named_set_without_its_files_is_refused(tmp_path: Path, folder: Path) -> None:
    nothing = {"PROTOPINV_DATA": "", "XDG_CACHE_HOME": str(tmp_path), "http_proxy": "127.0.0.1:9"}
    result = run(
        *("train", "mnist", "-o", tmp_path / "m", *QUICK), **nothing, https_proxy="127.0.0.1:9"
    )
    assert_refused(result, ExitCode.DATA, "mnist must be on disk or downloadable")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "nowhere.csv"], ExitCode.DATA, ["There is no file nowhere.csv"]),
        (["train", "bugs.csv"], ExitCode.DATA, ["--target COLUMN"]),
        (["train", "bugs.csv", "--target", "knd"], ExitCode.DATA, ["Did you mean 'kind'?"]),
        (["train", "bugs.csv", "--target", "f0"], ExitCode.DATA, ["must be numbers", "'kind'"]),
        (
            ["train", "bugs.csv", "--target", "kind", "--lr", "-1"],
            ExitCode.USAGE,
            ["lr must be a positive number. Got -1."],
        ),
        (
            ["train", "bugs.csv", "--target", "kind", "--drop", "f0,f9"],
            ExitCode.DATA,
            ["A column to drop must be in the table", "no 'f9'"],
        ),
        (
            ["train", "bugs.csv", "--target", "kind", "--device", "gpu:1"],
            ExitCode.USAGE,
            ["device must be", "Got 'gpu:1'"],
        ),
        (
            ["train", "bugs.csv", "--target", "kind", "--ridge", "much"],
            ExitCode.USAGE,
            ["--ridge takes numbers", "Got 'much'"],
        ),
        (
            ["train", "bugs.csv", "--target", "kind", "-o", "no/m.safetensors"],
            ExitCode.OUTPUT,
            ["There is no no. Create it first."],
        ),
        (["predict", "bugs.csv", "bugs.csv"], ExitCode.MODEL_FILE, ["must be whole"]),
        (["predict", "m.safetensors", "other.csv"], ExitCode.DATA, ["no 'f1'"]),
        (["inspect", "nothing"], ExitCode.MODEL_FILE, ["There is none at nothing"]),
        (["inspect", "x" * 300], ExitCode.MODEL_FILE, ["must be", "Check the path"]),
        (["train", "x" * 300], ExitCode.DATA, ["There is no file xxx"]),
        (["train", "nowhere.csv", "-o", "/proc/m"], ExitCode.OUTPUT, ["/proc cannot"]),
        (["train", "nowhere.csv", "-o", "kept.safetensors"], ExitCode.OUTPUT, ["is read-only"]),
        (["predict", "nothing", "bugs.csv", "-o", "no/p.csv"], ExitCode.OUTPUT, ["no no."]),
        (
            [
                "tune",
                "bugs.csv",
                "--target",
                "kind",
                "--study",
                "bugs.csv",
                "--task",
                "classification",
            ],
            ExitCode.DATA,
            ["A study must be a file", "bugs.csv is neither", "Name another file"],
        ),
        (
            ["evaluate", "m.safetensors", "other.csv", "--target", "f0"],
            ExitCode.DATA,
            ["no 'f1'"],
        ),
        (["evaluate", "m.safetensors", "bugs.csv"], ExitCode.DATA, ["--target COLUMN"]),
        (
            ["predict", "m.safetensors", "digits"],
            ExitCode.DATA,
            ["on: 5 features", "digits (test) has 64"],
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None,
)
def test_what_cannot_be_done_is_one_line_and_a_code(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: ExitCode,
    words: list[str],
) -> None:
    monkeypatch.chdir(folder)
    Path("other.csv").write_text("f0\n1\n2\n")
    Path("kept.safetensors").touch(0o444)
    before = sorted(path.name for path in folder.iterdir())
    assert_refused(run(*arguments), code, *words)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_wrong_option_is_the_parsers_to_refuse() -> None:
    result = run("train", "digits", "--activation", "swish")
    assert result.returncode == ExitCode.USAGE
    assert "swish" in result.stderr


def test_control_c_saves_the_best_model_so_far(folder: Path) -> None:
    out = folder / "interrupted.safetensors"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "protopinv", "train", "digits", "-o", out, "--json"),
            *("--max-epochs", "100000", "--n-prototypes", "20", "--hidden-sizes", "16"),
            "--verbose",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": "100"},
    )
    assert process.stderr is not None
    while "loss" not in process.stderr.read(1024):
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert json.loads(stdout)["ended"] == "interrupted"
    assert "warning: Training was interrupted after" in stderr
    assert load(out).n_iter_ >= 1


def test_control_c_in_a_search_saves_its_best(folder: Path) -> None:
    out, study = folder / "searched.safetensors", folder / "search.log"
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "protopinv", "tune", folder / "bugs.csv", "--json"),
            *("--target", "kind", "-o", out, "--study", study, "--trials", "100000"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not study.exists() or study.read_text().count('"state":1') < 1:  # a finished trial
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "warning: The search was interrupted" in stderr
    assert load(out).get_params()["lr"] == json.loads(stdout)["lr"]


@pytest.mark.parametrize("kind", ["ValueError", "OSError", "RuntimeError", "ImportError"])
def test_a_defect_of_ours_is_shown_whole(kind: str) -> None:
    program = textwrap.dedent(
        f"""
        import sys
        from protopinv.cli.app import app, main

        @app.command()
        def broken():
            raise {kind}("ours")

        sys.argv = ["protopinv", "broken"]
        main()
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == ExitCode.DEFECT
    assert "Traceback" in result.stderr
    assert f"{kind}: ours" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_answers_that_do_not_fit_are_an_error(folder: Path) -> None:
    command = ["predict", folder / "m.safetensors", folder / "bugs.csv", "--proba"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "protopinv", *map(str, command)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == ExitCode.OUTPUT
    assert result.stderr.startswith("error: Answers must reach stdout whole.")
    assert result.stderr.count("\n") == 1


def test_control_c_elsewhere_is_an_exit_code() -> None:
    """The signal comes while a model is being read."""
    program = textwrap.dedent(
        """
        import os, signal, sys, time
        from protopinv import model_file
        from protopinv.cli import main

        model_file.load = lambda _: os.kill(os.getpid(), signal.SIGINT) or time.sleep(9)
        sys.argv = ["protopinv", "inspect", "model"]
        main()
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in result.stderr
