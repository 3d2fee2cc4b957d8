"""The study as a user runs it: real processes, real signals, one line an error."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from forked import Started

from benchmarks.cli import app
from benchmarks.paper.evidence import Ablations
from benchmarks.paper.splits import load_rows
from benchmarks.tasks import load_task
from protopinv.errors import ConfigError

ROOT = Path(__file__).parents[2]
DATA = pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)


def study(folder: Path, *options: str) -> Started:
    common = ["--quick", "--json", "--datasets", "mnist", "--records", folder]
    return Started("benchmarks", *options, *common)


@DATA
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_stopped_goes_on_where_it_stopped(tmp_path: Path, how: int) -> None:
    """A real process and a real signal, in the middle of the table."""
    begin = partial(study, tmp_path, "paper", "--methods", "elm-128,protopinv")
    process = begin()
    wait_for_cells(process, tmp_path, 2)  # from here on protopinv trains
    time.sleep(0.05)
    process.signal(how)
    assert process.end().returncode == (-how if how == signal.SIGKILL else 130)
    (path,) = tmp_path.glob("*.json")
    stopped = json.loads(path.read_text())
    kept = stopped["cells"]
    assert not stopped["finished"]
    assert 2 <= len(kept) < 6
    again = begin().end()
    assert again.returncode == 0, again.stderr
    finished = json.loads(again.stdout)
    assert f"{len(kept)} cells are kept" in again.stderr
    assert finished["finished"]
    assert len(finished["cells"]) == 6  # two searches, two tests, two figures beside them
    assert {key: finished["cells"][key] for key in kept} == kept
    assert finished["cells"]["test/protopinv/mnist/seed0"]["parameters"]["max_epochs"] == 15
    assert finished["cells"]["test/protopinv/mnist/seed0"]["test"] > 0.85  # a whole training


def wait_for_cells(process: Started, folder: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        assert process.is_running()
        assert time.monotonic() < deadline
        found = [json.loads(path.read_text())["cells"] for path in folder.glob("2*.json")]
        if found and len(found[0]) >= n:
            return
        time.sleep(0.01)


@DATA
def test_ablations_choose_on_one_split_and_judge_on_others(tmp_path: Path) -> None:
    done = study(tmp_path, "ablations", "--sweeps", "ridge,condition,depth,schedule").end()
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)["mnist"]
    assert record["finished"]
    data = Ablations(record)
    cells = record["cells"]
    assert {key.split("/")[-2] for key in cells} == {"split0", "split1"}
    for name in ("ridge", "condition", "depth", "schedule"):
        for label in data.labels(name):
            (cell,) = data.runs(name, label)
            assert 0.2 < cell["held_out"] < 1
    (penalised,) = data.runs("condition", "1.0")
    assert {"generalisation", "layers", "train"} <= set(penalised)
    (deep,) = data.runs("depth", "8 x 256")
    assert len(deep["misses"]["all"]) == 8
    assert deep["misses"]["all"][0] == deep["misses"]["own"][0]  # nothing has gathered yet
    (recipe,) = data.runs("schedule", "cosine, warm-up 20")
    assert len(recipe["every_epoch"]) == 4
    assert sum(recipe["allocation"]["end"]) == 150
    (learned,) = data.runs("ridge", "both learned")
    assert learned["ridge"] != pytest.approx(recipe["ridge"])


@DATA
def test_rows_that_judge_have_never_chosen() -> None:
    rows = load_rows("mnist")
    assert [len(held) for held in rows.held_out] == [6_000] * 10
    together = np.concatenate(rows.held_out)
    assert len(np.unique(together)) == len(together) == len(rows.data.X)
    assert (rows.data.X[rows.held_out[0]] == load_task("mnist").held_out.X).all()
    for held in rows.held_out:  # every class in its share
        shares = np.bincount(rows.data.y[held]) / len(held)
        assert shares == pytest.approx(np.bincount(rows.data.y) / 60_000, abs=1e-3)
    assert rows.overlap == pytest.approx(1 / 9)


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
        (["ablations", "--splits", "10"], "splits must be at most 9. Got 10. Lower it."),
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
