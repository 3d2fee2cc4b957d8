"""Independent work side by side: small kernels leave most of a GPU idle."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from protopinv.kernels import switched_on


def side_by_side(works: Sequence[Callable[[], Any]], device: torch.device) -> list[Any]:
    """What the works return; on a GPU each runs on a stream of its own.

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
    """The same ones for all: a library keeps memory for every stream it has seen."""
    return torch.cuda.Stream(device)
