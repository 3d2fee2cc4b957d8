"""Rows as plain numbers on the local disk, for who reads them again and again.

Decoding a file and laying its columns out as rows takes longer than most networks take to train on
them. The first pass writes rows to a temporary file as they are needed, later ones read that.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.shards.source import Block, Piece, RowSource, Wanted

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
            pieces = []
            for piece in self._source.read(block, wanted):
                pieces.append(piece)
                yield piece
            self._keep(block, pieces)

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

    def _keep(self, block: Block, pieces: list[Piece]) -> None:
        X = np.concatenate([piece.X for piece in pieces])
        y = self._encoded(np.concatenate([np.asarray(piece.y) for piece in pieces]))
        weights = [piece.weight for piece in pieces if piece.weight is not None]
        weight = np.concatenate(weights) if weights else None
        parts: list[Any] = []
        end = self._end
        try:
            for part in (X, y, weight):
                if part is None:
                    parts.append(None)
                    continue
                raw = memoryview(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
                done = 0
                while done < len(raw):
                    done += os.pwrite(self._file.fileno(), raw[done:], end + done)
                parts.append((end, part.dtype, part.shape[1:]))
                end += len(raw)
        except OSError:
            self._is_full = True
            return
        self._end = end
        self._places[block.start] = _Place(tuple(parts))

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


def cached(source: RowSource) -> RowSource:
    """The source behind a cache, where it asks for one and the disk has room."""
    if source.cache is None or not hasattr(os, "preadv"):
        return source
    folder = Path(tempfile.gettempdir() if source.cache == "auto" else source.cache)
    size = source.n_rows * (source.n_features + 2) * np.dtype(np.float32).itemsize
    if size > MOST_OF_FREE * shutil.disk_usage(folder).free:
        return source
    return CachedRows(source, folder)
