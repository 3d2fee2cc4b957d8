"""Read ahead in a thread, so that reading and computing overlap."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")

AHEAD = 2


def ahead(items: Iterable[Item], n: int = AHEAD) -> Iterator[Item]:
    """The same items, up to ``n`` of them made before they are asked for.

    An error comes where its item would have. Who stops early stops the thread too.
    """
    made: queue.Queue[tuple[str, object]] = queue.Queue(n)
    over = threading.Event()

    def put(kind: str, item: object) -> bool:
        while not over.is_set():
            try:
                made.put((kind, item), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:
            put("error", error)

    thread = threading.Thread(target=work, name="protopinv-read", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = made.get()
            if kind == "end":
                return
            if isinstance(item, BaseException) and kind == "error":
                raise item
            yield item  # type: ignore[misc]
    finally:
        over.set()
        thread.join()
