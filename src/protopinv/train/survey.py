"""One pass over rows that are not in memory: targets, moments of features, and a sample.

Which rows are held out, which fold a row is in and which rows are sampled follows from keys of
their places alone. So it depends neither on the order of reading nor on who reads what.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.features import Moments, moments_of_chunk
from protopinv.rows import Block, Piece, RowSource, ahead, file_keys, keys_of
from protopinv.rows.cache import AHEAD
from protopinv.train.ranks import Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.targets import LabelCounts, Targets
from protopinv.train.view import as_tensor

# Quantiles, first banks and what else a few rows can tell come from so many of them, and from so
# many of every class.
SAMPLE_ROWS = 20_000
SAMPLE_OF_A_GROUP = 256
# Numbers that are read at a time.
PIECE_NUMBERS = 2**20
# Numbers in float64 that stay in cache.
CACHED_NUMBERS = 2**17


@dataclass(frozen=True)
class Split:
    """Which rows are held out to validate on, a share of all, and the fold of each, by key."""

    seed: int
    share: float = 0.0

    def held(self, block: Block, piece: Piece) -> NDArray[np.bool_]:
        """Whether each row of a piece is held out."""
        if self.share == 0:
            return np.zeros(len(piece.X), dtype=bool)
        keys = file_keys(self.seed, "held out", block, piece)
        return keys < np.uint64(min(self.share, 1 - 1e-12) * 2.0**64)

    def folds(self, block: Block, piece: Piece) -> NDArray[np.int64]:
        """The fold of every row of a piece."""
        keys = file_keys(self.seed, "fold", block, piece)
        return (keys % np.uint64(FOLDS)).astype(np.int64)

    def sample_keys(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
        """Keys by the number of a row among all: rows with the lowest are sampled."""
        return keys_of(self.seed, "sample", numbers)


@dataclass
class Sample:
    """Some rows as they came, in the order of their numbers among all."""

    X: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[np.float64]
    number: NDArray[np.int64]
    fold: NDArray[np.int64]
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

    def add(self, rows: Sample, chosen: NDArray[np.bool_]) -> None:
        """Offer the chosen ones of some more rows."""
        low = (rows.key <= self._highest) & chosen
        if not low.any():
            return
        self._parts.append(rows.taken(np.flatnonzero(low)))
        self._n += len(self._parts[-1])
        if self._n > 2 * self._size:
            self._parts = [Sample.joined(self._parts).lowest(self._size)]
            self._n = self._size
            self._highest = self._parts[0].key.max()

    def rows(self) -> list[Sample]:
        """The sample; an empty list if nothing was offered."""
        return [Sample.joined(self._parts).lowest(self._size)] if self._parts else []


def sampled(
    keys: NDArray[np.uint64], groups: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Which of these rows a survey would sample, and which of those without regard to groups."""
    n = len(keys)
    if n <= SAMPLE_ROWS:
        return np.arange(n), np.ones(n, dtype=bool)
    chosen = np.zeros(n, dtype=bool)
    uniform = np.zeros(n, dtype=bool)
    uniform[np.argpartition(keys, SAMPLE_ROWS)[:SAMPLE_ROWS]] = True
    order = np.argsort(groups, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        chosen[rows[np.argsort(keys[rows], kind="stable")[:SAMPLE_OF_A_GROUP]]] = True
    numbers = np.flatnonzero(chosen | uniform)
    return numbers, uniform[numbers]


@dataclass
class Survey:
    """Facts from one pass. ``counts`` and ``masses`` are of rows to train on and held out.

    ``trained`` says how many rows of each block, by its start, are trained on; ``is_weighted``
    whether some count other than once. Rows of weight zero are not there at all. ``samples`` are
    of the rows to train on and of those held out, each an empty list where there is no row.
    """

    targets: Targets
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, dtype=np.int64))
    masses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(2))
    fold_masses: NDArray[np.float64] = field(default_factory=lambda: np.zeros(FOLDS))
    moments: Moments | None = None
    samples: tuple[list[Sample], list[Sample]] = ([], [])
    trained: dict[int, int] = field(default_factory=dict)
    is_weighted: bool = False

    @property
    def sample(self) -> Sample:
        """A sample of the rows to train on; there are some."""
        return self.samples[0][0]

    @property
    def held_sample(self) -> Sample | None:
        """A sample of the rows that are held out."""
        return self.samples[1][0] if self.samples[1] else None

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

    The thread also fetches them, to a GPU say.
    """
    n_rows = rows or rows_a_piece(source)
    a_row = (source.n_bytes or 0) / source.n_rows if features else 0.0

    def read() -> Iterator[tuple[Block, Piece]]:
        for block in blocks:
            for piece in source.read(block, n_rows, features=features):
                source.bytes_read += round(a_row * len(piece.X))
                yield block, piece if fetch is None else fetch(piece)

    return ahead(read(), n_ahead)


def survey(
    source: RowSource,
    targets: Targets,
    split: Split,
    ranks: Ranks,
    *,
    scatter: str = "none",
    against: Any = None,
    features: bool = True,
) -> Survey:
    """Look at every row once; all ranks learn what there is.

    ``scatter`` is "full" or "diagonal", or "none" where moments are not asked for. ``against``
    encodes targets for PLS, which needs to know them. Without ``features`` only targets are read.
    """
    survey = Survey(targets)
    uniform, held = Reservoir(SAMPLE_ROWS), Reservoir(SAMPLE_ROWS)
    by_label: dict[Any, Reservoir] = {}
    for block, piece in pieces_of(source, ranks.share(source.blocks), features=features):
        check_features(source, block, piece)
        mass = mass_of(block, piece)
        targets.add(np.asarray(piece.y), mass, _where(block, piece))
        rows = _as_sample(block, piece, mass, split)
        out = split.held(block, piece)
        counts, out = (mass > 0) & ~out, (mass > 0) & out
        survey.is_weighted |= bool((mass != 1).any())
        survey.counts += [int(counts.sum()), int(out.sum())]
        survey.masses += [float(mass[counts].sum()), float(mass[out].sum())]
        survey.fold_masses += np.bincount(rows.fold[counts], mass[counts], minlength=FOLDS)
        n_before = survey.trained.get(block.start, 0)
        survey.trained[block.start] = n_before + int(counts.sum())
        held.add(rows, out)
        uniform.add(rows, counts)
        if isinstance(targets, LabelCounts):
            _offer_by_label(by_label, rows, counts)
        if scatter != "none":
            trained = rows if counts.all() else rows.taken(counts)
            for part in _moments(trained, scatter, against, weighted=piece.weight is not None):
                survey.add_moments(part)
    sampled_rows = [rows for each in (uniform, *by_label.values()) for rows in each.rows()]
    survey.samples = ([Sample.joined(sampled_rows)] if sampled_rows else [], held.rows())
    return _merged(ranks.gather(survey))


def _as_sample(block: Block, piece: Piece, mass: NDArray[np.float64], split: Split) -> Sample:
    """All rows of a piece, with their keys and folds."""
    first = block.start + piece.first
    number = np.arange(first, first + len(piece.X))
    fold, key = split.folds(block, piece), split.sample_keys(number)
    return Sample(piece.X, np.asarray(piece.y), mass, number, fold, key)


def _offer_by_label(
    by_label: dict[Any, Reservoir], rows: Sample, counts: NDArray[np.bool_]
) -> None:
    labels, codes = np.unique(rows.y, return_inverse=True)
    for code, label in enumerate(labels.tolist()):
        if label not in by_label:
            by_label[label] = Reservoir(SAMPLE_OF_A_GROUP)
        by_label[label].add(rows, counts & (codes == code))


def _merged(parts: Sequence[Survey]) -> Survey:
    """The facts of all ranks, the same on each."""
    total = Survey(parts[0].targets.merge([part.targets for part in parts]))
    for part in parts:
        total.counts += part.counts
        total.masses += part.masses
        total.fold_masses += part.fold_masses
        total.trained |= part.trained
        total.is_weighted |= part.is_weighted
        total.add_moments(part.moments)
    total.samples = ([], [])
    for number, samples in enumerate(total.samples):
        of_ranks = [rows for part in parts for rows in part.samples[number]]
        if of_ranks:
            samples.append(_resampled(Sample.joined(of_ranks), total.targets))
    if not total.samples[0]:
        raise DataError(
            "Some rows must count. None is left to train on: all weights are zero, or all rows are "
            "held out. Give more rows, or larger weights."
        )
    return total


def _resampled(rows: Sample, targets: Targets) -> Sample:
    """The sample of all, from the samples of parts."""
    groups = np.zeros(len(rows), dtype=np.int64)
    if isinstance(targets, LabelCounts):
        _, groups = np.unique(rows.y, return_inverse=True)
    return rows.taken(sampled(rows.key, groups)[0])


def _moments(rows: Sample, scatter: str, against: Any, *, weighted: bool) -> Iterator[Moments]:
    """Moments of pieces that stay in cache."""
    size = max(1, CACHED_NUMBERS // rows.X.shape[1])
    for start in range(0, len(rows), size):
        some = slice(start, start + size)
        X = as_tensor(rows.X[some]).double()
        Y = X[:, :0] if against is None else against(rows.y[some])
        weight = torch.from_numpy(rows.weight[some]) if weighted else None
        yield moments_of_chunk(X, Y, weight, diagonal=scatter == "diagonal")


def mass_of(block: Block, piece: Piece) -> NDArray[np.float64]:
    """What each row counts; raises DataError for weights that are none."""
    if piece.weight is None:
        return np.ones(len(piece.X))
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
