"""Numbers, labels and weights of rows on the command line."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import answered, assert_refused, run

from protopinv import load
from protopinv.cli.output import ExitCode


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


def test_sorted_files_are_looked_into_all_over(tmp_path: Path) -> None:
    """The first file alone would say that there are two classes."""
    random = np.random.default_rng(0)
    for number, y in enumerate([np.zeros(200), np.ones(200), random.uniform(1, 9, 200)]):
        table = {"a": random.standard_normal(200), "y": y}
        pl.DataFrame(table).write_parquet(tmp_path / f"part-{number}.parquet")
    out = tmp_path / "m.safetensors"
    result = run("train", tmp_path, "--target", "y", "-o", out, "--max-epochs", "2")
    assert result.returncode == 0, result.stderr
    assert "task: regression" in result.stderr


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table as people write it: prices, weights, shares, and rows that have no share."""
    folder, random = tmp_path_factory.mktemp("shares"), np.random.default_rng(0)
    lines = ["price,weight,share"]
    for row, (price, weight) in enumerate(random.normal((50_000, 30), (9_000, 4), (400, 2))):
        share = {7: "", 9: "n/a"}.get(row % 50, f"{price / 1000 + weight:.1f} %")
        lines.append(f'"${price:,.2f}",{weight:.1f} kg,{share}')
    (folder / "shares.csv").write_text("\n".join(lines))
    return folder


def test_a_table_as_people_write_it_is_trained_on_scored_and_predicted(shares: Path) -> None:
    table, model = shares / "shares.csv", shares / "m.safetensors"
    quick = ("--effort", "quick", "--max-epochs", "20")
    result = run("train", table, "--target", "share", "-o", model, "--json", *quick)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert (answer["task"], answer["rows"]) == ("regression", 384)
    for line in (
        "16 rows have no target and were left out",
        "the target 'share' is a number, written as 1,234.56 %; predictions are such numbers",
        "price   number, written as $1,234.56, mostly",
        "weight  number, written as 1,234.56 kg, mostly",
    ):
        assert line in result.stderr
    score = answered("evaluate", model, table)
    assert score["n_rows" if "n_rows" in score else "rows"] == 384
    assert score["r2"] > 0.9
    (shares / "new.csv").write_text('price,weight\n"$50,000.00",30.0 kg\n$900,30.0 kg\n')
    usual, cheap = answered("predict", model, shares / "new.csv")["prediction"]
    assert usual == pytest.approx(80, abs=3)
    assert cheap < 70


def test_missing_targets_are_an_error_where_that_is_asked_for(shares: Path) -> None:
    table, model = shares / "shares.csv", shares / "m.safetensors"
    for command in (
        ("train", table, "--target", "share", "-o", shares / "other.safetensors"),
        ("tune", table, "--target", "share", "-o", shares / "other.safetensors"),
        ("evaluate", model, table),
    ):
        refused = run(*command, "--missing-target", "error")
        assert_refused(refused, ExitCode.DATA, "Every row needs a target. Column 'share'", "row 8")
