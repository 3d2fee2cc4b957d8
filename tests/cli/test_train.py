"""protopinv train and demo: options reach the model, files are learned from."""

import os
import re
from pathlib import Path

import polars as pl
import pytest
from commands import QUICK, answered, assert_refused, run

from protopinv import load
from protopinv.cli.output import ExitCode


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
        assert re.fullmatch(
            r"(screening \d, )?epoch \d+/\d+ loss \S+( validation (loss )?\S+)? \S+ [kMG]? ?rows/s"
            r"(, \d+:\d\d:\d\d left)?",
            line,
        )


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


def test_a_training_is_logged_while_it_runs(folder: Path, tmp_path: Path) -> None:
    command = ["train", folder / "bugs.csv", "--target", "kind", *QUICK]
    logged = ["--log", tmp_path / "history.csv", "--tensorboard", tmp_path / "board"]
    answer = answered(*command, *logged, "-o", tmp_path / "m.safetensors")
    rows = pl.read_csv(tmp_path / "history.csv")
    assert rows["epoch"].to_list() == list(range(1, answer["epochs"] + 1))
    assert rows["loss"][-1] == pytest.approx(answer["loss"])
    assert list((tmp_path / "board").glob("events.out.tfevents.*"))


def test_a_log_that_cannot_be_written_is_refused_before_the_work(folder: Path) -> None:
    command = ["train", folder / "bugs.csv", "--target", "kind", *QUICK, "--log"]
    assert_refused(run(*command, folder / "history.txt"), ExitCode.USAGE, ".csv", ".jsonl")
    assert_refused(run(*command, folder / "none" / "h.csv"), ExitCode.OUTPUT, "existing folder")
