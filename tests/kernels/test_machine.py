"""What a machine is asked before a fast path is taken: a compiler, products in bfloat16."""

import sysconfig
import time
from pathlib import Path

import pytest
import torch

from protopinv.kernels import _device_can, can_build, fast_bfloat16

needs_triton = pytest.mark.skipif(
    not can_build(), reason="needs Triton and what it needs to build here"
)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are found; it is empty."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    return folder


def put_program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@needs_triton
def test_without_a_compiler_no_device_takes_kernels(programs: Path) -> None:
    assert not can_build()
    assert not _device_can.__wrapped__(torch.device("cuda", 0))


@needs_triton
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_a_usual_compiler_is_found(programs: Path, name: str) -> None:
    put_program(programs / name)
    assert can_build()


@needs_triton
def test_what_cc_names_is_taken_and_nothing_else(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_program(programs / "gcc")
    mine = tmp_path / "mine"
    monkeypatch.setenv("CC", str(mine))
    assert not can_build()
    put_program(mine)
    assert can_build()


@needs_triton
def test_a_compiler_needs_the_headers_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda *_: str(tmp_path))
    assert not can_build()
    monkeypatch.setenv("CPATH", str(tmp_path))
    (tmp_path / "Python.h").touch()
    assert can_build()


def test_a_package_without_triton_cannot_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert not can_build()


def test_torch_and_linux_say_the_same_of_this_processor() -> None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        pytest.skip("needs /proc/cpuinfo, which Linux has")
    listed = next(line for line in lines if line.startswith(("flags", "Features"))).split()
    told = not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(listed)
    assert fast_bfloat16(torch.device("cpu")) == told


def test_no_other_device_has_fast_bfloat16() -> None:
    assert not fast_bfloat16(torch.device("meta"))


def test_where_bfloat16_is_fast_a_product_takes_about_as_long() -> None:
    if not fast_bfloat16(torch.device("cpu")):
        pytest.skip("needs a processor with products in bfloat16")
    factors = torch.randn(2, 1024, 1024)

    def best(A: torch.Tensor, B: torch.Tensor) -> float:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            A @ B
            times.append(time.perf_counter() - started)
        return min(times)

    assert best(*factors.bfloat16()) < 4 * best(*factors)
