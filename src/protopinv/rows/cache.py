"""Rows that are read again and again: ahead of time in a thread, and from a cache on the disk.

Decoding a file and laying its columns out as rows takes longer than most networks take to train on
them. The first pass writes rows to a temporary file as they are needed, later ones read that.
"""

import math
import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.source import Block, DerivedRows, Piece, RowSource

Item = TypeVar("Item")

# Items that are made before they are asked for.
AHEAD = 2
# At most this share of the free space is used.
MOST_OF_FREE = 0.5


class _Stored(NamedTuple):
    """An array in the file: where it begins, its type, and the shape of a row of it."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


class CachedRows(DerivedRows):
    """The rows of another source, from a temporary file as soon as they were read once.

    The file has no name: it is gone when the process is, however that ends. A disk that fills up
    only ends the caching.
    """

    def __init__(self, source: RowSource, folder: Path) -> None:
        super().__init__(source)
        self._file = tempfile.TemporaryFile(dir=folder, prefix="protopinv-", buffering=0)  # noqa: SIM115
        # features, targets and weights of every block that was read
        self._blocks: dict[int, list[_Stored | None]] = {}
        self._labels: dict[Any, int] = {}
        self._end = 0
        self._is_full = False

    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield rows from the cache, or from the source and into the cache."""
        stored = self._blocks.get(block.start)
        if stored is not None:
            for start in range(0, block.n_rows, n_rows):
                rows = slice(start, min(block.n_rows, start + n_rows))
                X, y, weight = (part and self._numbers(part, rows) for part in stored)
                yield Piece(X, self._decoded(y), weight, start)
            return
        parts: list[_Stored | None] = []
        for piece in self.source.read(block, n_rows, features=features):
            if features and not self._is_full:
                self._store(block, piece, parts)
            yield piece
        if features and not self._is_full:
            self._blocks[block.start] = parts

    def _numbers(self, part: _Stored, rows: slice) -> NDArray[Any]:
        """Read some rows of an array."""
        numbers = np.empty((rows.stop - rows.start, *part.shape), part.dtype)
        view = numbers.reshape(-1).view(np.uint8).data
        offset, done = part.start + rows.start * part.row_bytes, 0
        while done < len(view):
            n = os.preadv(self._file.fileno(), [view[done:]], offset + done)
            if n == 0:
                raise DataError(
                    "A temporary file of rows must stay whole while training. It is shorter than "
                    "what was written. Check the disk, or set cache=None."
                )
            done += n
        return numbers

    def _store(self, block: Block, piece: Piece, parts: list[_Stored | None]) -> None:
        """Write a piece to its place; the first one makes room for the whole block."""
        arrays = (piece.X, self._encoded(np.asarray(piece.y)), piece.weight)
        if not parts:
            for array in arrays:
                part = None if array is None else _Stored(self._end, array.dtype, array.shape[1:])
                self._end += 0 if part is None else block.n_rows * part.row_bytes
                parts.append(part)
        try:
            for array, part in zip(arrays, parts, strict=True):
                if array is None or part is None:
                    continue
                raw = np.ascontiguousarray(array, part.dtype).reshape(-1).view(np.uint8).data
                offset, done = part.start + piece.first * part.row_bytes, 0
                while done < len(raw):
                    done += os.pwrite(self._file.fileno(), raw[done:], offset + done)
        except OSError:
            self._is_full = True

    def _encoded(self, y: NDArray[Any]) -> NDArray[Any]:
        """Text as numbers of labels."""
        if y.dtype != object:
            return y
        labels, codes = np.unique(y, return_inverse=True)
        numbers = [self._labels.setdefault(label, len(self._labels)) for label in labels.tolist()]
        return np.array(numbers, dtype=np.int32)[codes]

    def _decoded(self, y: Any) -> Any:
        return np.array(list(self._labels), dtype=object)[y] if self._labels else y


def cached(source: RowSource) -> RowSource:
    """Return the source behind a cache, where it asks for one and the disk has room."""
    if source.cache is None or not hasattr(os, "preadv"):
        return source
    folder = _disk() if source.cache == "auto" else Path(source.cache)
    if folder is None:
        return source
    if not folder.is_dir():
        raise DataError(
            f"A cache needs a folder that exists. There is no {folder}. Create it, or set "
            "cache='auto'."
        )
    # each process of this machine may come to read all rows
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    size = processes * source.n_rows * (source.n_features + 2) * np.dtype(np.float64).itemsize
    if size > MOST_OF_FREE * shutil.disk_usage(folder).free:
        return source
    return CachedRows(source, folder)


def _disk() -> Path | None:
    """Return a folder for temporary files on a disk, as one in memory would fill that."""
    folders = (Path(tempfile.gettempdir()), Path("/var/tmp"))  # noqa: S108 - files without a name
    usable = (each for each in folders if each.is_dir() and os.access(each, os.W_OK))
    return next((each for each in usable if not _is_in_memory(each)), None)


def _is_in_memory(folder: Path) -> bool:
    """Whether files there take memory, as far as Linux tells."""
    device = folder.stat().st_dev
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = [line.partition(" - ") for line in mounts.splitlines()]
    kinds = [after.split()[0] for before, _, after in lines if before.split()[2] == number]
    return any(kind in ("tmpfs", "ramfs") for kind in kinds)


def ahead(items: Iterable[Item], n: int = AHEAD) -> Iterator[Item]:
    """Yield the items in order, up to ``n`` of them made by a thread before they are asked for.

    An error comes where its item would have. Who stops early stops the thread too.
    """
    made: queue.Queue[tuple[list[Item], BaseException | None]] = queue.Queue(n)
    over = threading.Event()

    def put(items: list[Item], error: BaseException | None = None) -> bool:
        while not over.is_set():
            try:
                made.put((items, error), timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            if all(put([item]) for item in items):
                put([])
        except BaseException as error:
            put([], error)

    thread = threading.Thread(target=work, name="protopinv-read", daemon=True)
    thread.start()
    try:
        while True:
            next_items, error = made.get()
            if error is not None:
                raise error
            if not next_items:
                return
            yield next_items[0]
    finally:
        over.set()
        thread.join()
