"""Rows as they came, after one pass over them; what training asks of them; weights of classes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from protopinv.errors import ConfigError, DataError
from protopinv.features import Distortion, Front, Moments, measure_moments
from protopinv.objective import Classes, Objective
from protopinv.rows import Block, MemoryRows, Piece, RowSource, weighted
from protopinv.train.ranks import ALONE, Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import AnyRows, Rows, joined_rows
from protopinv.train.streamed import (
    GPU_PIECE_NUMBERS,
    Counting,
    StreamedRows,
    View,
    behind_front,
    is_long_unsigned,
    piece_rows,
    rows_at,
)
from protopinv.train.survey import (
    SAMPLE_ROWS,
    Split,
    Survey,
    as_tensor,
    deal_folds,
    hold_out,
    pieces_of,
    survey,
)
from protopinv.train.targets import LabelCounts, Targets, few

# All rows are moved to a GPU, once for a training, if they take at most this share of its memory.
MOST_OF_FREE = 0.25

# Rows behind a front in float64, encoded targets, and what each row counts (None: once each).
Chunk = tuple[Float[Tensor, "n d"], Tensor, Float[Tensor, " n"] | None]


class Some(NamedTuple):
    """Rows as they came, encoded targets, and what each row counts (None: once each)."""

    X: Tensor
    targets: Tensor
    weight: Float[Tensor, " n"] | None


@dataclass(frozen=True)
class Data:
    """Rows of a source, which of them are held out, and what a survey has shown of all.

    ``targets`` has statistics of the targets, if they are known. Rows in memory are read once;
    others again for every pass, each rank its own.
    """

    source: RowSource
    objective: Objective
    survey: Survey
    split: Split
    targets: Targets | None = None
    ranks: Ranks = ALONE

    @property
    def n_training(self) -> int:
        """How many rows there are to train on."""
        return int(self.survey.counts[0])

    def placed(self, device: torch.device) -> "Data":
        """The data with all rows on a GPU, in the type they came in, where it has room for them."""
        if device.type != "cuda" or not self.source.in_memory:
            return self
        X, y, weight = self.source.load()
        if is_long_unsigned(X) or X.nbytes > MOST_OF_FREE * torch.cuda.mem_get_info(device)[0]:
            return self
        moved = torch.from_numpy(np.empty(0, X.dtype)).new_empty(X.shape, device=device)
        size = max(1, GPU_PIECE_NUMBERS // X.shape[1])
        for start in range(0, len(X), size):
            moved[start : start + size] = as_tensor(X[start : start + size])
        return replace(self, source=MemoryRows(moved, y, weight))

    def some(self, device: torch.device) -> Some:
        """A uniform sample of the rows to train on."""
        some = self.survey.sample.lowest(SAMPLE_ROWS)
        targets = torch.from_numpy(np.ascontiguousarray(self.objective.encode(some.y))).to(device)
        weight = some.weight if self.survey.is_weighted else None
        return Some(as_tensor(some.X).to(device), targets, self._relative(weight, device))

    def moments(
        self, front: Front | None, against: bool, device: torch.device, *, diagonal: bool
    ) -> Moments:
        """Moments from the survey or, behind a ``front`` it did not know, from another pass."""
        if front is None and self.survey.moments is not None:
            return self.survey.moments
        chunks = (
            (X, self.objective.for_projection(y) if against else X[:, :0], weight)
            for X, y, weight in self._chunks(front, device)
        )
        if self.ranks.size == 1:
            return measure_moments(chunks, diagonal=diagonal)
        some = next(chunks, None)  # a rank may have no rows
        mine = None if some is None else measure_moments(chain([some], chunks), diagonal=diagonal)
        # a GPU of another rank is not ours
        parts = self.ranks.gather(None if mine is None else mine.to("cpu"))
        return reduce(Moments.merge, [part.to(device) for part in parts if part is not None])

    def _chunks(self, front: Front | None, device: torch.device) -> Iterator[Chunk]:
        """This rank's training rows behind the front, with targets and weights."""
        source = self.source
        width = source.n_features if front is None else front.n_outputs
        size = piece_rows(width + self.objective.n_outputs, front, device)
        for block, piece in pieces_of(source, self.ranks.share(source.blocks)):
            numbers = self._trained(block, piece)
            for rows in np.array_split(numbers, -(-len(numbers) // size)) if len(numbers) else ():
                X = rows_at(piece.X, rows)
                X = X if isinstance(X, Tensor) else as_tensor(X).to(device)
                y = torch.from_numpy(self.objective.encode(np.asarray(piece.y)[rows])).to(device)
                weight = None if piece.weight is None else piece.weight[rows]
                yield behind_front(X, front), y, self._relative(weight, device)

    def _trained(self, block: Block, piece: Piece) -> NDArray[np.int64]:
        """The places of the rows of a piece to train on."""
        trained = ~self.split.held(block, piece)
        return np.flatnonzero(trained if piece.weight is None else trained & (piece.weight > 0))

    def _relative(
        self, weight: NDArray[np.float64] | None, device: torch.device
    ) -> Float[Tensor, " n"] | None:
        """Weights with a mean of about one, so that no sum of them overflows or vanishes."""
        if weight is None:
            return None
        mean = self.survey.masses.sum() / self.survey.counts.sum()
        return torch.from_numpy(weight / mean).to(device)

    def rows(
        self, view: View, distortions: Sequence[Distortion] = (), n_full: int = 0
    ) -> tuple[AnyRows, Rows, Rows | None]:
        """The training rows as the network sees them, then a copy of all for each distortion.

        And those of them from which banks start: some, and some of each class. With ``n_full`` they
        are for so many members that see all rows and one for each fold; the last are those by which
        folds are judged, None where some fold would have no rows.
        """
        masses = self.survey.fold_masses
        crossed = n_full > 0 and bool((masses > 0).all())
        rows = self._streamed(view, part=0)
        if crossed:
            counting = replace(rows.counting, n_full=n_full, fold_mass=tuple(masses.tolist()))
            rows = replace(rows, counting=counting)
        sample, seen = self.survey.sample, self._resident(rows)
        if not isinstance(seen, Rows) or not self.source.in_memory:
            judged = rows.of_sample(sample.lowest(SAMPLE_ROWS)) if crossed else None
            return seen, rows.of_sample(sample), judged
        start = judged = seen
        if len(sample) < len(seen):
            numbers = self._trained(*next(pieces_of(self.source, self.source.blocks)))
            places = np.searchsorted(numbers, sample.number)
            start = seen.taken(torch.from_numpy(places).to(seen.X.device))
        if distortions:
            copies = [replace(rows, view=replace(view, distortion=d)) for d in distortions]
            seen = joined_rows([seen, *(_unjudged(copy.resident()) for copy in copies)])
        return seen, start, judged if crossed else None

    def held_rows(self, view: View) -> tuple[AnyRows, Rows] | None:
        """The rows to validate on, and those by which a network is calibrated: all, or a sample."""
        sample = self.survey.samples[1]
        if sample is None:
            return None
        held = self._streamed(view, part=1)
        rows = self._resident(held)
        if isinstance(rows, Rows) and self.source.in_memory:
            return rows, rows
        return rows, held.of_sample(sample)

    def masses(self) -> Float[Tensor, " g"] | None:
        """What the training rows of every class count; held-out rows are as many of each."""
        if self.targets is None:
            return None
        shares = torch.ones(1, dtype=torch.float64)
        if isinstance(self.objective, Classes) and isinstance(self.targets, LabelCounts):
            shares = torch.from_numpy(self.targets.masses_of(self.objective.labels))
        return shares / shares.sum() * float(self.survey.masses[0])

    def _streamed(self, view: View, *, part: int) -> StreamedRows:
        facts = self.survey
        n, mass = int(facts.counts[part]), float(facts.masses[part])
        counting = Counting(n, mass / max(1, n) if facts.is_weighted else None)
        return StreamedRows(
            self.source, view, self.split, self.ranks, counting, facts.trained, held_out=part == 1
        )

    def _resident(self, rows: StreamedRows) -> AnyRows:
        """Rows to walk again and again: in memory, where this rank's part has room there."""
        if self.source.in_memory:
            return rows.resident()
        view, room = rows.view, self.source.memory
        size = rows.n_total / self.ranks.size * view.features.n_components * view.dtype.itemsize
        if view.device.type == "cuda":
            room = int(0.5 * torch.cuda.mem_get_info(view.device)[0]) if room else 0
        # all or none: ranks that keep their rows exchange how many these are
        (too_large,) = self.ranks.agree(size > room)
        return rows if too_large else rows.resident()


def _unjudged(copy: Rows) -> Rows:
    """Copies of images, by which no fold is judged."""
    return copy if copy.held is None else replace(copy, held=torch.zeros_like(copy.held))


def data_in_memory(
    source: RowSource,
    objective: Objective,
    seed: int,
    *,
    targets: Targets | None = None,
    share: float = 0.0,
    folds: bool = False,
    held_out: NDArray[np.integer[Any]] | None = None,
) -> Data:
    """Data of rows in memory, with a ``share`` of them or the rows ``held_out`` to validate on.

    Held-out rows and ``folds`` are dealt out class by class.
    """
    y = np.asarray(source.load()[1])
    groups = objective.groups(torch.from_numpy(objective.encode(y))).numpy()
    held = None
    if held_out is not None:
        held = np.isin(np.arange(len(y)), held_out)
    elif share:
        held = hold_out(groups, share, seed)
    fold = deal_folds(groups, FOLDS, seed) if folds else np.full(len(y), -1)
    split = Split(seed, share if held_out is None else len(held_out) / len(y), held, fold)
    facts = survey(source, None, split, ALONE, by_label=isinstance(objective, Classes))
    return Data(source, objective, facts, split, targets)


def data_of_arrays(
    X: NDArray[Any],
    y: NDArray[Any],
    objective: Objective,
    weight: NDArray[np.float64] | None = None,
    **options: Any,
) -> Data:
    """Data of a matrix, with targets as a user knows them; options as in ``data_in_memory``."""
    seed = options.pop("seed", 0)
    return data_in_memory(MemoryRows(X, y, weight), objective, seed, **options)


class ClassWeights(NamedTuple):
    """What rows of each label count beside their own weight."""

    labels: NDArray[Any]
    factors: NDArray[np.float64]

    def of(self, objective: Objective) -> Tensor:
        """The factor of each class of an objective; 1 for a class without rows."""
        factors = torch.ones(objective.n_groups, dtype=torch.float64)
        if isinstance(objective, Classes):
            there = np.isin(self.labels, objective.labels)
            places = np.searchsorted(objective.labels, self.labels[there])
            factors[torch.from_numpy(places)] = torch.from_numpy(self.factors[there])
        return factors


def with_class_weight(rows: RowSource, class_weight: Any) -> tuple[RowSource, ClassWeights | None]:
    """Rows whose weights are multiplied by those of their classes, and these."""
    if class_weight is None:
        return rows, None
    check_class_weight(class_weight, is_column=rows.is_column)
    counts = LabelCounts()
    for block, piece in pieces_of(rows, rows.blocks, features=False):
        mass = np.ones(len(piece.y)) if piece.weight is None else piece.weight
        counts.add(np.asarray(piece.y), mass, "y" if rows.in_memory else block.file)
    factors = class_factors(class_weight, counts.labels, counts.mass)
    weights = ClassWeights(counts.labels, factors)
    return weighted(rows, *weights), weights


def class_factors(
    class_weight: Any, labels: NDArray[Any], mass: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What rows of each class count beside their own weights, which have this ``mass``."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        even: NDArray[np.float64] = mass.sum() / (len(mass) * mass)
        return even
    check_class_weight(class_weight)
    names = labels.tolist()
    for label, number in class_weight.items():
        if label not in names:
            raise DataError(
                f"class_weight may name classes of y only: {few(names)}. Got {label!r}. Check "
                "its name and type."
            )
        counts = isinstance(number, Real) and not isinstance(number, bool)
        if not (counts and 0 <= number < np.inf):
            raise ConfigError(
                f"class_weight must be numbers, 0 or more. Class {label!r} has {number!r}. "
                "Change it."
            )
    return np.array([float(class_weight.get(label, 1.0)) for label in names])


def check_class_weight(class_weight: Any, *, is_column: bool = True) -> None:
    """Raise ConfigError for what is neither "balanced" nor a dict, or for several labels a row."""
    balanced = isinstance(class_weight, str) and class_weight == "balanced"
    if not balanced and not isinstance(class_weight, dict):
        raise ConfigError(
            "class_weight must be None, 'balanced' or a dict of numbers by class. Got "
            f"{class_weight!r}. Change it, or leave it at None."
        )
    if not is_column:
        raise ConfigError(
            "class_weight goes with one class a row. There are several labels a row. Use "
            "sample_weight, or a column of weights."
        )
