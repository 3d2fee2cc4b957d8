"""Rows of frames as the network takes them, whether they are in memory or read in pieces."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protopinv.rows import (
    Block,
    DerivedRows,
    MemoryRows,
    Piece,
    RowSource,
    digest,
    few_rows,
    file_keys,
    frame_columns,
    is_frame,
)
from protopinv.rows.arrays import EXAMPLES
from protopinv.tables.table import Table, arrays, described, understood
from protopinv.tables.target_encoding import FOLDS, TargetEncoding

# Rows that are read together to infer what columns are.
ROWS = 50_000


class EncodableTargets(Protocol):
    """Targets, of which target encoding needs columns of numbers."""

    def add(self, y: NDArray[Any], mass: NDArray[np.float64], where: str) -> None:
        """Add some rows."""

    def encoded(self) -> Any:
        """How targets become columns, and the names of these."""


def encode_table(
    source: RowSource, columns: Mapping[str, str] | None, targets: EncodableTargets
) -> DerivedRows:
    """Read all rows once or twice: infer what columns are, then the target encoding of values.

    ``columns`` says what some columns are. All targets are added to ``targets`` on the way.
    """

    def pieces() -> Iterator[Mapping[str, Any]]:
        for block in source.blocks:
            for piece in source.read(block, ROWS):
                where = "y" if source.in_memory else block.file
                targets.add(np.asarray(piece.y), piece.mass, where)
                yield columns_of(piece.X, source.names or ())

    table = understood(pieces(), source.names or (), columns)
    numbers, target_names = targets.encoded()
    encoding = TargetEncoding.empty(table, source.n_rows, target_names)
    for block in source.blocks if encoding.averages else ():
        for piece in source.read(block, ROWS):
            mass = piece.mass
            counts = mass > 0  # what counts nothing may have a class that is not known
            codes = encoding.table.codes(columns_of(piece.X, table.names))[counts]
            y = numbers(np.asarray(piece.y)[counts])
            encoding.add(codes, y, mass[counts], _folds(block, piece)[counts])
    return _encoded(source, encoding)


def _encoded(source: RowSource, encoding: TargetEncoding) -> DerivedRows:
    """Rows of frames as numbers; the target encoding of each is out of fold."""
    table, first = encoding.fitted(), next(source.read(source.blocks[0], EXAMPLES)).X
    if not source.in_memory:
        first = first[:EXAMPLES] if isinstance(first, np.ndarray) else first.slice(0, EXAMPLES)
    first = table.codes(columns_of(first, table.names))

    def changed(block: Block, piece: Piece, *, features: bool) -> Piece:
        if not features:
            return piece
        # rows in memory are one piece
        codes = first if source.in_memory else table.codes(columns_of(piece.X, table.names))
        return piece._replace(X=encoding.rows(table, codes, _folds(block, piece)))

    def facts() -> dict[str, Any]:
        parts = [array.tobytes() for array in arrays(table).values()]
        return {"table": digest(json.dumps(described(table)).encode(), *parts)}

    return DerivedRows(
        source,
        changed,
        facts,
        table=table,
        examples=few_rows(first),
        is_framed=False,
        n_features=table.n_features,
    )


def encode_by(table: Table, source: RowSource) -> MemoryRows:
    """Rows in memory, encoded by a table that was fitted to others; arrays are in its order."""
    X, y, weight = source.load()
    codes = table.codes(columns_of(X, table.names))
    rows = MemoryRows(table.features(codes), y, weight, names=source.names)
    rows.target_names, rows.is_named = source.target_names, source.is_named
    rows.table, rows.examples = table, few_rows(codes)
    return rows


def grow_table(table: Table, X: Any) -> tuple[Table, NDArray[np.float64]]:
    """The table with the unseen categories of some rows, and the codes of these rows."""
    columns = columns_of(X if is_frame(X) else np.asarray(X), table.names)
    larger = table.grown(columns)
    return larger, larger.codes(columns, warn=True)


def encode_grown(
    old: Table,
    table: Table,
    codes: NDArray[np.float64],
    targets: Mapping[str, NDArray[np.float64]],
    weight: NDArray[np.float64] | None,
) -> tuple[Table, NDArray[np.float64]]:
    """A table that has grown from an old one, with averages of targets for new values; and rows.

    A target that is gone is zero.
    """
    encoding, gone = TargetEncoding.of_new_values(old, table), np.zeros(len(codes))
    if not encoding.averages:
        return table, table.features(codes)
    y = np.stack([targets.get(name, gone) for name in encoding.targets], axis=1)
    fold = _folds(Block("X", 0, len(y)), Piece(codes, y, weight, 0))
    encoding.add(codes, y, weight, fold)
    table = encoding.fitted()
    return table, encoding.rows(table, codes, fold)


def columns_of(X: Any, names: Sequence[str]) -> dict[str, Any]:
    """The columns of a frame by their names, which an array has from elsewhere."""
    return dict(zip(names, X.T, strict=True)) if isinstance(X, np.ndarray) else frame_columns(X)


def _folds(block: Block, piece: Piece) -> NDArray[np.int64]:
    """The fold of each row for target encoding, by its place in its file."""
    keys = file_keys(0, "table", block, piece)
    return (keys % np.uint64(FOLDS)).astype(np.int64)
