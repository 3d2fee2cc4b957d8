"""Rows as plain numbers on the local disk, for who reads them again and again.

Decoding a file and laying its columns out as rows takes longer than most networks take to train on
them. The first pass writes rows to a temporary file as they are needed, later ones read that.
"""

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.source import Block, Piece, RowSource, Wanted

# At most this share of the free space is used.
MOST_OF_FREE = 0.5


class _Place(NamedTuple):
    """Where the parts of a block are in the file, with their types and shapes."""

    parts: tuple[tuple[int, np.dtype[Any], tuple[int, ...]] | None, ...]


class CachedRows(RowSource):
    """The rows of another source, from a file of ours as soon as they were read once.

    The file has no name: it is gone when the process is, however that ends. A disk that fills up
    only ends the caching.
    """

    def __init__(self, source: RowSource, folder: Path) -> None:
        self._source = source
        for name in ("blocks", "n_features", "names", "is_column", "n_bytes", "memory"):
            setattr(self, name, getattr(source, name))
        self._file = tempfile.TemporaryFile(dir=folder, prefix="protopinv-", buffering=0)  # noqa: SIM115
        self._places: dict[int, _Place] = {}
        self._labels: dict[Any, int] = {}
        self._end = 0
        self._is_full = False

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """From the cache, or from the source and into the cache."""
        place = self._places.get(block.start)
        if place is not None:
            yield from self._cached(block, place, wanted)
        elif self._is_full or not wanted.features:
            yield from self._source.read(block, wanted)
        else:
            parts: list[Any] = []
            for piece in self._source.read(block, wanted):
                if not self._is_full:
                    self._keep(block, piece, parts)
                yield piece
            if not self._is_full:
                self._places[block.start] = _Place(tuple(parts))

    def fingerprint(self) -> dict[str, Any]:
        """That of the source."""
        return self._source.fingerprint()

    def _cached(self, block: Block, place: _Place, wanted: Wanted) -> Iterator[Piece]:
        for start in range(0, block.n_rows, wanted.rows):
            rows = slice(start, min(block.n_rows, start + wanted.rows))
            X, y, weight = (self._numbers(part, rows) for part in place.parts)
            if X is None or y is None:
                raise AssertionError("features and targets are always kept")
            yield Piece(X, self._decoded(y), weight, start)

    def _numbers(
        self, part: tuple[int, np.dtype[Any], tuple[int, ...]] | None, rows: slice
    ) -> NDArray[Any] | None:
        if part is None:
            return None
        begin, dtype, shape = part
        numbers = np.empty((rows.stop - rows.start, *shape), dtype)
        offset = begin + rows.start * (numbers.nbytes // max(1, len(numbers)))
        view = memoryview(numbers.reshape(-1).view(np.uint8).data)
        done = 0
        while done < len(view):
            n = os.preadv(self._file.fileno(), [view[done:]], offset + done)
            if n == 0:
                raise DataError(
                    "A temporary file of rows must stay whole while training. It is shorter than "
                    "what was written. Check the disk, or set cache=None."
                )
            done += n
        return numbers

    def _keep(self, block: Block, piece: Piece, parts: list[Any]) -> None:
        """Write a piece to its place; the first one makes room for the whole block."""
        given = (piece.X, self._encoded(np.asarray(piece.y)), piece.weight)
        if not parts:
            for part in given:
                parts.append(None if part is None else (self._end, part.dtype, part.shape[1:]))
                self._end += 0 if part is None else block.n_rows * _row_bytes(part)
        try:
            for part, place in zip(given, parts, strict=True):
                if part is None:
                    continue
                raw = memoryview(
                    np.ascontiguousarray(part, dtype=place[1]).reshape(-1).view(np.uint8).data
                )
                offset, done = place[0] + piece.first * _row_bytes(part), 0
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

    def _decoded(self, y: NDArray[Any]) -> NDArray[Any]:
        if not self._labels:
            return y
        labels = np.empty(len(self._labels), dtype=object)
        labels[:] = list(self._labels)
        decoded: NDArray[Any] = labels[y]
        return decoded


def _folder(wanted: str | Path) -> Path | None:
    """Where the cache goes; by itself it goes to a disk, as folders in memory would fill that."""
    if wanted != "auto":
        return Path(wanted)
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
    kinds = [
        line.partition(" - ")[2].split()[0]
        for line in mounts.splitlines()
        if line.split()[2] == number
    ]
    return any(kind in ("tmpfs", "ramfs") for kind in kinds)


def _row_bytes(part: NDArray[Any]) -> int:
    return part.dtype.itemsize * math.prod(part.shape[1:])


def cached(source: RowSource) -> RowSource:
    """The source behind a cache, where it asks for one and the disk has room."""
    if source.cache is None or not hasattr(os, "preadv"):
        return source
    folder = _folder(source.cache)
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
