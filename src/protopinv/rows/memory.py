"""Rows in memory as a source of one block, and rows of a source that count more or less."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.rows.arrays import digest
from protopinv.rows.source import Block, Piece, RowSource, Wanted


class MemoryRows(RowSource):
    """An array, or a frame whose columns are not encoded yet, with targets and weights."""

    in_memory = True

    def __init__(
        self,
        X: Any,
        y: NDArray[Any],
        weight: NDArray[np.float64] | None = None,
        *,
        names: tuple[str, ...] | None = None,
        target_names: tuple[str, ...] | None = None,
        is_framed: bool = False,
    ) -> None:
        self.X, self.y, self.weight = X, y, weight
        self.blocks = (Block("X", 0, len(y)),)
        self.names, self.target_names = names, target_names
        self.is_framed, self.is_column = is_framed, y.ndim == 1
        self.n_features = X.shape[1]

    def load(self) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
        """Return all rows."""
        return self.X, self.y, self.weight

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Yield slices of the rows."""
        for start in range(0, block.n_rows, wanted.rows):
            rows = slice(start, start + wanted.rows)
            X = self.X[rows] if wanted.features else np.empty((len(self.y[rows]), 0))
            yield Piece(X, self.y[rows], None if self.weight is None else self.weight[rows], start)

    def frames(self, _block: Block, _wanted: Wanted) -> Iterator[Piece]:
        """Yield all rows of a frame as they came."""
        yield Piece(self.X, self.y, self.weight, 0)

    def fingerprint(self) -> dict[str, Any]:
        """All of their numbers, as plain values."""
        y = self.y if self.y.dtype.kind != "O" else self.y.astype(str)
        parts = [part for part in (self.X, y, self.weight) if part is not None]
        return {
            "rows": len(self.y),
            "features": int(self.X.shape[1]),
            "numbers": digest(*(np.ascontiguousarray(part).tobytes() for part in parts)),
        }


# What a source that wraps another has from it.
SHARED = ("blocks", "n_features", "names", "target_names", "is_column", "n_bytes", "memory")
SHARED += ("cache", "table", "examples", "is_framed", "in_memory", "is_named")


class OrderedRows(RowSource):
    """Rows of numbers of another source with some of its columns, in another order."""

    def __init__(self, source: RowSource, names: tuple[str, ...]) -> None:
        self._source = source
        for name in SHARED:
            setattr(self, name, getattr(source, name))
        self._order = [(source.names or ()).index(name) for name in names]
        self.names, self.n_features = names, len(names)

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Yield pieces of the other source with these columns."""
        for piece in self._source.read(block, wanted):
            yield piece._replace(X=piece.X[:, self._order]) if wanted.features else piece

    def fingerprint(self) -> dict[str, Any]:
        """That of the other source, and the columns."""
        return {**self._source.fingerprint(), "columns": list(self.names or ())}


class WeightedRows(RowSource):
    """Rows of another source, whose weights are multiplied by the factor of their class."""

    def __init__(
        self, source: RowSource, labels: NDArray[Any], factors: NDArray[np.float64]
    ) -> None:
        self._source, self.labels, self.factors = source, labels, factors
        for name in SHARED:
            setattr(self, name, getattr(source, name))

    def load(self) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
        """Return all rows with their weights."""
        X, y, weight = self._source.load()
        return X, y, self._weights(y, weight)

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Yield pieces of the other source with their weights."""
        for piece in self._source.read(block, wanted):
            yield piece._replace(weight=self._weights(np.asarray(piece.y), piece.weight))

    def frames(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Yield pieces of the other source as frames, with their weights."""
        for piece in self._source.frames(block, wanted):
            yield piece._replace(weight=self._weights(np.asarray(piece.y), piece.weight))

    def _weights(self, y: NDArray[Any], weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        # labels without weight are not among them, and count nothing whatever their factor is
        code = np.searchsorted(self.labels, y)
        factor = self.factors[code.clip(max=len(self.factors) - 1)]
        return factor if weight is None else weight * factor

    def fingerprint(self) -> dict[str, Any]:
        """That of the other source, and the weights of the classes."""
        factors = dict(zip(map(str, self.labels.tolist()), self.factors.tolist(), strict=True))
        return {**self._source.fingerprint(), "class_weight": factors}
