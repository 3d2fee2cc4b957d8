"""Rows that need not fit in memory: one protocol, whatever they lie in."""

from protopinv.rows.arrays import (
    ArrayRows,
    BatchRows,
    MemoryRows,
    exact_numbers,
    few_rows,
    frame_columns,
    is_frame,
)
from protopinv.rows.cache import cached
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
    "cached",
    "concatenated",
    "digest",
    "exact_numbers",
    "few_rows",
    "file_keys",
    "frame_columns",
    "is_frame",
    "keys_of",
    "open_rows",
]
