"""Kernels for a GPU, where they are faster than torch's own; written in Triton.

Whoever calls one has a plain path in torch that gives the same numbers, for every other device and
for a GPU without Triton. Triton compiles a kernel when it is first used on a machine, which takes a
second or two; later processes find it on disk.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

_switch = {"on": True}


def switched_on() -> bool:
    """Whether fast paths may be taken at all: kernels, other libraries, captured graphs."""
    return _switch["on"]


def usable(tensor: Tensor) -> bool:
    """Whether kernels can and should work on this tensor."""
    return switched_on() and tensor.is_cuda and _device_can(tensor.device)


@contextmanager
def switched_off() -> Iterator[None]:
    """Only plain paths in here, to compare with them."""
    before = _switch["on"]
    _switch["on"] = False
    try:
        yield
    finally:
        _switch["on"] = before


@cache
def _device_can(device: torch.device) -> bool:
    """Triton is installed, and the GPU has products in bfloat16."""
    found = importlib.util.find_spec("triton") is not None
    return found and torch.cuda.get_device_capability(device) >= (8, 0)
