"""One pass over all rows: their targets, moments of features, a sample; and which are held out.

Which rows are sampled follows from keys of their places alone, and so does the split of rows that
are not in memory. So neither depends on the order of reading, nor on which process reads.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.features import Moments, merged_moments, moments_of_chunk
from protopinv.rows import Block, Piece, RowSource, file_keys, keys_of
from protopinv.rows.cache import AHEAD, ahead
from protopinv.train.machine import Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import as_tensor
from protopinv.train.targets import Targets

# Quantiles, first banks and what else a few rows can tell come from so many of them, and from so
# many of every class.
SAMPLE_ROWS = 20_000
SAMPLE_OF_A_CLASS = 256
# Numbers that are read at a time.
READ_NUMBERS = 2**20
# Numbers in float64 that stay in cache.
CACHED_NUMBERS = 2**17

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Which rows are held out for validation, a ``share`` of all, and the fold of each row.

    Rows in memory are dealt out class by class: ``held_rows`` and ``fold_rows`` have an entry for
    each. Of other rows a hash of their places decides.
    """

    seed: int
    share: float = 0.0
    held_rows: Mask | None = None
    fold_rows: Places | None = None

    def held(self, block: Block, piece: Piece) -> Mask:
        """Whether each row of a piece is held out."""
        if self.held_rows is not None:
            return self.held_rows[_rows_of(block, piece)]
        if self.share == 0:
            return np.zeros(len(piece.y), dtype=bool)
        keys = file_keys(self.seed, "held out", block, piece)
        return keys < np.uint64(min(self.share, 1 - 1e-12) * 2.0**64)

    def folds(self, block: Block, piece: Piece) -> Places:
        """The fold of every row of a piece; -1 for rows that are in none."""
        if self.fold_rows is not None:
            return self.fold_rows[_rows_of(block, piece)]
        keys = file_keys(self.seed, "fold", block, piece)
        folds: Places = (keys % np.uint64(FOLDS)).astype(np.int64)
        return folds

    def side(self, block: Block, piece: Piece, *, held_out: bool) -> Places | None:
        """The rows of a piece that are held out or are not, by number; None for all of them.

        Rows of weight zero are on neither side.
        """
        there = None if piece.weight is None or piece.weight.all() else piece.weight > 0
        if self.share > 0:
            side = self.held(block, piece) == held_out
            there = side if there is None else there & side
        return None if there is None else np.flatnonzero(there)


def _rows_of(block: Block, piece: Piece) -> slice:
    first = block.start + piece.first
    return slice(first, first + len(piece.y))


def hold_out(groups: NDArray[np.integer[Any]], share: float, seed: int) -> Mask:
    """Whether each row is held out: a share of every group, but no group's only row."""
    n, n_held = len(groups), round(share * len(groups))
    if not 1 <= n_held < n:
        raise DataError(
            f"A hold-out needs at least one row on each side. {n} rows with "
            f"validation_fraction={share} leave {n_held} to validate on. "
            "Give more rows, or set validation_fraction=0."
        )
    order = _dealt(groups, 2, seed)
    order = order if len(order) >= n_held else np.random.default_rng(seed).permutation(n)
    held = np.zeros(n, dtype=bool)
    held[order[((np.arange(n_held) + 0.5) * (len(order) / n_held)).astype(np.int64)]] = True
    return held


def deal_folds(groups: NDArray[np.integer[Any]], n_folds: int, seed: int) -> Places:
    """The fold of each row: every group is dealt out like cards, in a random order.

    Groups of fewer rows than folds are in none, -1: a fold could not learn what it is judged by.
    """
    order, folds = _dealt(groups, n_folds, seed), np.full(len(groups), -1)
    folds[order] = np.arange(len(order)) % n_folds
    return folds


def _dealt(groups: NDArray[np.integer[Any]], least: int, seed: int) -> Places:
    """Row numbers in a random order, group by group, of groups with ``least`` rows or more."""
    shuffled = np.random.default_rng(seed).permutation(len(groups))
    order = shuffled[np.argsort(groups[shuffled], kind="stable")]
    dealt: Places = order[(np.bincount(groups) >= least)[groups[order]]]
    return dealt


@dataclass
class Sample:
    """Some rows as they came, in the order of their numbers among all."""

    X: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64]
    number: Places
    fold: Places
    key: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.key)

    def taken(self, chosen: Any) -> "Sample":
        """Some of them."""
        return Sample(**{name: part[chosen] for name, part in vars(self).items()})

    def lowest(self, size: int) -> "Sample":
        """Those with the lowest keys."""
        return self if len(self) <= size else self.taken(_lowest(self.key, size))

    @classmethod
    def joined(cls, parts: Sequence["Sample"]) -> "Sample":
        """All of them, each once, in the order of their numbers."""
        if len(parts) == 1:
            return parts[0]
        names = cls.__dataclass_fields__
        both = cls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})
        return both.taken(np.unique(both.number, return_index=True)[1])


def _lowest(keys: NDArray[np.uint64], size: int) -> Places:
    """The places of the lowest keys, in order."""
    return np.sort(np.argpartition(keys, size)[:size])


class Sampler:
    """The rows with the lowest keys so far: a random sample, whatever the order they come in.

    There are some of every label too, if rows have one.
    """

    def __init__(self, *, by_label: bool) -> None:
        self._by_label = by_label
        # rows by how many of them are to be sampled, and by their label
        self._pools: defaultdict[tuple[int, Any], list[Sample]] = defaultdict(list)

    def add(self, rows: Sample, places: Places) -> None:
        """Offer some rows of a piece, by their places in it."""
        self._offer(SAMPLE_ROWS, None, rows, places)
        if not self._by_label or not len(places):
            return
        labels, codes = np.unique(rows.y[places], return_inverse=True)
        order = places[np.argsort(codes, kind="stable")]
        chosen = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        for label, of_label in zip(labels.tolist(), chosen, strict=True):
            self._offer(SAMPLE_OF_A_CLASS, label, rows, of_label)

    def rows(self) -> Sample | None:
        """The sample; None if no row was offered."""
        pools = self._pools.items()
        parts = [Sample.joined(pool).lowest(size) for (size, _), pool in pools if pool]
        return Sample.joined(parts) if parts else None

    def _offer(self, size: int, label: Any, rows: Sample, places: Places) -> None:
        """Add rows to a pool, which now and then is cut to those with the ``size`` lowest keys."""
        pool = self._pools[size, label]
        if pool and len(pool[0]) == size:
            places = places[rows.key[places] <= pool[0].key.max()]
        if len(places) > size:
            places = places[_lowest(rows.key[places], size)]
        if len(places):
            pool.append(rows.taken(places))
        if sum(map(len, pool)) > 2 * size:
            pool[:] = [Sample.joined(pool).lowest(size)]


@dataclass
class Survey:
    """Facts from one pass. ``counts`` and ``masses`` are of rows to train on and held out.

    ``targets`` has statistics of the targets, unless these were known before the pass.
    ``trained`` says how many rows of each block, by its start, are trained on; ``is_weighted``
    whether some count other than once. Rows of weight zero are not there at all. ``samples`` are of
    the rows to train on and of those held out, None where there is no row.
    """

    targets: Targets | None = None
    counts: Places = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    masses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    fold_masses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(FOLDS))
    moments: Moments | None = None
    trained: Counter[int] = field(default_factory=Counter)
    is_weighted: bool = False
    samples: tuple[Any, ...] = ()

    @property
    def sample(self) -> Sample:
        """A sample of the rows to train on; there are some."""
        sample: Sample = self.samples[0]
        return sample

    def count(self, rows: Sample, places: Sequence[Places], block: Block) -> None:
        """Count rows of a piece: those to train on and those held out, by their places in it."""
        mass, fold = rows.weight, rows.fold
        inside = places[0][fold[places[0]] >= 0]
        self.counts += [len(chosen) for chosen in places]
        self.masses += [mass[chosen].sum() for chosen in places]
        self.fold_masses += np.bincount(fold[inside], mass[inside], FOLDS)
        self.trained[block.start] += len(places[0])
        self.is_weighted |= bool((mass != 1).any())

    def add(self, other: "Survey") -> None:
        """Count the rows of another rank, apart from their samples."""
        if self.targets is None:
            self.targets = other.targets
        elif other.targets is not None:
            self.targets.merge(other.targets)
        self.counts += other.counts
        self.masses += other.masses
        self.fold_masses += other.fold_masses
        self.moments = merged_moments([self.moments, other.moments])
        self.trained.update(other.trained)
        self.is_weighted |= other.is_weighted


def survey(
    source: RowSource,
    targets: Targets | None,
    split: Split,
    ranks: Ranks,
    *,
    by_label: bool,
    scatter: str = "none",
    against: Any = None,
    features: bool = True,
) -> Survey:
    """Look at every row once; all ranks learn what there is.

    ``targets`` collects statistics of the targets; None where they are known. ``scatter`` is "full"
    or "diagonal", or "none" where moments are not asked for. ``against`` encodes targets for PLS,
    which needs to know them. Without ``features`` only targets are read.
    """
    facts, samplers = Survey(targets), (Sampler(by_label=by_label), Sampler(by_label=False))
    for block, piece in pieces_of(source, ranks.share(source.blocks), features=features):
        check_piece(source, block, piece)
        y, mass = np.asarray(piece.y), piece.mass
        if targets is not None:
            targets.add(y, mass, _where(block, piece))
        number = np.arange(*_rows_of(block, piece).indices(source.n_rows))
        key, fold = keys_of(split.seed, "sample", number), split.folds(block, piece)
        rows = Sample(piece.X, y, mass, number, fold, key)
        out = split.held(block, piece)
        places = np.flatnonzero((mass > 0) & ~out), np.flatnonzero((mass > 0) & out)
        for sampler, chosen in zip(samplers, places, strict=True):
            sampler.add(rows, chosen)
        facts.count(rows, places, block)
        if scatter != "none":
            weighted, diagonal = facts.is_weighted, scatter == "diagonal"
            more = _moments(rows, places[0], against, weighted=weighted, diagonal=diagonal)
            facts.moments = merged_moments([facts.moments, *more])
    facts.samples = tuple(sampler.rows() for sampler in samplers)
    if ranks.size > 1:
        facts = _merged(ranks.gather(facts), by_label=by_label)
    if facts.samples[0] is None:
        raise DataError(
            "Some rows must count. None is left to train on: all weights are zero, or all rows are "
            "held out. Give more rows, or larger weights."
        )
    return facts


def _merged(parts: Sequence[Survey], *, by_label: bool) -> Survey:
    """The facts of all ranks, the same on each."""
    total, samplers = Survey(), (Sampler(by_label=by_label), Sampler(by_label=False))
    for part in parts:
        total.add(part)
        for sampler, rows in zip(samplers, part.samples, strict=True):
            if rows is not None:
                sampler.add(rows, np.arange(len(rows)))
    total.samples = tuple(sampler.rows() for sampler in samplers)
    return total


def _moments(
    rows: Sample, places: Places, against: Any, *, weighted: bool, diagonal: bool
) -> Iterator[Moments]:
    """Moments of pieces that stay in cache."""
    size = max(1, CACHED_NUMBERS // rows.X.shape[1])
    for start in range(0, len(places), size):
        some = places[start : start + size]
        X = as_tensor(rows.X[some]).double()
        Y = X[:, :0] if against is None else against(rows.y[some])
        weight = torch.from_numpy(rows.weight[some]) if weighted else None
        yield moments_of_chunk(X, Y, weight, diagonal=diagonal)


def pieces_of(
    source: RowSource,
    blocks: Sequence[Block],
    *,
    features: bool = True,
    n_ahead: int = AHEAD,
    rows: int | None = None,
    fetch: Callable[[Piece], Piece] | None = None,
) -> Iterator[tuple[Block, Piece]]:
    """All pieces of some blocks, in order, so many of them read ahead by a thread.

    The thread also fetches them, to a GPU say. Rows in memory are one piece, and need no thread.
    """
    n_rows = rows or (source.n_rows if source.in_memory else rows_a_piece(source))
    row_bytes = (source.n_bytes or 0) / source.n_rows if features else 0.0

    def read() -> Iterator[tuple[Block, Piece]]:
        for block in blocks:
            for piece in source.read(block, n_rows, features=features):
                source.bytes_read += round(row_bytes * len(piece.y))
                yield block, piece if fetch is None else fetch(piece)

    return read() if source.in_memory else ahead(read(), n_ahead)


def rows_a_piece(source: RowSource) -> int:
    """Rows that are read at a time."""
    return max(1, READ_NUMBERS // max(1, source.n_features))


def check_piece(source: RowSource, block: Block, piece: Piece) -> None:
    """Raise DataError for weights that are none, and for features that are no finite numbers.

    Columns of frames are checked where they are encoded, and rows in memory where they came.
    """
    X, mass = piece.X, piece.mass
    bad = ~((mass >= 0) & np.isfinite(mass))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"Weights of rows must be finite and 0 or more. {_row(block, piece, row)} has "
            f"{mass[row]:g}. Correct it."
        )
    if source.is_framed or source.in_memory:
        return
    if X.dtype.kind not in "biuf":
        raise DataError(
            f"Features must be numbers. {_where(block, piece)} holds {X.dtype.name}. Convert them."
        )
    if X.dtype.kind != "f" or bool(np.isfinite(X).all()):
        return
    row, column = (int(place[0]) for place in np.nonzero(~np.isfinite(X)))
    name = column if source.names is None else repr(source.names[column])
    raise DataError(
        f"Features must be finite numbers. {_row(block, piece, row)} holds {X[row, column]} in "
        f"column {name}. Fill the gap or drop the row."
    )


def _row(block: Block, piece: Piece, row: int) -> str:
    return f"Row {block.first + piece.first + row + 1:,} of {block.file}"


def _where(block: Block, piece: Piece) -> str:
    first = block.first + piece.first
    return f"{block.file} (rows {first + 1:,} to {first + len(piece.X):,})"
