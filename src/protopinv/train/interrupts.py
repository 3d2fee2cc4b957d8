"""Ctrl-C, for every thread of a training."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Noted:
    """Hears of Ctrl-C, and hands it on."""

    before: Callable[[int, Any], Any]
    pressed: threading.Event = field(default_factory=threading.Event)

    def __call__(self, number: int, frame: Any) -> None:
        """The handler."""
        self.pressed.set()
        self.before(number, frame)


@contextmanager
def control_c() -> Iterator[threading.Event]:
    """An event that is set once Ctrl-C was pressed in here.

    Python tells the main thread alone, by a KeyboardInterrupt, and loses that inside a destructor.
    A program that handles Ctrl-C itself, or ignores it, is left to do so.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler or isinstance(before, _Noted)
    if not (is_main and ours and callable(before)):
        yield threading.Event()
        return
    noted = _Noted(before)
    signal.signal(signal.SIGINT, noted)
    try:
        yield noted.pressed
    finally:
        signal.signal(signal.SIGINT, before)
