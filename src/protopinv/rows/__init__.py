"""Rows that need not fit in memory: one protocol, whatever they lie in."""

from protopinv.rows.arrays import ArrayRows, BatchRows, SparseRows
from protopinv.rows.arrow import ArrowRows
from protopinv.rows.cache import CachedRows, cached
from protopinv.rows.opening import open_rows
from protopinv.rows.prefetch import ahead
from protopinv.rows.source import Block, Piece, RowSource, file_keys, keys_of

__all__ = [
    "ArrayRows",
    "ArrowRows",
    "BatchRows",
    "Block",
    "CachedRows",
    "Piece",
    "RowSource",
    "SparseRows",
    "ahead",
    "cached",
    "file_keys",
    "keys_of",
    "open_rows",
]
