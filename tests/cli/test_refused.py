"""What cannot be done is one line and an exit code; a defect of ours is shown whole."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from commands import QUICK, assert_refused, run

from protopinv.cli.output import ExitCode


def test_a_named_set_without_its_files_is_refused(tmp_path: Path, folder: Path) -> None:
    nothing = {"PROTOPINV_DATA": "", "XDG_CACHE_HOME": str(tmp_path), "http_proxy": "127.0.0.1:9"}
    result = run(
        *("train", "mnist", "-o", tmp_path / "m.safetensors", *QUICK),
        **nothing,
        https_proxy="127.0.0.1:9",
    )
    assert_refused(result, ExitCode.DATA, "mnist must be on disk or downloadable")
    assert not (tmp_path / "m.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", "nowhere.csv"], ExitCode.DATA, ["There is no file nowhere.csv"]),
        (["train", "bugs.csv"], ExitCode.DATA, ["--target COLUMN"]),
        (["train", "bugs.csv", "--target", "knd"], ExitCode.DATA, ["Did you mean 'kind'?"]),
        (
            ["train", "bugs.csv", "--target", "f0,kind"],
            ExitCode.DATA,
            ["must be numbers", "'kind'"],
        ),
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
        (["inspect", "x" * 300], ExitCode.MODEL_FILE, ["must exist", "Check the path"]),
        (["train", "x" * 300], ExitCode.DATA, ["There is no file xxx"]),
        (["train", "nowhere.csv", "-o", "/proc/m.safetensors"], ExitCode.OUTPUT, ["/proc cannot"]),
        (["train", "nowhere.csv", "-o", "kept.safetensors"], ExitCode.OUTPUT, ["is read-only"]),
        (["predict", "nothing", "bugs.csv", "-o", "no/p.csv"], ExitCode.OUTPUT, ["no no."]),
        (["train", "nowhere.csv", "-o", "m.pkl"], ExitCode.OUTPUT, ["must end in .safetensors"]),
        (["tune", "nowhere.csv", "-o", "m"], ExitCode.OUTPUT, ["must end in .safetensors"]),
        (["predict", "nothing", "bugs.csv", "-o", "p.xlsx"], ExitCode.OUTPUT, ["Got 'p.xlsx'"]),
        (["report", "nothing", "-o", "r.pdf"], ExitCode.OUTPUT, ["must end in .html or .htm"]),
        (["export", "nothing", "m.pkl"], ExitCode.OUTPUT, ["export must end in .onnx"]),
        (
            ["predict", "nothing", "bugs.csv", "-o", "p.csv", "--json"],
            ExitCode.USAGE,
            ["as its name ends", "p.csv"],
        ),
        (
            ["predict", "bugs.csv", "m.safetensors"],
            ExitCode.USAGE,
            ["bugs.csv is none", "Swap them: protopinv predict m.safetensors bugs.csv"],
        ),
        (
            ["evaluate", "bugs.csv", "m.safetensors", "--target", "kind"],
            ExitCode.USAGE,
            ["Swap them: protopinv evaluate m.safetensors bugs.csv"],
        ),
        (["export", "m.onnx", "m.safetensors"], ExitCode.USAGE, ["export m.safetensors m.onnx"]),
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
            ["at least one row and one feature", "2 rows and 0 feature columns"],
        ),
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
