"""Records: a finished cell is kept, whatever happens next."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from protopinv.bench.record import Record, newest_records
from protopinv.errors import OutputError

PLAN = {"seeds": 2, "shape": (1, 2)}


def count_up(calls: list[str], key: str) -> dict[str, int]:
    calls.append(key)
    return {"number": len(calls)}


def test_a_cell_is_worked_out_once_and_then_kept(tmp_path: Path) -> None:
    calls: list[str] = []
    record = Record(tmp_path, "table", PLAN, "cpu")
    for key in ("a", "b", "a"):
        record.cell(key, lambda key=key: count_up(calls, key))
    assert calls == ["a", "b"]
    again = Record(tmp_path, "table", PLAN, "cpu")
    assert (again.path, again.kept) == (record.path, 2)
    assert again.cell("b", lambda: count_up(calls, "b")) == {"number": 2}
    again.cell("c", lambda: count_up(calls, "c"))
    again.finish()
    assert calls == ["a", "b", "c"]
    content = json.loads(again.path.read_text())
    assert content["finished"]
    assert list(content["cells"]) == ["a", "b", "c"]


@pytest.mark.parametrize("change", ["plan", "commit", "fresh"])
def test_another_plan_or_commit_begins_a_new_record_and_overwrites_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setenv("PROTOPINV_COMMIT", "first")
    old = Record(tmp_path, "table", PLAN, "cpu")
    old.cell("a", lambda: {"number": 1})
    before = old.path.read_bytes()
    if change == "commit":
        monkeypatch.setenv("PROTOPINV_COMMIT", "second")
    plan = {**PLAN, "seeds": 3} if change == "plan" else PLAN
    new = Record(tmp_path, "table", plan, "cpu", fresh=change == "fresh")
    assert new.kept == 0
    new.cell("a", lambda: {"number": 2})
    new.finish()
    assert old.path.read_bytes() == before
    assert newest_records(tmp_path)["table"]["cells"] == {"a": {"number": 2}}
    assert newest_records(tmp_path)["table"]["file"] == new.path.name != old.path.name


def test_unfinished_records_are_not_shown(tmp_path: Path) -> None:
    Record(tmp_path, "table", PLAN, "cpu").cell("a", lambda: {"number": 1})
    assert newest_records(tmp_path) == {}


def test_a_record_says_where_it_was_made(tmp_path: Path) -> None:
    record = Record(tmp_path / "deep" / "folder", "table", PLAN, "cpu")
    record.finish()
    found = json.loads(record.path.read_text())
    assert found["plan"] == {"seeds": 2, "shape": [1, 2]}
    assert "cores" in found["environment"]["device"]
    assert set(found["environment"]["versions"]) == {"torch", "numpy", "scikit-learn"}
    assert found["environment"]["commit"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Records need a folder\..*Choose another"):
        Record(tmp_path / "file" / "records", "table", PLAN, "cpu")


@pytest.mark.skipif(
    not os.environ.get("PROTOPINV_DATA"), reason="needs the public image sets on disk"
)
def test_a_run_that_is_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """A real process and a real kill, in the middle of the table."""
    command = [sys.executable, "-m", "protopinv", "bench", "paper", "--quick", "--json"]
    command += ["--datasets", "mnist", "--methods", "elm-128,random-features-128,protopinv"]
    command += ["--records", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("*-paper-quick-cpu.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (path,) = tmp_path.glob("*.json")
    kept = json.loads(path.read_text())["cells"]
    assert 1 <= len(kept) < 6
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    finished = json.loads(again.stdout)
    assert f"{len(kept)} cells are kept" in again.stderr
    assert finished["finished"]
    assert len(finished["cells"]) == 6
    assert {key: finished["cells"][key] for key in kept} == kept
