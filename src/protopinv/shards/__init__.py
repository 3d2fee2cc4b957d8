"""Rows that need not fit in memory: one protocol, whatever they lie in."""

from protopinv.shards.arrays import ArrayRows, BatchRows, SparseRows
from protopinv.shards.arrow import ArrowRows
from protopinv.shards.cache import CachedRows, cached
from protopinv.shards.opening import open_rows
from protopinv.shards.prefetch import ahead
from protopinv.shards.source import Block, Piece, RowSource, file_keys, keys_of

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
