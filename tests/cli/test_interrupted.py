"""Ctrl-C keeps what was reached, and the exit code says so."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from protopinv import load
from protopinv.cli.output import ExitCode


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
