"""Ctrl-C, for every thread of a training."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def control_c() -> Iterator[threading.Event]:
    """An event that is set once Ctrl-C was pressed in here.

    Python tells the main thread alone, by a KeyboardInterrupt, and loses that inside a destructor.
    A program that handles Ctrl-C itself, or ignores it, is left to do so.
    """
    pressed = threading.Event()
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before is not signal.default_int_handler:
        yield pressed
        return

    def note(number: int, frame: Any) -> None:
        pressed.set()
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
