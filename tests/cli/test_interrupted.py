"""Ctrl-C keeps what was reached, and a model that is there; the exit code says so."""

import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from forked import Started

from protopinv import load
from protopinv.cli.output import ExitCode


@pytest.fixture
def model(folder: Path, tmp_path: Path) -> Path:
    """A model that is there before an interrupt, and must be after it."""
    return Path(shutil.copy(folder / "m.safetensors", tmp_path))


def state_of(file: Path) -> tuple[bytes, int, int]:
    """Its content, and which file it is since when."""
    return file.read_bytes(), file.stat().st_ino, file.stat().st_mtime_ns


def endless(model: Path, *options: object) -> tuple[Started, Path]:
    """A training that does not end by itself, and its log."""
    log = model.parent / "log.jsonl"
    arguments = ("digits", "-o", model, "--json", "--log", log, *options)
    small = ("--n-prototypes", 20, "--hidden-sizes", 16, "--max-epochs", 100_000)
    patient = ("--early-stopping", "false", "--schedule", "constant")
    return Started("protopinv", "train", *arguments, *small, *patient), log


def wait_for_epochs(process: Started, log: Path) -> None:
    while not (log.exists() and log.read_bytes().count(b"\n") > 2):
        assert process.is_running()
        time.sleep(0.02)


@pytest.mark.parametrize("kinds", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
def test_an_interrupted_training_is_saved_beside_the_model_that_is_there(
    model: Path, kinds: list[signal.Signals]
) -> None:
    """With a checkpoint SIGTERM is Ctrl-C too, and a second signal ends at once."""
    before = state_of(model)
    options = ["--checkpoint", model.parent / "c"] if len(kinds) > 1 else []
    process, log = endless(model, *options)
    wait_for_epochs(process, log)
    for kind in kinds:
        process.signal(kind)
    result = process.end()
    assert result.returncode == ExitCode.INTERRUPTED
    answer = json.loads(result.stdout)
    beside = model.with_name("m.unfinished.safetensors")
    assert (answer["ended"], answer["model"]) == ("interrupted", str(beside))
    assert "warning: Training was interrupted after" in result.stderr
    assert f"saved {beside}" in result.stderr
    assert load(beside).n_iter_ >= 1
    assert state_of(model) == before


@pytest.mark.parametrize("after", [0.2, 0.4, 0.9])
def test_control_c_at_any_moment_leaves_a_model_alone(model: Path, after: float) -> None:
    """In its start, in preparation, in a look at candidates, in training."""
    before = state_of(model)
    process = Started("protopinv", "train", "digits", "-o", model, "--max-epochs", 10_000)
    time.sleep(after)
    process.signal(signal.SIGINT)
    result = process.end()
    assert result.returncode != ExitCode.OK
    assert state_of(model) == before


def test_control_c_in_a_search_saves_its_best_beside(folder: Path, model: Path) -> None:
    before, study = state_of(model), model.parent / "search.log"
    process = Started(
        *("protopinv", "tune", folder / "bugs.csv", "--json", "--target", "kind", "-o", model),
        *("--study", study, "--trials", 100_000),
    )
    while not study.exists() or study.read_text().count('"state":1') < 1:  # a finished trial
        assert process.is_running()
        time.sleep(0.02)
    process.signal(signal.SIGINT)
    result = process.end()
    assert result.returncode == ExitCode.INTERRUPTED
    assert "warning: The search was interrupted" in result.stderr
    answer = json.loads(result.stdout)
    assert load(model.with_name("m.unfinished.safetensors")).get_params()["lr"] == answer["lr"]
    assert state_of(model) == before


def test_control_c_elsewhere_is_an_exit_code() -> None:
    """The signal comes while a model is being read."""
    program = textwrap.dedent(
        """
        import os, signal, sys, time
        from protopinv import estimators

        signal.signal(signal.SIGINT, signal.default_int_handler)
        from protopinv.cli import main

        estimators.load = lambda _: os.kill(os.getpid(), signal.SIGINT) or time.sleep(9)
        sys.argv = ["protopinv", "diagnose", "model"]
        main()
        """
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in result.stderr
