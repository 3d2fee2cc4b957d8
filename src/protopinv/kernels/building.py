"""When kernels are worth their building.

Triton compiles for 10 to 15 seconds where it has not met them before, and a fit by plain paths
takes about twice as long as by kernels. So a fit of a few seconds is done sooner without them, a
long one with them. After a long one every later process finds them on disk, and takes them from the
start.
"""

import os
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from protopinv.errors import ConfigError

# Multiplications of a whole fit from which it repays the building: about ten seconds by plain paths
# on an H200, where five banks on 50,000 rows of 50 columns took 2.2 s.
LONG_WORK = 1e13
CHOICE = "PROTOPINV_KERNELS"
CHOICES = ("auto", "on", "off")

_wanted = {"now": False}


def want_kernels() -> None:
    """From here on this process takes kernels, and builds those that are missing."""
    _wanted["now"] = True


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
    return choice == "on" or (choice == "auto" and (_wanted["now"] or _were_built(device)))


def note_built(device: torch.device) -> None:
    """Leave a mark for later processes, if this one has taken kernels and the disk allows it."""
    if device.type != "cuda" or not are_wanted(device):
        return
    try:
        _mark(device).touch()
    except OSError:
        return


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
