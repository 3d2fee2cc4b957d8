"""Read ahead in a thread, so that reading and computing overlap."""

import queue
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")

AHEAD = 2


@dataclass(frozen=True)
class _Made(Generic[Item]):
    """An item, told from an error and from the end."""

    item: Item


def ahead(items: Iterable[Item], n: int = AHEAD) -> Iterator[Item]:
    """The same items, up to ``n`` of them made before they are asked for.

    An error comes where its item would have. Who stops early stops the thread too.
    """
    made: queue.Queue[_Made[Item] | BaseException | None] = queue.Queue(n)
    over = threading.Event()

    def put(what: _Made[Item] | BaseException | None) -> bool:
        while not over.is_set():
            try:
                made.put(what, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(_Made(item)):
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="protopinv-read", daemon=True)
    thread.start()
    try:
        while True:
            what = made.get()
            if what is None:
                return
            if isinstance(what, BaseException):
                raise what
            yield what.item
    finally:
        over.set()
        thread.join()
