"""How many threads a training may use: small work is done sooner by one.

Threads of a pool wait for each other by spinning. For small products that costs more than it saves,
and two programs that do so on the same cores stall each other many times over.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from threading import Lock
from typing import TypeVar

import torch

from protopinv.train.config import TrainConfig
from protopinv.train.resolve import DataShape

Thing = TypeVar("Thing")

# Multiplications a pass over the rows and the bank from which on a second thread pays.
WORK_FOR_THREADS = 2**30

_SETTING = Lock()


def _begin_child() -> None:
    """A forked child has none of its parent's OpenMP threads, and would wait for them for ever."""
    _SETTING.release()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_SETTING.acquire, after_in_parent=_SETTING.release, after_in_child=_begin_child
    )


def work_of(shape: DataShape, n_outputs: int, config: TrainConfig) -> int:
    """About how many multiplications one step takes, for all members."""
    rows = shape.n_rows * (1 + config.image_copies)
    if config.batch_size is not None:
        rows = min(rows, config.batch_size)
    d = shape.n_features
    if config.projection != "none" and config.n_components is not None:
        d = min(d, config.n_components)
    sizes = (d, *config.widths, n_outputs)
    through = sum(a * b for a, b in pairwise(sizes))
    p = config.n_prototypes
    solves = len(config.widths) * p**2 * (p + max(sizes))
    return config.n_members * (2 * rows * through + solves)


@contextmanager
def threads_for(
    shape: DataShape, n_outputs: int, config: TrainConfig, device: torch.device
) -> Iterator[int]:
    """One thread in here for small work on a CPU; afterwards as many as before.

    What is given says how many such works may run side by side: as many as there were threads.
    These do not wait for each other, so they do not spin.
    """
    before = torch.get_num_threads()
    small = device.type == "cpu" and work_of(shape, n_outputs, config) < WORK_FOR_THREADS
    if not small or before == 1:
        yield 1
        return
    with one_thread():
        yield before


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in here, for what the caller's own thread does; afterwards as many as before."""
    before = torch.get_num_threads()
    set_own_threads(1)
    try:
        yield
    finally:
        set_own_threads(before)


def set_own_threads(n: int) -> None:
    """So many threads for the work of the thread that calls this, and of no other.

    ``torch.set_num_threads`` sets that number, and beside it the one that every thread begins
    with. Only a new thread shows the latter, and can put it back without changing any other.
    """
    with _SETTING:
        usual = _in_new_thread(torch.get_num_threads)
        torch.get_num_threads()  # where a thread is new, this sets the usual number, once
        torch.set_num_threads(n)
        _in_new_thread(lambda: torch.set_num_threads(usual))


def _in_new_thread(work: Callable[[], Thing]) -> Thing:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
