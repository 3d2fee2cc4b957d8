"""Rows in arrays, in memory or mapped from a file, in sparse matrices, or made by a function."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.labels import exact_numbers
from protopinv.rows.source import IN_MEMORY_BYTES, Block, Piece, RowSource, Wanted, placed

# Rows of an array that count as a block: numbers enough to be read at a good pace.
BLOCK_NUMBERS = 2**21
MOST_BLOCKS = 256
# Arrays of more bytes than this are worth the second that it takes to pin them.
PINNED_FROM = 2**28


class ArrayRows(RowSource):
    """Rows of a matrix, a ``np.memmap`` say, which are converted a piece at a time."""

    def __init__(
        self, X: Any, y: Any, sample_weight: Any = None, *, memory: int = IN_MEMORY_BYTES
    ) -> None:
        self._X: Any = X if hasattr(X, "shape") else np.asarray(X)
        is_list = isinstance(y, list) and bool(y) and all(type(label) is int for label in y)
        self._y = exact_numbers(y) if is_list else np.asarray(y)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        self._weight = weight
        if self._X.ndim != 2:
            raise DataError(
                f"Rows must be a matrix, a row each. Got an array of shape {self._X.shape}. "
                "Reshape it."
            )
        for name, given in (("y", self._y), ("sample_weight", weight)):
            if given is not None and len(given) != self._X.shape[0]:
                raise DataError(
                    f"Targets and weights must have one row per sample. X has {self._X.shape[0]} "
                    f"rows, {name} has {len(given)}. Check how the two were split."
                )
        n, self.n_features = self._X.shape
        columns = list(getattr(self._X, "columns", ()))  # of a frame
        if columns and all(isinstance(name, str) for name in columns):
            self.names = tuple(columns)
        self.is_column = self._y.ndim == 1
        self.memory = memory
        numbers = max(BLOCK_NUMBERS, n * self.n_features // MOST_BLOCKS)
        size = max(1, numbers // max(1, self.n_features))
        starts = range(0, n, size)
        self.blocks = placed(
            [Block("X", i, min(size, n - first), first) for i, first in enumerate(starts)]
        )
        self.n_bytes = int(getattr(self._X, "nbytes", 0)) or None

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Slices of the matrix."""
        end = block.first + block.n_rows
        for first in range(block.first, end, wanted.rows):
            rows = slice(first, min(end, first + wanted.rows))
            yield Piece(
                self._features(rows) if wanted.features else self._nothing(rows),
                self._y[rows],
                None if self._weight is None else self._weight[rows],
                first - block.first,
            )

    @contextmanager
    def pinned(self, wanted: bool) -> Iterator[None]:
        """An array in memory is registered with the GPU's driver, which then copies from it."""
        X = self._X
        suits = type(X) is np.ndarray and X.flags.c_contiguous and X.nbytes > PINNED_FROM
        if not (wanted and suits):
            yield
            return
        import torch

        runtime = torch.cuda.cudart()
        refused = int(runtime.cudaHostRegister(X.ctypes.data, X.nbytes, 0))
        try:
            yield
        finally:
            if not refused:
                torch.cuda.synchronize()
                runtime.cudaHostUnregister(X.ctypes.data)

    def fingerprint(self) -> dict[str, Any]:
        """Shape, type, and some rows from everywhere."""
        n = self.n_rows
        some = np.unique(np.linspace(0, n - 1, 64).astype(np.int64))
        X = [self._features(slice(i, i + 1)) for i in some.tolist()]
        y = self._y[some]
        text = y.astype(str).tobytes() if y.dtype.kind == "O" else y.tobytes()
        parts = [np.concatenate(X).tobytes(), text]
        if self._weight is not None:
            parts.append(self._weight[some].tobytes())
        return {
            "rows": n,
            "features": self.n_features,
            "type": str(X[0].dtype),
            "numbers": digest(*parts),
        }

    def _features(self, rows: slice) -> NDArray[Any]:
        return np.asarray(self._X[rows])

    def _nothing(self, rows: slice) -> NDArray[Any]:
        return np.empty((rows.stop - rows.start, 0))


class SparseRows(ArrayRows):
    """Rows of a scipy sparse matrix, written out a piece at a time."""

    def __init__(
        self, X: Any, y: Any, sample_weight: Any = None, *, memory: int = IN_MEMORY_BYTES
    ) -> None:
        super().__init__(X.tocsr(), y, sample_weight, memory=memory)
        self.n_bytes = int(self._X.data.nbytes + self._X.indices.nbytes)

    def _features(self, rows: slice) -> NDArray[Any]:
        dense: NDArray[Any] = self._X[rows].toarray()
        return dense


class BatchRows(RowSource):
    """Rows that a function makes: ``load(i)`` gives (X, y) or (X, y, weight) of batch i.

    It is asked for every batch once to learn their lengths, and then again in any order, so it must
    give the same rows for the same number. ``name`` stands for a file in messages.
    """

    def __init__(
        self,
        load: Callable[[int], tuple[Any, ...]],
        n_batches: int,
        *,
        sizes: Any = None,
        name: str = "batches",
        memory: int = IN_MEMORY_BYTES,
        cache: str | Path | None = "auto",
    ) -> None:
        self._load = load
        self.memory, self.cache = memory, cache
        first = self._batch(0)
        self.n_features = first[0].shape[1]
        self.is_column = first[1].ndim == 1
        self._dtype = first[0].dtype
        if sizes is None:
            sizes = [len(first[0]), *(len(self._batch(i)[0]) for i in range(1, n_batches))]
        self.blocks = placed([Block(name, i, int(n)) for i, n in enumerate(sizes)])
        place = {block.number: block for block in self.blocks}
        self.blocks = tuple(
            Block(name, number, block.n_rows, block.start, block.start)
            for number, block in place.items()
        )

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Pieces of one batch."""
        X, y, weight = self._batch(block.number)
        if len(X) != block.n_rows:
            raise DataError(
                f"A batch must have the same rows whenever it is asked for. Batch {block.number} "
                f"of {block.file} had {block.n_rows} rows and now has {len(X)}. Make load(i) "
                "depend on nothing but i."
            )
        for start in range(0, len(X), wanted.rows):
            rows = slice(start, start + wanted.rows)
            yield Piece(X[rows], y[rows], None if weight is None else weight[rows], start)

    def fingerprint(self) -> dict[str, Any]:
        """The lengths of all batches and the numbers of the first."""
        X, y, _ = self._batch(self.blocks[0].number)
        return {
            "rows": self.n_rows,
            "features": self.n_features,
            "type": str(self._dtype),
            "numbers": digest(
                np.array([block.n_rows for block in self.blocks]).tobytes(),
                X.tobytes(),
                y.astype(str).tobytes(),
            ),
        }

    def _batch(self, number: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
        given = self._load(number)
        if not isinstance(given, tuple) or len(given) not in (2, 3):
            raise DataError(
                "load(i) must give a tuple (X, y) or (X, y, weight). It gave "
                f"{type(given).__name__} for batch {number}. Change what it returns."
            )
        X, y = np.asarray(given[0]), np.asarray(given[1])
        weight = np.asarray(given[2], dtype=np.float64) if len(given) == 3 else None
        width = getattr(self, "n_features", X.shape[1] if X.ndim == 2 else None)
        has_weight = getattr(self, "_has_weight", weight is not None)
        self._has_weight = has_weight
        if (weight is not None) != has_weight or (weight is not None and len(weight) != len(X)):
            raise DataError(
                "Either all batches have a weight for each row, or none has. Batch "
                f"{number} differs from those before. Change load(i)."
            )
        if X.ndim != 2 or len(X) != len(y) or X.shape[1] != width:
            raise DataError(
                "A batch must be a matrix of rows, all of one width, and a target for each. Batch "
                f"{number} has X of shape {X.shape} and y of shape {y.shape}. Change load(i)."
            )
        return X, y, weight


def digest(*parts: bytes) -> str:
    """A short name for bytes."""
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.hexdigest()
