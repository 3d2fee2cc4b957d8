"""A file is written whole or not at all."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from protopinv.errors import OutputError
from protopinv.files import is_file, replacing, require_file

NOBODY = 65534


def test_the_file_appears_at_the_end_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [item.name for item in tmp_path.iterdir()] == ["out.txt"]


def test_an_error_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.txt"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    with replacing(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_the_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    with replacing(tmp_path / "ours"):
        pass
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_permissions_of_a_file_that_is_replaced_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "mine"
    path.touch()
    path.chmod(mode)
    with replacing(path) as temporary:
        assert temporary.stat().st_mode & 0o777 == mode  # nobody else may read it on the way
        temporary.write_text("new")
    assert path.stat().st_mode & 0o777 == mode
    assert path.read_text() == "new"


def test_the_mask_of_the_process_is_never_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to all threads: a file that another one makes meanwhile would get its mode."""

    def refused(mask: int) -> int:
        raise AssertionError(f"the mask was set to {mask:o}")

    monkeypatch.setattr(os, "umask", refused)
    for _ in range(2):
        with replacing(tmp_path / "ours"):
            pass


WRITER = """
import sys, time
from pathlib import Path
from protopinv.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    time.sleep(60)
"""


def test_a_later_write_removes_what_a_killed_one_left_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    command = [sys.executable, "-c", WRITER, str(path)]
    killed, alive = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2))
    try:
        names = {process: process.stdout.readline().strip() for process in (killed, alive)}
        assert {item.name for item in tmp_path.iterdir()} == {"out.txt", *names.values()}
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with replacing(path) as temporary:
            temporary.write_text("new")
        assert {item.name for item in tmp_path.iterdir()} == {"out.txt", names[alive]}
        assert path.read_text() == "new"
    finally:
        for process in (killed, alive):
            process.kill()
            process.communicate()


def test_only_files_are_taken_for_abandoned(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / ".protopinv-link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / ".protopinv-pipe")
    (tmp_path / ".protopinv-folder").mkdir()
    before = {item.name for item in tmp_path.iterdir()}
    with replacing(tmp_path / "out.txt"):
        pass
    assert {item.name for item in tmp_path.iterdir()} == {"out.txt", *before}


def test_pipes_folders_and_long_names_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message in (
        (tmp_path / "pipe", "is a device or a pipe"),
        (Path(os.devnull), "is a device or a pipe"),
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "file", r"There is no .*no\. Create it"),
        (tmp_path / ("x" * 300), "at most 255 bytes"),
    ):
        with pytest.raises(OutputError, match=message):
            require_file(path)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of somebody who is not root: root may write anywhere."""
    with tempfile.TemporaryDirectory() as name:
        root = os.geteuid() == 0
        if root:
            os.chown(name, NOBODY, -1)
            os.seteuid(NOBODY)
        try:
            yield Path(name)
        finally:
            if root:
                os.seteuid(0)
            Path(name).chmod(0o700)


@pytest.mark.parametrize("mode", [0o500, 0o600, 0o000], ids=["no w", "no x", "nothing"])
def test_a_folder_that_cannot_be_written_is_refused(folder: Path, mode: int) -> None:
    (folder / "old").touch()
    folder.chmod(mode)
    for name in ("file", "old"):
        with pytest.raises(
            OutputError, match=r"cannot \(Permission denied\)\. Choose another"
        ) as e:
            require_file(folder / name)
        assert ".protopinv-" not in str(e.value)
    assert not is_file(folder / "file")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that refuses even root")
def test_a_folder_that_refuses_even_root_is_refused() -> None:
    with pytest.raises(OutputError, match=r"/proc cannot \(.*\)\. Choose another") as e:
        require_file(Path("/proc/file"))
    assert ".protopinv-" not in str(e.value)


def test_a_file_that_is_read_only_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(OutputError, match=r"kept is read-only\. Choose another name"):
        require_file(path)
    assert path.read_text() == "old"


def test_links_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    for name, target, message in (
        ("far", tmp_path / "no" / "file", r"There is no .*no\. Create it"),
        ("round", tmp_path / "round", "its links go in circles"),
    ):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(OutputError, match=message):
            require_file(tmp_path / name)


def test_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    require_file(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_finished_is_named_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with (
            pytest.raises(OutputError, match=r"out\.txt was not \(File too large\)") as e,
            replacing(path) as temporary,
        ):
            temporary.write_bytes(bytes(2000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ".protopinv-" not in str(e.value)
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["out.txt"]


def test_looking_for_a_file_never_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert is_file(tmp_path / "file")
    assert not is_file(tmp_path)
    assert not is_file(tmp_path / ("x" * 300))
