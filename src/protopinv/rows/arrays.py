"""Rows in arrays, in memory or mapped, in sparse matrices, in frames, or made by a function."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.source import (
    IN_MEMORY_BYTES,
    Block,
    Piece,
    RowSource,
    digest,
    placed,
    require_names,
)

# Rows of an array that count as a block: numbers enough to be read at a good pace.
BLOCK_NUMBERS = 2**21
MOST_BLOCKS = 256
# Arrays of more bytes than this are worth the second that it takes to pin them.
PINNED_FROM = 2**28
# So many rows are stored with a model, if they are not longer than this.
EXAMPLES = 32
EXAMPLE_BYTES = 2**16


class ArrayRows(RowSource):
    """Rows of a matrix, a ``np.memmap`` or a sparse one say, converted a piece at a time."""

    def __init__(
        self, X: Any, y: Any, sample_weight: Any = None, *, memory: int = IN_MEMORY_BYTES
    ) -> None:
        self.X: Any = X if hasattr(X, "shape") else np.asarray(X)
        self.X = X.tocsr() if hasattr(X, "tocsr") else self.X
        is_list = isinstance(y, list) and bool(y) and all(type(label) is int for label in y)
        self.y = exact_numbers(y) if is_list else np.asarray(y)
        self.weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if self.X.ndim != 2:
            raise DataError(
                f"Rows must be a matrix, a row each. Got an array of shape {self.X.shape}. "
                "Reshape it."
            )
        n, self.n_features = self.X.shape
        for name, part in (("y", self.y), ("sample_weight", self.weight)):
            if part is not None and len(part) != n:
                raise DataError(
                    f"Targets and weights must have one row per sample. X has {n} rows, {name} has "
                    f"{len(part)}. Check how the two were split."
                )
        columns = list(getattr(self.X, "columns", ()))  # of a frame
        if columns and all(isinstance(name, str) for name in columns):
            self.names = tuple(columns)
        self.is_column = self.y.ndim == 1
        self.memory = memory
        numbers = max(BLOCK_NUMBERS, n * self.n_features // MOST_BLOCKS)
        size = max(1, numbers // max(1, self.n_features))
        starts = enumerate(range(0, n, size))
        self.blocks = placed([Block("X", i, min(size, n - first), first) for i, first in starts])
        arrays: Any = (self.X,) if not hasattr(X, "tocsr") else (self.X.data, self.X.indices)
        self.n_bytes = sum(int(getattr(array, "nbytes", 0)) for array in arrays) or None

    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield slices of the matrix."""
        end = block.first + block.n_rows
        for first in range(block.first, end, n_rows):
            rows = slice(first, min(end, first + n_rows))
            X = self._features(rows) if features else np.empty((rows.stop - first, 0))
            weight = None if self.weight is None else self.weight[rows]
            yield Piece(X, self.y[rows], weight, first - block.first)

    def has_gaps(self) -> bool:
        """Whether there is NaN anywhere, after a look at all rows."""
        if hasattr(self.X, "tocsr"):
            return self.X.dtype.kind == "f" and bool(np.isnan(self.X.data).any())
        if getattr(self.X, "dtype", np.dtype(object)).kind != "f":
            return False
        pieces = (piece for block in self.blocks for piece in self.read(block, block.n_rows))
        return any(np.isnan(piece.X).any() for piece in pieces)

    @contextmanager
    def pinned(self, on_gpu: bool) -> Iterator[None]:
        """Register a long array with the GPU's driver, which then copies from it."""
        X = self.X
        suits = type(X) is np.ndarray and X.flags.c_contiguous and X.nbytes > PINNED_FROM
        if self.in_memory or not (on_gpu and suits):
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
        some = np.unique(np.linspace(0, self.n_rows - 1, 64).astype(np.int64))
        X = [self._features(slice(i, i + 1)) for i in some.tolist()]
        weight = None if self.weight is None else self.weight[some]
        return {
            "rows": self.n_rows,
            "features": self.n_features,
            "type": str(X[0].dtype),
            "numbers": _digest_of(np.concatenate(X), self.y[some], weight),
        }

    def _features(self, rows: slice) -> Any:
        X = self.X[rows]
        return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


class MemoryRows(ArrayRows):
    """An array, or a frame whose columns are not encoded yet, that was checked: one block."""

    in_memory = True

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        weight: NDArray[np.float64] | None = None,
        *,
        names: tuple[str, ...] | None = None,
        is_framed: bool = False,
    ) -> None:
        self.X, self.y, self.weight = X, y, weight
        self.blocks = (Block("X", 0, len(y)),)
        self.names, self.is_framed, self.is_column = names, is_framed, y.ndim == 1
        self.n_features = X.shape[1]

    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield slices of an array, and a frame as a whole."""
        if self.is_framed and features:
            yield Piece(self.X, self.y, self.weight, 0)
        else:
            yield from super().read(block, n_rows, features=features)

    def _features(self, rows: slice) -> Any:
        """As they are: these were checked, and may be on a GPU."""
        return self.X[rows]

    def fingerprint(self) -> dict[str, Any]:
        """Shape, and a digest of all numbers."""
        return {
            "rows": len(self.y),
            "features": self.n_features,
            "numbers": _digest_of(self.X, self.y, self.weight),
        }


class BatchRows(RowSource):
    """Rows that a function makes: ``load(i)`` gives (X, y) or (X, y, weight) of batch i.

    It is asked for every batch once to learn their lengths, and then again in any order, so it must
    give the same rows for the same number. ``name`` stands for a file in messages.
    """

    _form: tuple[Any, bool] | None = None  # the width of a batch, and whether it has weights

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
        X, y, _ = self._batch(0)
        self.n_features, self.is_column = X.shape[1], y.ndim == 1
        if sizes is None:
            sizes = [len(X), *(len(self._batch(i)[0]) for i in range(1, n_batches))]
        blocks = placed([Block(name, i, int(n)) for i, n in enumerate(sizes)])
        self.blocks = tuple(replace(block, first=block.start) for block in blocks)

    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield pieces of one batch."""
        X, y, weight = self._batch(block.number)
        if len(X) != block.n_rows:
            raise DataError(
                f"A batch must have the same rows whenever it is asked for. Batch {block.number} "
                f"of {block.file} had {block.n_rows} rows and now has {len(X)}. Make load(i) "
                "depend on nothing but i."
            )
        batch = Piece(X if features else X[:, :0], y, weight, 0)
        for start in range(0, len(X), n_rows):
            yield batch.cut(start, start + n_rows)

    def fingerprint(self) -> dict[str, Any]:
        """The lengths of all batches and the numbers of the first."""
        X, y, _ = self._batch(self.blocks[0].number)
        lengths = np.array([block.n_rows for block in self.blocks])
        return {
            "rows": self.n_rows,
            "features": self.n_features,
            "type": str(X.dtype),
            "numbers": digest(lengths.tobytes(), X.tobytes(), y.astype(str).tobytes()),
        }

    def _batch(self, number: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]:
        batch = self._load(number)
        if not isinstance(batch, tuple) or len(batch) not in (2, 3):
            raise DataError(
                "load(i) must give a tuple (X, y) or (X, y, weight). It gave "
                f"{type(batch).__name__} for batch {number}. Change what it returns."
            )
        X, y = np.asarray(batch[0]), np.asarray(batch[1])
        weight = np.asarray(batch[2], dtype=np.float64) if len(batch) == 3 else None
        self._form = self._form or (X.shape[1:], weight is not None)
        if (
            X.ndim != 2
            or len(X) != len(y)
            or (weight is not None and len(weight) != len(X))
            or (X.shape[1:], weight is not None) != self._form
        ):
            raise DataError(
                "A batch must be a matrix of rows, all of one width, with a target for each, and a "
                f"weight for each row of all batches or for none. Batch {number} has X of shape "
                f"{X.shape}, y of shape {y.shape} and {'no ' * (weight is None)}weights. Change "
                "load(i)."
            )
        return X, y, weight


def exact_numbers(values: Sequence[Any]) -> NDArray[Any]:
    """Return numbers and Booleans as an array; integers beyond what a float holds stay apart.

    Raises DataError for those that do not fit into 64 bits.
    """
    large = [v for v in values if isinstance(v, int) and abs(v) > 2**53]
    if not large or any(isinstance(v, float) and not v.is_integer() for v in values):
        return np.array(values)
    integers = list(map(int, values))
    for kind in (np.int64, np.uint64):
        ends = np.iinfo(kind)
        if ends.min <= min(integers) and max(integers) <= ends.max:
            return np.array(integers, dtype=kind)
    raise DataError(
        f"Whole numbers must fit into 64 bits, signed or not. Got {max(integers, key=abs)}. "
        "Convert labels to text, for example with y.astype(str)."
    )


def _digest_of(X: Any, y: NDArray[Any], weight: NDArray[np.float64] | None) -> str:
    y = y.astype(str) if y.dtype.kind == "O" else y
    return digest(*(np.asarray(part).tobytes() for part in (X, y, weight) if part is not None))


def is_frame(X: Any) -> bool:
    """Whether X has named columns: a frame of pandas or polars, a table of Arrow."""
    return hasattr(X, "columns") and bool(nw.dependencies.is_into_dataframe(X))


def frame_columns(X: Any) -> dict[str, Any]:
    """Every column under its name; raises DataError for a name that is there twice."""
    # the columns of an Arrow table are no names
    is_arrow = hasattr(X, "column_names") and not hasattr(X, "iloc")
    names = [str(name) for name in (X.column_names if is_arrow else X.columns)]
    require_names(names, "the frame")
    frame = nw.from_native(X, eager_only=True)
    return dict(zip(names, frame.iter_columns(), strict=True))


def few_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Some rows from first to last, which ``save(examples=True)`` stores."""
    n = min(len(X), EXAMPLES, max(1, EXAMPLE_BYTES // max(1, X[:1].nbytes)))
    return X[np.linspace(0, len(X) - 1, n).astype(np.int64)] if n else X[:0]
