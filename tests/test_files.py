"""A file is written whole or not at all."""

import os
from pathlib import Path

import pytest

from protopinv.errors import OutputError
from protopinv.files import replacing, require_file


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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match=r"cannot\. Choose another"):
        require_file(tmp_path / "file")
