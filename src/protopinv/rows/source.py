"""The protocol: blocks of known length, read a piece at a time and in any order."""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError

# Rows of up to so many bytes are read once and kept; more are read again for every pass.
IN_MEMORY_BYTES = 2**29


@dataclass(frozen=True)
class Block:
    """Rows that lie together and are read one after another, such as a row group of a file.

    ``first`` is the number of its first row in the file, ``start`` that among all rows there are.
    """

    file: str
    number: int
    n_rows: int
    first: int = 0
    start: int = 0


class Piece(NamedTuple):
    """Some consecutive rows of a block, from row ``first`` of it on, as they came.

    Arrays as a source gives them; tensors once they were fetched to a GPU.
    """

    X: Any
    y: Any
    weight: NDArray[np.float64] | None
    first: int


@dataclass(frozen=True)
class Wanted:
    """What is read of each row: whether features are, and about how many rows at a time."""

    rows: int
    features: bool = True


class RowSource(ABC):
    """Rows with their targets, in blocks.

    ``names`` are those of the features and ``target_names`` those of the targets, where they have
    any; ``is_column`` says that there is one target a row, given as a plain list. ``n_bytes``
    counts what one pass reads, where that is known, and ``bytes_read`` about what has been read by
    this process. While rows take at most ``memory`` bytes they are read once and kept. ``cache`` is
    a folder for a temporary file of rows that were decoded, "auto" for one on a disk, or None to
    decode them again for every pass.
    """

    blocks: tuple[Block, ...]
    n_features: int
    names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    is_column: bool = True
    n_bytes: int | None = None
    memory: int = IN_MEMORY_BYTES
    bytes_read: int = 0
    cache: str | Path | None = None
    # what became of the columns of a frame, where rows come from one, and some of its rows coded
    table: Any = None
    examples: Any = None
    # rows that come as frames, through ``frames``, and rows that are in memory as a whole
    is_framed: bool = False
    in_memory: bool = False
    # whether ``names`` are those that a user knows
    is_named: bool = True

    @abstractmethod
    def read(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """The rows of a block, in order."""

    def frames(self, block: Block, wanted: Wanted) -> Iterator[Piece]:
        """The rows of a block with features as they came, as frames where ``is_framed``."""
        return self.read(block, wanted)

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """What tells these rows from others, as plain values; cheap, so not every number."""

    def pinned(self, wanted: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """In here memory that holds all rows stays where it is, so that a GPU can fetch from it."""
        return nullcontext()

    @property
    def n_rows(self) -> int:
        """Of all blocks."""
        last = self.blocks[-1]
        return last.start + last.n_rows

    def fits_in_memory(self) -> bool:
        """Whether all rows, as the network sees them, stay within ``memory``."""
        return self.n_rows * self.n_features * np.dtype(np.float32).itemsize <= self.memory

    def load(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]:
        """All rows at once."""
        wanted = Wanted(max(block.n_rows for block in self.blocks))
        pieces = [piece for block in self.blocks for piece in self.read(block, wanted)]
        X, y, weights, _ = zip(*pieces, strict=True)
        weight = None if weights[0] is None else np.concatenate(weights)
        return np.concatenate(X), np.concatenate(y), weight


def placed(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks with ``start`` counted up; blocks without rows are left out."""
    start, found = 0, []
    for block in blocks:
        if block.n_rows:
            found.append(replace(block, start=start))
            start += block.n_rows
    if not found:
        raise DataError(
            "Training needs at least one row. All files are empty. Check the path, or how they "
            "were written."
        )
    return tuple(found)


def keys_of(seed: int, salt: str, rows: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """A random 64-bit key for every row number: the same whoever asks, and in any order.

    The finalizer of splitmix64 (Steele, Lea and Flood 2014), applied twice.
    """
    base = np.random.SeedSequence([seed, zlib.crc32(salt.encode())]).generate_state(1, np.uint64)
    keys = np.asarray(rows).astype(np.uint64)
    with np.errstate(over="ignore"):
        for _ in range(2):
            keys = (keys + base[0]) * np.uint64(0x9E3779B97F4A7C15)
            keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            keys = keys ^ (keys >> np.uint64(31))
    return keys


def file_keys(seed: int, use: str, block: Block, piece: Piece) -> NDArray[np.uint64]:
    """Keys by the place of rows in their file, so that other files change nothing."""
    first = block.first + piece.first
    n = len(piece.X)
    return keys_of(seed, f"{use}:{block.file}", np.arange(first, first + n))
