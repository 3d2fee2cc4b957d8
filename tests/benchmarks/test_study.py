"""The study as a user runs it: real processes, real signals, one line an error."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cli import app
from benchmarks.paper.evidence import Ablations
from protopinv.errors import ConfigError

ROOT = Path(__file__).parents[2]
DATA = pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)


def study(folder: Path, *options: str) -> list[str]:
    common = ["--quick", "--json", "--datasets", "mnist", "--records", str(folder)]
    return [sys.executable, "-m", "benchmarks", *options, *common]


@DATA
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_stopped_goes_on_where_it_stopped(tmp_path: Path, how: int) -> None:
    """A real process and a real signal, in the middle of the table."""
    command = study(tmp_path, "paper", "--methods", "elm-128,protopinv")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    wait_for_cells(process, tmp_path, 2)  # from here on protopinv trains
    time.sleep(0.05)
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == (-how if how == signal.SIGKILL else 130)
    (path,) = tmp_path.glob("*.json")
    stopped = json.loads(path.read_text())
    kept = stopped["cells"]
    assert not stopped["finished"]
    assert 2 <= len(kept) < 4
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    finished = json.loads(again.stdout)
    assert f"{len(kept)} cells are kept" in again.stderr
    assert finished["finished"]
    assert len(finished["cells"]) == 4
    assert {key: finished["cells"][key] for key in kept} == kept
    assert finished["cells"]["test/protopinv/mnist/seed0"]["parameters"]["max_epochs"] == 60
    assert finished["cells"]["test/protopinv/mnist/seed0"]["test"] > 0.85  # a whole training


def wait_for_cells(process: subprocess.Popen[bytes], folder: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None
        assert time.monotonic() < deadline
        found = [json.loads(path.read_text())["cells"] for path in folder.glob("2*.json")]
        if found and len(found[0]) >= n:
            return
        time.sleep(0.01)


@DATA
def test_ablations_keep_all_that_their_questions_ask_for(tmp_path: Path) -> None:
    command = study(tmp_path, "ablations", "--sweeps", "ridge,outputs")
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    record = json.loads(result.stdout)["mnist"]
    assert record["finished"]
    assert len(record["cells"]) == 5  # the recipe itself is shared
    recipe = record["cells"]["run/{}/seed0"]
    assert {"every_epoch", "trace", "allocation", "generalisation", "layers"} <= set(recipe)
    assert len(recipe["every_epoch"]) == 15
    assert recipe["held_out"] == pytest.approx(recipe["every_epoch"][-1], abs=2e-3)
    assert recipe["held_out"] > 0.85
    assert sum(recipe["allocation"]["end"]) == 150
    learned = record["cells"]['run/{"learn_ridge": true}/seed0']
    assert learned["ridge"] != pytest.approx(recipe["ridge"])
    assert Ablations(record).scores("ridge")["both fixed"].mean == 100 * recipe["held_out"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["paper", "--datasets", "cifar"],
            "datasets must be some of mnist, fashion-mnist. Got cif",
        ),
        (["paper", "--methods", "svm"], "methods must be some of elm-10200"),
        (["paper", "--seeds", "0"], "seeds must be 1 or more. Got 0. Raise it."),
        (["paper", "--configurations", "0"], "configurations must be 1 or more. Got 0"),
        (
            ["ablations", "--datasets", ""],
            "datasets must be some of mnist, fashion-mnist. Got none",
        ),
        (["ablations", "--sweeps", "luck"], "sweeps must be some of prototypes"),
        (["ablations", "--seeds", "-1", "--quick"], "seeds must be 1 or more. Got -1"),
    ],
)
def test_bad_options_are_named(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        app([*options, "--records", str(tmp_path)], standalone_mode=False)
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "paper", "--seeds", "0"]
    command += ["--records", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "error: seeds must be 1 or more. Got 0. Raise it.\n"
