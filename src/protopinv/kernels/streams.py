"""Independent work side by side: small kernels leave most of a GPU idle."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import torch

from protopinv.kernels import switched_on

Result = TypeVar("Result")


def side_by_side(works: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """What the works return; on a GPU each runs on a stream of its own.

    All streams wait for what came before, and what comes after waits for all of them. So memory that
    one of them frees is safe to use again, and a capture sees a fork and a join.
    """
    if len(works) == 1 or device.type != "cuda" or not switched_on():
        return [work() for work in works]
    here = torch.cuda.current_stream(device)
    others = [_stream(device, number) for number in range(1, len(works))]
    results = []
    for stream, work in zip(others, works[1:], strict=True):
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            results.append(work())
    first = works[0]()
    for stream in others:
        here.wait_stream(stream)
    return [first, *results]


@cache
def _stream(device: torch.device, _: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
