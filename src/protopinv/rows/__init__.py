"""Rows that need not fit in memory: one protocol, whatever they lie in."""

from protopinv.rows.arrays import ArrayRows, BatchRows, MemoryRows, SparseRows, exact_numbers
from protopinv.rows.cache import CachedRows, ahead, cached
from protopinv.rows.files import ArrowRows, open_rows
from protopinv.rows.source import (
    Block,
    DerivedRows,
    Piece,
    RowSource,
    WeightedRows,
    concatenated,
    digest,
    file_keys,
    keys_of,
)

__all__ = [
    "ArrayRows",
    "ArrowRows",
    "BatchRows",
    "Block",
    "CachedRows",
    "DerivedRows",
    "MemoryRows",
    "Piece",
    "RowSource",
    "SparseRows",
    "WeightedRows",
    "ahead",
    "cached",
    "concatenated",
    "digest",
    "exact_numbers",
    "file_keys",
    "keys_of",
    "open_rows",
]
