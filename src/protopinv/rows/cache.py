"""Rows that are read again and again: ahead of time in a thread, and from a cache on the disk.

Decoding a file and laying its columns out as rows takes longer than most networks take to train on
them. The first pass writes rows to a temporary file as they are needed, later ones read that.
"""

import math
import os
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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

    def offset(self, row: int) -> int:
        """Where a row begins."""
        return self.start + row * self.dtype.itemsize * math.prod(self.shape)


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
                end = min(block.n_rows, start + n_rows)
                X, y, weight = (part and self._read(part, start, end) for part in stored)
                if self._labels:
                    y = np.array(list(self._labels), dtype=object)[y]
                yield Piece(X, y, weight, start)
            return
        parts: list[_Stored | None] = []
        for piece in self.source.read(block, n_rows, features=features):
            if features and not self._is_full:
                self._store(block, piece, parts)
            yield piece
        if features and not self._is_full:
            self._blocks[block.start] = parts

    def _read(self, part: _Stored, start: int, end: int) -> NDArray[Any]:
        """Read some rows of an array."""
        rows = np.empty((end - start, *part.shape), part.dtype)
        raw, offset = rows.reshape(-1).view(np.uint8).data, part.offset(start)
        while len(raw):
            n = os.preadv(self._file.fileno(), [raw], offset)
            if n == 0:
                raise DataError(
                    "A temporary file of rows must stay whole while training. It is shorter than "
                    "what was written. Check the disk, or set cache=None."
                )
            raw, offset = raw[n:], offset + n
        return rows

    def _store(self, block: Block, piece: Piece, parts: list[_Stored | None]) -> None:
        """Write a piece to its place; the first one makes room for the whole block."""
        arrays = (piece.X, self._encoded(np.asarray(piece.y)), piece.weight)
        for array in arrays if not parts else ():
            part = None if array is None else _Stored(self._end, array.dtype, array.shape[1:])
            self._end = self._end if part is None else part.offset(block.n_rows)
            parts.append(part)
        try:
            for array, part in zip(arrays, parts, strict=True):
                if array is None or part is None:
                    continue
                raw = np.ascontiguousarray(array, part.dtype).reshape(-1).view(np.uint8).data
                offset = part.offset(piece.first)
                while len(raw):
                    n = os.pwrite(self._file.fileno(), raw, offset)
                    raw, offset = raw[n:], offset + n
        except OSError:
            self._is_full = True

    def _encoded(self, y: NDArray[Any]) -> NDArray[Any]:
        """Text as numbers of labels."""
        if y.dtype != object:
            return y
        labels, codes = np.unique(y, return_inverse=True)
        numbers = [self._labels.setdefault(label, len(self._labels)) for label in labels.tolist()]
        return np.array(numbers, dtype=np.int32)[codes]


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
    device, mounts = folder.stat().st_dev, Path("/proc/self/mountinfo")
    number = f"{os.major(device)}:{os.minor(device)}"
    lines = mounts.read_text(errors="replace").splitlines() if mounts.is_file() else []
    types = (line.partition(" - ")[2] for line in lines if line.split()[2] == number)
    return any(each.startswith(("tmpfs ", "ramfs ")) for each in types)


def ahead(items: Iterable[Item], n: int = AHEAD) -> Iterator[Item]:
    """Yield the items in order, up to ``n`` of them made by a thread before they are asked for.

    An error comes where its item would have. Who stops early stops the thread too.
    """
    making, end = iter(items), object()
    reader = ThreadPoolExecutor(1, "protopinv-read")
    waiting: deque[Future[Any]] = deque(reader.submit(next, making, end) for _ in range(n))
    try:
        while (item := waiting.popleft().result()) is not end:
            waiting.append(reader.submit(next, making, end))
            yield item
    finally:
        reader.shutdown(cancel_futures=True)
