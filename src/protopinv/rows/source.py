"""The protocol of a source of rows: blocks of known length, read in pieces and in any order."""

import hashlib
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.optional import Later

pa = Later("pyarrow")
# Rows of up to so many bytes are loaded into memory once; more are read again for every pass.
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
    """Some consecutive rows of a block, from row ``first`` of it on.

    Features are an array, or a frame; tensors once they were fetched to a GPU.
    """

    X: Any
    y: Any
    weight: NDArray[np.float64] | None
    first: int

    @property
    def mass(self) -> NDArray[np.float64]:
        """What each row counts."""
        return np.ones(len(self.y)) if self.weight is None else self.weight

    def cut(self, start: int, end: int) -> "Piece":
        """Rows from ``start`` to ``end`` of the piece."""
        weight = None if self.weight is None else self.weight[start:end]
        return Piece(self.X[start:end], self.y[start:end], weight, self.first + start)


class RowSource(ABC):
    """Rows with their targets, in blocks.

    ``names`` are those of the features and ``target_names`` those of the targets, where they have
    any; ``is_column`` says that there is one target a row, given as a plain list. ``n_bytes``
    counts what one pass reads, where that is known, and ``bytes_read`` about what has been read by
    this process. While rows take at most ``memory`` bytes they are loaded once. ``cache`` is a
    folder for a temporary file of decoded rows, "auto" for one on a disk, or None to decode them
    again for every pass.
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
    # the encoding of a frame's columns, where rows come from one, and some encoded rows
    table: Any = None
    examples: Any = None
    # whether features come as frames, and whether all rows are in memory
    is_framed: bool = False
    in_memory: bool = False
    # whether ``names`` are those that a user knows
    is_named: bool = True

    @abstractmethod
    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield the rows of a block in order, about ``n_rows`` at a time.

        Without ``features`` only targets and weights are read, and X has no columns.
        """

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Plain values that tell these rows from others; cheap, so not every number is read."""

    def with_columns(self, names: Sequence[str], *, framed: bool) -> "RowSource":  # noqa: ARG002
        """Return these features alone, in this order; files can give them ``framed``."""
        names, own = tuple(names), self.names or ()
        if names == own:
            return self
        order = [own.index(name) for name in names]

        def ordered(_: Block, piece: Piece, *, features: bool) -> Piece:
            return piece._replace(X=piece.X[:, order]) if features else piece

        facts = {"columns": list(names)}
        return DerivedRows(self, ordered, lambda: facts, names=names, n_features=len(names))

    def pinned(self, on_gpu: bool) -> AbstractContextManager[None]:  # noqa: ARG002
        """Keep memory that holds all rows in its place, so that a GPU can fetch from it."""
        return nullcontext()

    @property
    def n_rows(self) -> int:
        """Rows of all blocks."""
        last = self.blocks[-1]
        return last.start + last.n_rows

    def fits_in_memory(self) -> bool:
        """Whether all rows, as the network sees them, stay within ``memory``."""
        return self.n_rows * self.n_features * np.dtype(np.float32).itemsize <= self.memory

    def load(self) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
        """Return features, targets and weights (None: each row counts once) of all rows."""
        n_rows = max(block.n_rows for block in self.blocks)
        return concatenated(piece for block in self.blocks for piece in self.read(block, n_rows))


def concatenated(
    pieces: Iterable[Piece],
) -> tuple[Any, NDArray[Any], NDArray[np.float64] | None]:
    """Return features, targets and weights of all pieces; either all have weights or none has."""
    X, y, weights, _ = zip(*pieces, strict=True)
    if len(X) == 1:
        return X[0], y[0], weights[0]
    features = np.concatenate(X) if isinstance(X[0], np.ndarray) else pa.concat_tables(X)
    weight = None if weights[0] is None else np.concatenate(weights)
    return features, np.concatenate(y), weight


class DerivedRows(RowSource):
    """Rows of another source, each piece of them ``changed``, with attributes that differ.

    ``facts`` are what a fingerprint says beside that of the other source.
    """

    def __init__(
        self,
        source: RowSource,
        changed: Callable[..., Piece] = lambda _, piece, **__: piece,
        facts: Callable[[], Mapping[str, Any]] = dict,
        **differing: Any,
    ) -> None:
        self.source, self._changed, self._facts = source, changed, facts
        for name in RowSource.__annotations__:
            if name != "bytes_read":
                setattr(self, name, differing.get(name, getattr(source, name)))

    def read(self, block: Block, n_rows: int, *, features: bool = True) -> Iterator[Piece]:
        """Yield changed pieces of the other source."""
        for piece in self.source.read(block, n_rows, features=features):
            yield self._changed(block, piece, features=features)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the other source, and what was changed."""
        return {**self.source.fingerprint(), **self._facts()}


def placed(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks that have rows, with ``start`` counted up."""
    filled = [block for block in blocks if block.n_rows]
    if not filled:
        raise DataError(
            "Training needs at least one row. All files are empty. Check the path, or how they "
            "were written."
        )
    starts = accumulate((block.n_rows for block in filled), initial=0)
    return tuple(replace(block, start=start) for block, start in zip(filled, starts, strict=False))


def require_names(names: Sequence[str], place: str) -> None:
    """Raise DataError for a name that two columns of a place have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"Every column needs a name of its own. {twice[0]!r} is there twice in {place}. Rename "
            "or drop one of them."
        )


def digest(*parts: bytes) -> str:
    """Return a short hash of bytes."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        total.update(part)
    return total.hexdigest()


def keys_of(seed: int, salt: str, rows: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Return a random 64-bit key for every row number: the same for everyone, in any order.

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
    """Return keys by the place of rows in their file, so that other files change nothing."""
    first = block.first + piece.first
    return keys_of(seed, f"{use}:{block.file}", np.arange(first, first + len(piece.y)))
