"""Options in files, completion, named sets: what surrounds the commands."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from commands import QUICK, answered, assert_refused, run
from typer.main import get_command

from protopinv import load
from protopinv.cli.app import app
from protopinv.cli.options import _toml
from protopinv.cli.output import ExitCode
from protopinv.errors import ConfigError

COMMANDS: Any = get_command(app)


def test_a_saved_configuration_gives_the_same_model(folder: Path, tmp_path: Path) -> None:
    file, models = tmp_path / "run.toml", [tmp_path / f"{n}.safetensors" for n in range(2)]
    command = ["train", folder / "bugs.csv", "--target", "kind", "--drop", "f0,f1", *QUICK]
    command += ["--seed", 5, "--ridge", "3,0.5", "--learn-ridge", "true,false", "--mixup", "0.1"]
    command += ["--batch-size", "30", "--n-components", "none", "--normalize-inputs"]
    first = answered(*command, "-o", models[0], "--save-config", file)
    again = answered("train", "--config", file, "-o", models[1])
    assert {**again, "model": None, "seconds": 0} == {**first, "model": None, "seconds": 0}
    mine, theirs = map(load, models)
    assert repr(mine.get_params()) == repr(theirs.get_params())
    for one, other in zip(mine.network_.weights, theirs.network_.weights, strict=True):
        assert one.equal(other)
    saved = tomllib.loads(file.read_text())
    assert saved["ridge"] == [3, 0.5]
    assert saved["learn-ridge"] == [True, False]
    assert saved["normalize-inputs"] is True
    assert saved["n-components"] == "none"
    assert saved["drop"] == ["f0,f1"]
    assert "config" not in saved
    assert len(saved) > 50  # those that nobody gave too: defaults may change


def test_the_command_line_wins_over_the_file(folder: Path, tmp_path: Path) -> None:
    file, path = tmp_path / "run.toml", tmp_path / "m.safetensors"
    file.write_text(
        f"data = {str(folder / 'bugs.csv')!r}\n"
        'target = "kind"\nseed = 3\nmax_epochs = 7\nhidden-sizes = [6, 5]\nearly-stopping = false\n'
        "n-prototypes = 9\njson = true\n"
    )
    result = run("train", "--config", file, "--seed", "4", "-o", path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("{")
    params = load(path).get_params()
    assert (params["random_state"], params["max_epochs"]) == (4, 7)
    assert params["hidden_sizes"] == (6, 5)


def test_tune_has_a_configuration_too(folder: Path, tmp_path: Path) -> None:
    file, path = tmp_path / "search.toml", tmp_path / "m.safetensors"
    file.write_text("trials = 0\n")
    command = ["tune", folder / "bugs.csv", "--target", "kind", "--config", file, "-o", path]
    saved = tmp_path / "saved.toml"
    result = run(*command, "--save-config", saved)
    assert result.returncode == ExitCode.USAGE
    assert "--trials must be 1 or more. Got 0." in result.stderr.splitlines()[-1]
    assert tomllib.loads(saved.read_text())["trials"] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-epoch = 5", ["'max-epoch', which is none", "Did you mean max-epochs?"]),
        ("zzz = 5", ["'zzz', which is none", "Remove it."]),
        ("config = 'a.toml'", ["'config', which is none"]),
        ("resume = 'yes'", ["A switch is true or false", "'yes'"]),
        ("seed = 1979-05-27", ["An option is a text, a number"]),
        ("[train]\nseed = 1", ["'train', which is none"]),
        ("seed = ", ["must be written in TOML"]),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        COMMANDS.main(["train", "--config", str(tmp_path / "run.toml")], standalone_mode=False)
    for word in words:
        assert word in str(caught.value)


def test_values_of_a_configuration_are_checked_as_options_are(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('data = "digits"\nseed = 1.5')
    result = run("train", "--config", tmp_path / "run.toml")
    assert result.returncode == ExitCode.USAGE
    assert "Invalid value for '--seed'" in result.stderr
    assert_refused(run("train", "--config", tmp_path / "none.toml"), ExitCode.USAGE, "Check the")


@pytest.mark.parametrize(
    "text", ['a "quoted" \\ path', "tab\tand\nline", "\x7f\x00\x1f", "ünï 😀", "'''", "#= [x]"]
)
def test_any_text_comes_back_from_toml(text: str) -> None:
    assert tomllib.loads(f"key = {_toml(text)}") == {"key": text}
    values = [1, 2.5, 1e-05, 1e300, True, text]
    assert tomllib.loads(f"key = {_toml(values)}") == {"key": values}


@pytest.mark.parametrize(
    ("words", "offered"),
    [("protopinv ev", ["evaluate"]), ("protopinv train --hidden-si", ["--hidden-sizes"])],
)
def test_a_shell_completes_commands_and_options(words: str, offered: list[str]) -> None:
    number = str(len(words.split()) - 1)
    variables = {"COMP_WORDS": words, "COMP_CWORD": number}
    result = run(_PROTOPINV_COMPLETE="complete_bash", **variables)
    assert result.stdout.split() == offered


def test_the_script_of_a_shell_can_be_shown() -> None:
    result = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "complete -o" in result.stdout
    assert "_PROTOPINV_COMPLETE=complete_bash" in result.stdout


def test_named_sets_are_listed_with_where_they_are(tmp_path: Path) -> None:
    nowhere = {"PROTOPINV_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    result = run("data", **nowhere)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].split(maxsplit=1) == ["digits", "in scikit-learn"]
    assert lines[1].split(maxsplit=1) == ["mnist", "not here"]
    assert str(tmp_path / "mnist") in lines[-1]
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (tmp_path / "mnist").mkdir(exist_ok=True)
        (tmp_path / "mnist" / f"{name}-ubyte.gz").touch()
    assert str(tmp_path / "mnist") in run("data", **nowhere).stdout.splitlines()[1]
    # what is there is verified before it counts as fetched
    assert_refused(run("data", "mnist", **nowhere), ExitCode.DATA, "SHA-256")


def test_a_named_set_can_be_asked_for() -> None:
    answer = answered("data", "digits")
    assert (answer["training_rows"], answer["test_rows"], answer["features"]) == (1347, 450, 64)
    assert {each["name"] for each in answered("data")["sets"]} >= {"mnist", "fashion-mnist"}
    assert_refused(run("data", "minst"), ExitCode.USAGE, "one of digits, mnist")
