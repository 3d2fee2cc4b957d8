"""Tables with text, dates and gaps that are read a piece at a time."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from protopinv.estimators.fitting import EXAMPLES
from protopinv.rows import ArrowRows, Block, Piece, RowSource
from protopinv.rows.arrays import digest
from protopinv.rows.source import Wanted, file_keys
from protopinv.tables import (
    FOLDS,
    Gathered,
    Table,
    arrays,
    described,
    frame_columns,
    understood,
)
from protopinv.train.summary import NumberStats, Summary

# Rows that are looked at together.
ROWS = 50_000

SomeSummary = TypeVar("SomeSummary", bound=Summary)
Targets = Callable[[NDArray[Any]], NDArray[np.float64]]


class TableRows(RowSource):
    """Rows of files as a network takes them, and the table that makes these of their columns."""

    table: Table

    def __init__(self, source: ArrowRows, gathered: Gathered, table: Table) -> None:
        self._source, self._gathered, self.table = source, gathered, table
        for name in ("blocks", "names", "is_column", "n_bytes", "memory", "cache"):
            setattr(self, name, getattr(source, name))
        self.n_features = table.n_features
        first = next(source.frames(source.blocks[0], Wanted(EXAMPLES)))
        self.examples = table.codes(frame_columns(first.X.slice(0, EXAMPLES)))

    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """Some rows of a block at a time; none has seen its own target."""
        for piece in self._source.frames(block, wanted):
            if not wanted.features:
                yield piece._replace(X=np.empty((len(piece.y), 0)))
                continue
            codes, fold = self.table.codes(frame_columns(piece.X)), _folds(block, piece)
            yield piece._replace(X=self._gathered.rows(self.table, codes, fold))

    def fingerprint(self) -> dict[str, Any]:
        """That of the files, and of what their columns are taken for."""
        parts = [json.dumps(described(self.table)).encode()]
        parts += [array.tobytes() for array in arrays(self.table).values()]
        return {**self._source.fingerprint(), "table": digest(*parts)}


def with_table(
    source: ArrowRows,
    wanted: Mapping[str, str] | None,
    summary: SomeSummary,
    targets_of: Callable[[SomeSummary], tuple[Targets, list[str]]],
) -> TableRows:
    """Read all rows once or twice: what columns are, and what the targets are like for each value.

    ``summary`` collects what ``targets_of`` must know of the targets to make numbers of them.
    """
    names = list(source.names or ())

    def pieces() -> Iterator[Mapping[str, Any]]:
        for block in source.blocks:
            for piece in source.frames(block, Wanted(ROWS)):
                summary.add(np.asarray(piece.y), _mass(piece), block.file)
                yield frame_columns(piece.X)

    table = understood(pieces(), names, wanted)
    numbers, target_names = targets_of(summary)
    gathered = Gathered.empty(table, source.n_rows, len(target_names))
    for block in source.blocks if gathered.found else ():
        for piece in source.frames(block, Wanted(ROWS)):
            there = _mass(piece) > 0  # what counts nothing may have a class that is not known
            codes = gathered.table.codes(frame_columns(piece.X))[there]
            targets, mass = numbers(np.asarray(piece.y)[there]), _mass(piece)[there]
            gathered.add(codes, targets, mass, _folds(block, piece)[there])
    return TableRows(source, gathered, gathered.finished(target_names))


def scaled(stats: NumberStats) -> tuple[Targets, list[str]]:
    """Numbers with a mean of 0 and a deviation of 1, whatever their units."""
    deviation = np.sqrt(np.maximum(stats.scatter / max(stats.mass, 1e-300), 1e-300))
    plain, names = unscaled(stats)
    return lambda y: (plain(y) - stats.mean) / deviation, names


def unscaled(stats: NumberStats) -> tuple[Targets, list[str]]:
    """Numbers as they are: labels are 0 and 1 in memory, too."""
    names = [f"target {number}" for number in range(1, len(stats.mean) + 1)]
    return lambda y: y.reshape(len(y), -1).astype(np.float64), names


def _mass(piece: Piece) -> NDArray[np.float64]:
    return np.ones(len(piece.y)) if piece.weight is None else piece.weight


def _folds(block: Block, piece: Piece) -> NDArray[np.int64]:
    """By the place of rows in their file, as everything that is drawn for a row."""
    return (file_keys(0, "table", block, piece) % np.uint64(FOLDS)).astype(np.int64)
