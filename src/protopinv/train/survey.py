"""One pass over all rows: their targets, moments of features, a sample; and which are held out.

Which rows are sampled follows from keys of their places alone, and so does the split of rows that
are not in memory. So neither depends on the order of reading, nor on which process reads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.errors import DataError
from protopinv.features import Moments, moments_of_chunk
from protopinv.rows import Block, Piece, RowSource, ahead, file_keys, keys_of
from protopinv.rows.cache import AHEAD
from protopinv.train.ranks import Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.targets import Targets

# Quantiles, first banks and what else a few rows can tell come from so many of them, and from so
# many of every class.
SAMPLE_ROWS = 20_000
SAMPLE_OF_A_CLASS = 256
# Numbers that are read at a time.
PIECE_NUMBERS = 2**20
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
            return np.zeros(len(piece.X), dtype=bool)
        keys = file_keys(self.seed, "held out", block, piece)
        return keys < np.uint64(min(self.share, 1 - 1e-12) * 2.0**64)

    def folds(self, block: Block, piece: Piece) -> Places:
        """The fold of every row of a piece; -1 for rows that are in none."""
        if self.fold_rows is not None:
            return self.fold_rows[_rows_of(block, piece)]
        keys = file_keys(self.seed, "fold", block, piece)
        folds: Places = (keys % np.uint64(FOLDS)).astype(np.int64)
        return folds


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


def _rows_of(block: Block, piece: Piece) -> slice:
    first = block.start + piece.first
    return slice(first, first + len(piece.y))


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
        if len(self) <= size:
            return self
        return self.taken(np.sort(np.argpartition(self.key, size)[:size]))

    @classmethod
    def joined(cls, parts: Sequence["Sample"]) -> "Sample":
        """All of them, each once, in the order of their numbers."""
        if len(parts) == 1:
            return parts[0]
        names = cls.__dataclass_fields__
        both = cls(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})
        return both.taken(np.unique(both.number, return_index=True)[1])


class Reservoir:
    """The rows with the lowest keys so far: a random sample, whatever the order they come in."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._parts: list[Sample] = []
        self._n = 0
        self._highest = np.uint64(2**64 - 1)

    def add(self, rows: Sample, places: Places) -> None:
        """Offer some rows of a piece, by their places in it."""
        places = places[rows.key[places] <= self._highest]
        if len(places) > self._size:
            lowest = np.argpartition(rows.key[places], self._size)[: self._size]
            places = np.sort(places[lowest])
        if len(places):
            self._parts.append(rows.taken(places))
            self._n += len(places)
        if self._n > 2 * self._size:
            self._parts = self.rows()
            self._n, self._highest = self._size, self._parts[0].key.max()

    def rows(self) -> list[Sample]:
        """The sample; an empty list if nothing was offered."""
        return [Sample.joined(self._parts).lowest(self._size)] if self._parts else []


class Sampler:
    """A sample of all rows, with some rows of every class if rows have one."""

    def __init__(self, *, by_label: bool) -> None:
        self._uniform = Reservoir(SAMPLE_ROWS)
        self._by_label: dict[Any, Reservoir] | None = {} if by_label else None

    def add(self, rows: Sample, places: Places) -> None:
        """Offer some rows of a piece, by their places in it."""
        self._uniform.add(rows, places)
        if self._by_label is None or not len(places):
            return
        labels, codes = np.unique(rows.y[places], return_inverse=True)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes))[:-1]
        for label, chosen in zip(labels.tolist(), np.split(places[order], ends), strict=True):
            self._by_label.setdefault(label, Reservoir(SAMPLE_OF_A_CLASS)).add(rows, chosen)

    def rows(self) -> Sample | None:
        """The sample; None if no row was offered."""
        of_labels = () if self._by_label is None else self._by_label.values()
        parts = [rows for each in (self._uniform, *of_labels) for rows in each.rows()]
        return Sample.joined(parts) if parts else None


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
    samples: tuple[Sample | None, ...] = ()
    trained: dict[int, int] = field(default_factory=dict)
    is_weighted: bool = False

    @property
    def sample(self) -> Sample:
        """A sample of the rows to train on; there are some."""
        if self.samples[0] is None:
            raise AssertionError("no row is trained on")
        return self.samples[0]

    def add_moments(self, moments: Moments | None) -> None:
        """Merge those of more rows."""
        if moments is not None:
            self.moments = moments if self.moments is None else self.moments.merge(moments)


def rows_a_piece(source: RowSource) -> int:
    """Rows that are read at a time."""
    return max(1, PIECE_NUMBERS // max(1, source.n_features))


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
    a_row = (source.n_bytes or 0) / source.n_rows if features else 0.0

    def read() -> Iterator[tuple[Block, Piece]]:
        for block in blocks:
            for piece in source.read(block, n_rows, features=features):
                source.bytes_read += round(a_row * len(piece.y))
                yield block, piece if fetch is None else fetch(piece)

    return read() if source.in_memory else ahead(read(), n_ahead)


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
    facts = Survey(targets)
    samplers = Sampler(by_label=by_label), Sampler(by_label=False)
    for block, piece in pieces_of(source, ranks.share(source.blocks), features=features):
        mass = mass_of(block, piece)
        if not source.in_memory:  # those were checked when they came
            check_features(source, block, piece)
        if targets is not None:
            targets.add(np.asarray(piece.y), mass, _where(block, piece))
        number = np.arange(*_rows_of(block, piece).indices(source.n_rows))
        key, fold = keys_of(split.seed, "sample", number), split.folds(block, piece)
        rows = Sample(piece.X, np.asarray(piece.y), mass, number, fold, key)
        out = split.held(block, piece)
        places = np.flatnonzero((mass > 0) & ~out), np.flatnonzero((mass > 0) & out)
        for sampler, chosen in zip(samplers, places, strict=True):
            sampler.add(rows, chosen)
        facts.is_weighted |= bool((mass != 1).any())
        facts.counts += [len(chosen) for chosen in places]
        facts.masses += [float(mass[chosen].sum()) for chosen in places]
        inside = places[0][fold[places[0]] >= 0]
        facts.fold_masses += np.bincount(fold[inside], mass[inside], FOLDS)
        facts.trained[block.start] = facts.trained.get(block.start, 0) + len(places[0])
        if scatter != "none":
            for part in _moments(rows, places[0], scatter, against, weighted=facts.is_weighted):
                facts.add_moments(part)
    facts.samples = tuple(sampler.rows() for sampler in samplers)
    facts = _merged(ranks.gather(facts), by_label=by_label)
    if facts.samples[0] is None:
        raise DataError(
            "Some rows must count. None is left to train on: all weights are zero, or all rows are "
            "held out. Give more rows, or larger weights."
        )
    return facts


def _merged(parts: Sequence[Survey], *, by_label: bool) -> Survey:
    """The facts of all ranks, the same on each."""
    if len(parts) == 1:
        return parts[0]
    of_targets = [part.targets for part in parts if part.targets is not None]
    total = Survey(of_targets[0].merge(of_targets) if of_targets else None)
    for part in parts:
        total.counts += part.counts
        total.masses += part.masses
        total.fold_masses += part.fold_masses
        total.trained |= part.trained
        total.is_weighted |= part.is_weighted
        total.add_moments(part.moments)
    samplers = Sampler(by_label=by_label), Sampler(by_label=False)
    for number, sampler in enumerate(samplers):
        of_ranks = [rows for part in parts if (rows := part.samples[number]) is not None]
        if of_ranks:
            rows = Sample.joined(of_ranks)
            sampler.add(rows, np.arange(len(rows)))
    total.samples = tuple(sampler.rows() for sampler in samplers)
    return total


def _moments(
    rows: Sample, places: Places, scatter: str, against: Any, *, weighted: bool
) -> Iterator[Moments]:
    """Moments of pieces that stay in cache."""
    size = max(1, CACHED_NUMBERS // rows.X.shape[1])
    for start in range(0, len(places), size):
        some = places[start : start + size]
        X = as_tensor(rows.X[some]).double()
        Y = X[:, :0] if against is None else against(rows.y[some])
        weight = torch.from_numpy(rows.weight[some]) if weighted else None
        yield moments_of_chunk(X, Y, weight, diagonal=scatter == "diagonal")


def as_tensor(X: NDArray[Any]) -> Tensor:
    """Numbers of a type that torch knows, in memory that it may write to."""
    native = X.dtype.isnative and X.dtype.kind in "biuf" and X.dtype.itemsize <= 8
    return torch.from_numpy(np.require(X if native else X.astype(np.float64), None, ["C", "W"]))


def mass_of(block: Block, piece: Piece) -> NDArray[np.float64]:
    """What each row counts; raises DataError for weights that are none."""
    if piece.weight is None:
        return np.ones(len(piece.y))
    bad = ~((piece.weight >= 0) & np.isfinite(piece.weight))
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"Weights of rows must be finite and 0 or more. {_row(block, piece, row)} has "
            f"{piece.weight[row]:g}. Correct it."
        )
    return piece.weight


def check_features(source: RowSource, block: Block, piece: Piece) -> None:
    """Raise DataError unless all features are finite numbers."""
    X = piece.X
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
