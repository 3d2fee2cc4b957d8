"""The device a training runs on, its threads, and Ctrl-C for all of them.

Small work is done sooner by one thread: those of a pool wait for each other by spinning. For small
products that costs more than it saves, and two programs that do so on the same cores stall each
other many times over.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from threading import Event, Lock, current_thread, main_thread
from typing import Any

import torch

from protopinv.errors import ConfigError
from protopinv.train.config import TrainConfig
from protopinv.train.resolve import DataShape

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


def resolve_device(name: str) -> torch.device:
    """The torch device behind "auto", "cpu", "cuda" or the number of a GPU as in "cuda:1"."""
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    numbered = kind == "cuda" and number.isdigit()
    if not (numbered or name in ("auto", "cpu", "cuda")):
        raise ConfigError(
            "device must be one of 'auto', 'cpu', 'cuda', or the number of a GPU as in 'cuda:1'. "
            f"Got {name!r}. Change it to 'auto'."
        )
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there == 0:
        raise ConfigError(
            f"device={name!r} needs a GPU that torch can use. torch sees none here. "
            "Use device='auto', or install a CUDA build of torch."
        )
    if numbered and int(number) >= there:
        raise ConfigError(
            f"device={name!r} needs GPU number {number}. torch sees {there}, counted from 0. "
            "Choose one of these."
        )
    return torch.device("cuda", int(number)) if numbered else torch.device("cuda")


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
    with _SETTING, ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        usual = first.submit(torch.get_num_threads).result()
        torch.get_num_threads()  # where a thread is new, this sets the usual number, once
        torch.set_num_threads(n)
        second.submit(torch.set_num_threads, usual).result()


@dataclass
class _Noted:
    """A handler that notes a signal, and passes it on; ``gently`` a second one interrupts."""

    before: Any
    gently: bool
    noted: Event

    def __call__(self, number: int, frame: Any) -> None:
        """The handler."""
        again = self.noted.is_set()
        self.noted.set()
        if not self.gently:
            self.before(number, frame)
        elif again:
            raise KeyboardInterrupt


@contextmanager
def control_c(*, gently: bool = False) -> Iterator[Event]:
    """An event that is set once Ctrl-C was pressed in here, for every thread of a training.

    Python tells the main thread alone, by a KeyboardInterrupt, and loses that inside a destructor.
    A program that handles Ctrl-C itself, or ignores it, is left to do so. Where the work ends
    ``gently``, with a checkpoint, the event is set by SIGTERM too, whoever else would handle it,
    and only a second signal raises KeyboardInterrupt.
    """
    noted, before = Event(), {}
    if current_thread() is main_thread():
        for kind in (signal.SIGINT, signal.SIGTERM) if gently else (signal.SIGINT,):
            handler = signal.getsignal(kind)
            ours = handler is signal.default_int_handler or isinstance(handler, _Noted)
            if ours or (gently and handler not in (None, signal.SIG_IGN)):
                before[kind] = signal.signal(kind, _Noted(handler, gently, noted))
    try:
        yield noted
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
