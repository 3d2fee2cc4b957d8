"""Kernels for a GPU, where they are faster than torch's own; written in Triton.

Whoever calls one has a plain path in torch that gives the same numbers, for every other device and
for a GPU without Triton or without the C compiler it needs.

Triton compiles for 10 to 15 seconds where it has not met a kernel before, and a fit by plain paths
takes about twice as long as by kernels. So a fit of a few seconds is done sooner without them, a
long one with them. After a long one every later process finds them on disk, and takes them from the
start.
"""

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protopinv.errors import ConfigError

# Multiplications of a whole fit from which it repays the building: about ten seconds by plain paths
# on an H200, where five banks on 50,000 rows of 50 columns took 2.2 s.
LONG_WORK = 1e13
CHOICE = "PROTOPINV_KERNELS"
CHOICES = ("auto", "on", "off")
# Where triton-windows keeps a compiler of its own, under the package.
BUNDLED = ("runtime/tcc/tcc.exe", "runtime/tcc/tcc")
# Environment variables with further places for headers, for every common compiler.
HEADER_PLACES = ("CPATH", "C_INCLUDE_PATH", "INCLUDE")
# Torch's names for products in bfloat16: AVX-512 and AMX on x86, the last one on ARM.
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")

# Whether fast paths may be taken at all, and whether this process has had a long fit.
_state = {"fast": True, "long": False}


def switched_on() -> bool:
    """Whether fast paths may be taken at all: kernels, other libraries, captured graphs."""
    return _state["fast"]


@contextmanager
def switched_off() -> Iterator[None]:
    """Only plain paths in here, to compare with them."""
    before, _state["fast"] = _state["fast"], False
    try:
        yield
    finally:
        _state["fast"] = before


def usable(tensor: Tensor) -> bool:
    """Whether kernels can and should work on this tensor."""
    device = tensor.device
    return switched_on() and tensor.is_cuda and are_wanted(device) and _device_can(device)


def want_kernels() -> None:
    """From here on this process takes kernels, and builds those that are missing."""
    _state["long"] = True


def consider(device: torch.device, work: float) -> None:
    """Want kernels for a fit of so many multiplications, if that is long and the device a GPU."""
    if device.type == "cuda" and work >= LONG_WORK:
        want_kernels()


def are_wanted(device: torch.device) -> bool:
    """Whether PROTOPINV_KERNELS says so, or a long fit here or in an earlier process."""
    choice = os.environ.get(CHOICE, "auto")
    if choice not in CHOICES:
        raise ConfigError(
            f"{CHOICE} must be one of {', '.join(CHOICES)}. It is {choice!r}. Change or unset it."
        )
    return choice == "on" or (choice == "auto" and (_state["long"] or _were_built(device)))


def note_built(device: torch.device) -> None:
    """Leave a mark for later processes, if this one has taken kernels and the disk allows it."""
    if device.type == "cuda" and are_wanted(device):
        with suppress(OSError):
            _mark(device).touch()


@cache
def _were_built(device: torch.device) -> bool:
    """Asked once, so that all small fits of a process go the same way."""
    return _mark(device).is_file()


def _mark(device: torch.device) -> Path:
    """A file beside what Triton has compiled, so that they vanish together."""
    home = Path(os.environ.get("TRITON_HOME") or Path.home())
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")
    chip = "".join(map(str, torch.cuda.get_device_capability(device)))
    return folder / f"protopinv-{_version('protopinv')}-triton-{_version('triton')}-sm{chip}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


@cache
def _device_can(device: torch.device) -> bool:
    """Triton is there and finds what it needs to build, and the GPU has products in bfloat16."""
    return can_build() and fast_bfloat16(device)


def can_build() -> bool:
    """Triton is installed, with a compiler and Python's headers where it looks for them.

    It compiles a small library in C when a process first uses it.
    """
    spec = importlib.util.find_spec("triton")
    if spec is None:
        return False
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    bundled = any((folder / name).is_file() for folder in folders for name in BUNDLED)
    return bundled or (_finds_compiler() and _finds_headers())


def _finds_compiler() -> bool:
    """Triton calls what CC names, whatever it is; else gcc or clang, on Windows also cl."""
    named = os.environ.get("CC")
    if named is not None:
        return shutil.which(named) is not None
    usual = ("gcc", "clang", "cl") if os.name == "nt" else ("gcc", "clang")
    return any(shutil.which(name) is not None for name in usual)


def _finds_headers() -> bool:
    """Python.h is where Triton has it looked for, or where the environment says."""
    scheme = sysconfig.get_default_scheme()
    if scheme == "posix_local":  # Debian's own; Triton takes the ordinary one
        scheme = "posix_prefix"
    places = [sysconfig.get_path("include", scheme)]
    for name in HEADER_PLACES:
        places += os.environ.get(name, "").split(os.pathsep)
    return any((Path(place) / "Python.h").is_file() for place in places if place)


@cache
def fast_bfloat16(device: torch.device) -> bool:
    """Whether products in bfloat16 are no slower than in float32.

    Without instructions for them they take many times longer.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    has = torch.cpu.get_capabilities()
    return any(bool(has.get(name)) for name in INSTRUCTIONS)


def side_by_side(works: Sequence[Callable[[], Any]], device: torch.device) -> list[Any]:
    """What the works return; on a GPU, most of which one would leave idle, each has its own stream.

    All streams wait for what came before, and what comes after waits for all of them, so a capture
    sees a fork and a join. Works must keep what others made: memory that is given up may be used
    again, on the stream it was made on, at once.
    """
    if len(works) <= 1 or device.type != "cuda" or not switched_on():
        return [work() for work in works]
    here = torch.cuda.current_stream(device)
    others = [_stream(device, number) for number in range(1, len(works))]
    for stream in others:
        stream.wait_stream(here)
    results = [works[0]()]
    for stream, work in zip(others, works[1:], strict=True):
        with torch.cuda.stream(stream):
            results.append(work())
    for stream in others:
        here.wait_stream(stream)
    return results


@cache
def _stream(device: torch.device, _: int) -> torch.cuda.Stream:
    """A stream that is shared by all: a library keeps memory for every stream it has seen."""
    return torch.cuda.Stream(device)
