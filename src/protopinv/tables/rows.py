"""Rows of frames as the network takes them, whether they are in memory or read in pieces."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protopinv.rows import Block, DerivedRows, MemoryRows, Piece, RowSource, digest, file_keys
from protopinv.tables.growing import grown, with_averages
from protopinv.tables.statistics import FOLDS
from protopinv.tables.stored import arrays, described
from protopinv.tables.table import Gathered, Table, understood
from protopinv.tables.values import array_columns, frame_columns, is_frame

# Rows that are read together to infer what columns are.
ROWS = 50_000
# So many rows are kept with a model, if they are not longer than this.
EXAMPLES = 32
EXAMPLE_BYTES = 2**16


class Averaged(Protocol):
    """Targets, of which target encoding needs columns of numbers."""

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Add some rows."""

    def encoded(self) -> Any:
        """How targets become columns, and the names of these."""


class TableRows(DerivedRows):
    """Rows of a source of frames, encoded as numbers by a table that was fitted to them."""

    def __init__(self, source: RowSource, gathered: Gathered, table: Table) -> None:
        self._gathered = gathered
        first = next(source.read(source.blocks[0], EXAMPLES)).X
        first = first if source.in_memory else first.slice(0, EXAMPLES)
        codes = table.codes(frame_columns(first))
        # rows in memory are one piece
        self._codes = codes if source.in_memory else None
        examples, width = few_rows(codes), table.n_features
        super().__init__(source, table=table, examples=examples, is_framed=False, n_features=width)

    def changed(self, block: Block, piece: Piece, *, features: bool) -> Piece:
        """Return rows of numbers; the target encoding of each is out of fold."""
        if not features:
            return piece
        codes = self._codes
        if codes is None:
            codes = self.table.codes(frame_columns(piece.X))
        return piece._replace(X=self._gathered.rows(self.table, codes, _folds(block, piece)))

    def facts(self) -> dict[str, Any]:
        """Return a digest of the table."""
        parts = [json.dumps(described(self.table)).encode()]
        parts += [array.tobytes() for array in arrays(self.table).values()]
        return {"table": digest(*parts)}


def encode_table(
    source: RowSource, columns: Mapping[str, str] | None, targets: Averaged
) -> TableRows:
    """Read all rows once or twice: infer what columns are, then the target encoding of values.

    ``columns`` says what some columns are. All targets are added to ``targets`` on the way.
    """

    def pieces() -> Iterator[Mapping[str, Any]]:
        for block in source.blocks:
            for piece in source.read(block, ROWS):
                where = "y" if source.in_memory else block.file
                targets.add(np.asarray(piece.y), _mass(piece), where)
                yield frame_columns(piece.X)

    names = list(source.names or ())
    table = understood(pieces(), names, columns)
    numbers, target_names = targets.encoded()
    gathered = Gathered.empty(table, source.n_rows, len(target_names))
    for block in source.blocks if gathered.found else ():
        for piece in source.read(block, ROWS):
            mass = _mass(piece)
            counts = mass > 0  # what counts nothing may have a class that is not known
            codes = gathered.table.codes(frame_columns(piece.X))[counts]
            y = numbers(np.asarray(piece.y)[counts])
            gathered.add(codes, y, mass[counts], _folds(block, piece)[counts])
    return TableRows(source, gathered, gathered.finished(target_names))


def encode_by(table: Table, source: RowSource) -> MemoryRows:
    """Rows in memory, encoded by a table that was fitted to others; arrays are in its order."""
    X, y, weight = source.load()
    codes = table.codes(columns_of(X, table.names))
    rows = MemoryRows(
        table.features(codes), y, weight, names=source.names, target_names=source.target_names
    )
    rows.table, rows.examples, rows.is_named = table, few_rows(codes), source.is_named
    return rows


def grow_table(table: Table, X: Any) -> tuple[Table, NDArray[np.float64]]:
    """The table with the unseen categories of some rows, and the codes of these rows."""
    columns = columns_of(X if is_frame(X) else np.asarray(X), table.names)
    larger = grown(table, columns)
    return larger, larger.codes(columns, warn=True)


def encode_grown(
    old: Table,
    table: Table,
    codes: NDArray[np.float64],
    targets: Mapping[str, NDArray[np.float64]],
    weight: NDArray[np.float64] | None,
) -> tuple[Table, NDArray[np.float64]]:
    """A table that has grown from an old one, with the target encoding of new values; and rows."""
    if table is old:
        return table, table.features(codes)
    block, nothing = Block("X", 0, len(codes)), np.empty(0)
    fold = _folds(block, Piece(nothing, codes, None, 0))
    return with_averages(old, table, codes, targets, weight, fold)


def columns_of(X: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns of a frame by their names, which an array has from elsewhere."""
    return frame_columns(X) if is_frame(X) else array_columns(X, names)


def few_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Some rows from first to last, which ``save(examples=True)`` stores."""
    n = min(len(X), EXAMPLES, max(1, EXAMPLE_BYTES // max(1, X[:1].nbytes)))
    return X[np.linspace(0, len(X) - 1, n).astype(np.int64)] if n else X[:0]


def _mass(piece: Piece) -> NDArray[np.float64]:
    return np.ones(len(piece.y)) if piece.weight is None else piece.weight


def _folds(block: Block, piece: Piece) -> NDArray[np.int64]:
    """The fold of each row for target encoding, by its place in its file."""
    keys = file_keys(0, "table", block, piece)
    return (keys % np.uint64(FOLDS)).astype(np.int64)
