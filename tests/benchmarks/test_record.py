"""Records: a finished cell is kept, whatever happens next."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import protopinv
from benchmarks.record import PACKAGES, Record, newest_records, read_record
from protopinv.errors import DataFileError, OutputError

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
    versions = found["environment"]["versions"]
    assert {"torch", "numpy", "scikit-learn", "scipy"} <= set(versions) <= set(PACKAGES)
    assert all(version(name) == number for name, number in versions.items())
    assert found["environment"]["system"]
    assert found["environment"]["commit"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"Records need a folder\..*Choose another"):
        Record(tmp_path / "file" / "records", "table", PLAN, "cpu")


def test_the_commit_is_that_of_this_project_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied into another repository the package says its version instead."""
    monkeypatch.delenv("PROTOPINV_COMMIT", raising=False)
    package = Path(protopinv.__file__).parent
    shutil.copytree(package, tmp_path / "protopinv", ignore=shutil.ignore_patterns("__pycache__"))
    for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit"]):
        more = ["-q", "--allow-empty", "-m", "theirs"] if "commit" in command else []
        subprocess.run(["git", *command, *more], cwd=tmp_path, check=True)
    program = "from benchmarks.record import commit; print(commit())"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == f"protopinv {protopinv.__version__}"


def test_the_tenth_record_of_a_day_is_newer_than_the_second(tmp_path: Path) -> None:
    for number in range(11):
        record = Record(tmp_path, "table", {"number": number}, "cpu")
        record.finish()
    assert newest_records(tmp_path)["table"]["plan"] == {"number": 10}


def test_a_folder_with_something_else_in_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "2026-01-01-table.json").write_text("[1]")
    with pytest.raises(DataFileError, match=r"records only\..*is none\. Move it elsewhere"):
        Record(tmp_path, "table", PLAN, "cpu")


def test_two_processes_that_begin_at_once_have_a_file_each(tmp_path: Path) -> None:
    """Both see the same free name; the second to write takes the next one."""
    first, second = (Record(tmp_path, "table", {"of": n}, "cpu") for n in range(2))
    assert first.path == second.path
    for number, record in enumerate((first, second)):
        record.cell("a", lambda number=number: {"number": number})
    assert first.path != second.path
    assert [read_record(r.path)["cells"]["a"]["number"] for r in (first, second)] == [0, 1]
    assert sorted(tmp_path.iterdir()) == sorted([first.path, second.path])


def test_a_finished_record_to_which_nothing_is_added_is_left_alone(tmp_path: Path) -> None:
    record = Record(tmp_path, "table", PLAN, "cpu")
    record.cell("a", lambda: {"number": 1})
    record.finish()
    record.path.chmod(0o444)
    before = record.path.stat()
    again = Record(tmp_path, "table", PLAN, "cpu")
    again.cell("a", lambda: {"number": 2})
    again.finish()
    after = record.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_no_record_of_later_days_was_ever_changed_in_the_repository() -> None:
    """Some of 2026-11-15 and 16 were, before this law was written."""
    root = Path(__file__).parents[2]
    ask = ["git", "log", "--diff-filter=M", "--name-only", "--format=", "--", "benchmarks/records"]
    if not (root / ".git").exists():
        pytest.skip("not a repository")
    told = subprocess.run(ask, cwd=root, capture_output=True, text=True, check=True).stdout
    changed = {Path(line).name for line in told.splitlines() if line}
    assert not {name for name in changed if name >= "2026-11-17"}
