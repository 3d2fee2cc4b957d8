"""Kernels for a GPU, where they are faster than torch's own; written in Triton.

Whoever calls one has a plain path in torch that gives the same numbers, for every other device and
for a GPU without Triton or without the C compiler it needs. Triton compiles a kernel when it is
first used on a machine; ``building`` says when that is worth it. Later processes find it on disk.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.kernels.building import are_wanted
from protopinv.kernels.compiler import can_build

_switch = {"on": True}


def switched_on() -> bool:
    """Whether fast paths may be taken at all: kernels, other libraries, captured graphs."""
    return _switch["on"]


def usable(tensor: Tensor) -> bool:
    """Whether kernels can and should work on this tensor."""
    if not (switched_on() and tensor.is_cuda):
        return False
    return are_wanted(tensor.device) and _device_can(tensor.device)


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
    """Triton is there and finds what it needs to build, and the GPU has products in bfloat16."""
    return can_build() and fast_bfloat16(device)
