"""Rows that need not fit in memory: one protocol, whatever they lie in."""

from protopinv.rows.arrays import ArrayRows, BatchRows, MemoryRows, exact_numbers
from protopinv.rows.cache import ahead, cached
from protopinv.rows.files import ArrowRows, open_rows
from protopinv.rows.source import (
    Block,
    DerivedRows,
    Piece,
    RowSource,
    concatenated,
    digest,
    file_keys,
    keys_of,
    weighted,
)

__all__ = [
    "ArrayRows",
    "ArrowRows",
    "BatchRows",
    "Block",
    "DerivedRows",
    "MemoryRows",
    "Piece",
    "RowSource",
    "ahead",
    "cached",
    "concatenated",
    "digest",
    "exact_numbers",
    "file_keys",
    "keys_of",
    "open_rows",
    "weighted",
]
