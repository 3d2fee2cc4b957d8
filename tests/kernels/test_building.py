"""When a process takes kernels: not for short fits, unless an earlier process has built them."""

from pathlib import Path

import pytest
import torch

from protopinv import kernels
from protopinv.errors import ConfigError
from protopinv.kernels import LONG_WORK, are_wanted, consider, note_built

GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if nothing had been built, on a machine with a GPU of compute capability 9.0."""
    monkeypatch.setenv("PROTOPINV_KERNELS", "auto")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=None: (9, 0))
    monkeypatch.setitem(kernels._state, "long", False)
    kernels._were_built.cache_clear()
    yield tmp_path
    kernels._were_built.cache_clear()


def test_short_fits_go_without_and_long_ones_with_kernels() -> None:
    consider(GPU, LONG_WORK / 2)
    assert not are_wanted(GPU)
    consider(GPU, LONG_WORK)
    assert are_wanted(GPU)


def test_work_on_a_cpu_builds_nothing() -> None:
    consider(torch.device("cpu"), 100 * LONG_WORK)
    assert not are_wanted(GPU)


def test_what_one_process_has_built_the_next_one_takes(
    fresh_process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_built(GPU)
    assert not list(fresh_process.iterdir())  # nothing was taken, so nothing is there
    consider(GPU, LONG_WORK)
    note_built(GPU)
    monkeypatch.setitem(kernels._state, "long", False)
    kernels._were_built.cache_clear()
    assert are_wanted(GPU)


def test_all_short_fits_of_a_process_go_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not are_wanted(GPU)
    consider(GPU, LONG_WORK)
    note_built(GPU)
    monkeypatch.setitem(kernels._state, "long", False)
    assert not are_wanted(GPU)


@pytest.mark.parametrize(("choice", "taken"), [("on", True), ("off", False)])
def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, choice: str, taken: bool) -> None:
    monkeypatch.setenv("PROTOPINV_KERNELS", choice)
    assert are_wanted(GPU) == taken


def test_a_word_that_is_no_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOPINV_KERNELS", "yes")
    with pytest.raises(ConfigError, match=r"must be one of auto, on, off\. It is 'yes'"):
        are_wanted(GPU)


def test_a_folder_that_cannot_be_written_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "missing" / "folder"))
    consider(GPU, LONG_WORK)
    note_built(GPU)
    assert are_wanted(GPU)
