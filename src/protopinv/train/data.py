"""Rows of a source after a survey, as the network sees them: read once, or again for every pass."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.errors import ConfigError
from protopinv.objective import Classes, Objective
from protopinv.rows import Block, DerivedRows, MemoryRows, Piece, RowSource
from protopinv.rows.cache import AHEAD
from protopinv.train.machine import ALONE, Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import (
    CPU_CHUNK_MOST,
    GPU_PIECE_NUMBERS,
    AnyRows,
    Rows,
    View,
    as_tensor,
    is_long_unsigned,
    joined_rows,
)
from protopinv.train.survey import (
    SAMPLE_ROWS,
    Sample,
    Split,
    Survey,
    deal_folds,
    hold_out,
    pieces_of,
    rows_a_piece,
    survey,
)
from protopinv.train.targets import (
    ClassWeights,
    LabelCounts,
    Targets,
    class_factors,
)

# All rows are moved to a GPU, once for a training, if they take at most this share of its memory.
MOST_OF_FREE = 0.25
# Mini-batches are drawn from so many rows at a time, which come from blocks in a random order.
WINDOW_ROWS = 2**17
# A GPU works on so many rows at a time while others come, this many in a copy.
GPU_CHUNK = 2**18
GPU_PIECE_ROWS = 2**17


@dataclass(frozen=True)
class Data:
    """Rows of a source, which of them are held out, and what a survey has shown of all.

    Rows in memory are read once; others again for every pass, each rank its own.
    """

    source: RowSource
    objective: Objective
    survey: Survey
    split: Split
    ranks: Ranks = ALONE

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
        held, share = np.isin(np.arange(len(y)), held_out), len(held_out) / len(y)
    elif share:
        held = hold_out(groups, share, seed)
    fold = deal_folds(groups, FOLDS, seed) if folds else np.full(len(y), -1)
    split = Split(seed, share, held, fold)
    facts = survey(source, None, split, ALONE, by_label=isinstance(objective, Classes))
    facts.targets = targets
    return Data(source, objective, facts, split)


def with_class_weight(rows: RowSource, class_weight: Any) -> tuple[RowSource, ClassWeights | None]:
    """Rows whose weights are multiplied by those of their classes, and these, if there are any."""
    if class_weight is None:
        return rows, None
    if not rows.is_column:
        raise ConfigError(
            "class_weight goes with one class a row. There are several labels a row. Use "
            "sample_weight, or a column of weights."
        )
    counts = LabelCounts()
    for block, piece in pieces_of(rows, rows.blocks, features=False):
        counts.add(np.asarray(piece.y), piece.mass, "y" if rows.in_memory else block.file)
    labels, factors = counts.labels, class_factors(class_weight, counts.labels, counts.mass)
    facts = {"class_weight": dict(zip(map(str, labels.tolist()), factors.tolist(), strict=True))}

    def changed(_: Block, piece: Piece, *, features: bool) -> Piece:  # noqa: ARG001
        # labels without weight are not among them, and count nothing whatever their factor is
        code = np.searchsorted(labels, np.asarray(piece.y)).clip(max=len(factors) - 1)
        return piece._replace(weight=factors[code] * piece.mass)

    return DerivedRows(rows, changed, lambda: facts), ClassWeights(labels, factors)


@dataclass(frozen=True)
class StreamedRows(AnyRows):
    """The training rows of a source, or those held out, as the network sees them.

    Every pass reads them again: this rank's blocks, in order or for mini-batches in a random one.
    With ``n_full`` they are for so many members that see all rows and one for each fold. Without
    ``judges`` a pass does not look at what members leave out; ``by_held`` rows count as these
    members count them.
    """

    data: Data
    view: View
    held_out: bool = False
    n_full: int = 0
    judges: bool = True
    by_held: bool = False

    @property
    def n_total(self) -> int:
        """Rows on all ranks."""
        return int(self.data.survey.counts[int(self.held_out)])

    @property
    def bytes_read(self) -> int:
        """By this rank so far, in all passes."""
        return self.data.source.bytes_read

    def without_held(self) -> "StreamedRows":
        """For a pass that need not judge what members leave out."""
        return replace(self, judges=False)

    def by_holders(self) -> "StreamedRows":
        """Rows that count as the members that leave them out count them."""
        return replace(self, by_held=True)

    def at_once(self) -> Rows:
        """All rows of a source in memory."""
        return joined_rows([self._seen(*each) for each in self._pieces(self.data.source.blocks)])

    def resident(self) -> AnyRows:
        """Rows to walk again and again: in memory, where this rank's part has room there."""
        source, ranks, view = self.data.source, self.data.ranks, self.view
        if source.in_memory:
            return self.at_once()
        size = self.n_total / ranks.size * view.width * view.dtype.itemsize
        room = source.memory
        if view.device.type == "cuda":
            room = int(0.5 * torch.cuda.mem_get_info(view.device)[0]) if room else 0
        # all or none: ranks that keep their rows exchange how many these are
        (too_large,) = ranks.agree(size > room)
        if too_large:
            return self
        rows = joined_rows(list(self.chunks(CPU_CHUNK_MOST)))
        if ranks.size == 1:
            return rows
        before = sum(ranks.gather(len(rows))[: ranks.number])
        places = torch.arange(before, before + len(rows), device=rows.X.device)
        return replace(rows, total=self.n_total, places=places)

    def judged(self, rows: AnyRows) -> Rows:
        """Of all these rows those by which a network is calibrated: all in memory, or a sample."""
        if self.data.source.in_memory and isinstance(rows, Rows):
            return rows
        sample: Sample = self.data.survey.samples[int(self.held_out)]
        return self.of_sample(sample.lowest(SAMPLE_ROWS))

    def first_rows(self, rows: AnyRows) -> Rows:
        """Of all these rows those from which banks start: some, and some of each class."""
        sample = self.data.survey.sample
        if isinstance(rows, Rows) and self.data.source.in_memory and len(sample) == len(rows):
            return rows
        return self.of_sample(sample)

    def of_sample(self, sample: Sample) -> Rows:
        """Some rows that were sampled, as if they were all."""
        return self._counted(
            self.view.inputs(sample.X), self.view.targets(sample.y), sample.weight, sample.fold
        )

    def chunks(self, size: int) -> Iterator[Rows]:
        """This rank's rows, so many at a time; an empty chunk if there are none.

        Chunks begin at multiples of ``size``, by the number of a row among all: so they are the
        same for any number of ranks, and for rows in memory.
        """
        if self.view.device.type == "cuda":
            size = min(size, GPU_CHUNK)  # so that the first can be worked on while others come
        n, ranks, is_empty = self.data.source.n_rows, self.data.ranks, True
        # an even share, up to a chunk
        low, high = (
            min(n, round(n * number / ranks.size / size) * size)
            for number in (ranks.number, ranks.number + 1)
        )
        high = n if ranks.number == ranks.size - 1 else high
        blocks = self.data.source.blocks
        inside = [b for b in blocks if b.start < high and b.start + b.n_rows > low]
        for parts in _regrouped(self._pieces(inside, GPU_PIECE_ROWS), low, high, size):
            rows = joined_rows([self._seen(*part) for part in parts])
            if len(rows):
                is_empty = False
                yield rows
        if is_empty:
            yield self._nothing()

    def _shuffled(self, size: int, generator: Generator, skip: int) -> Iterator[Rows]:
        """Blocks come in a random order, and rows are shuffled within a window of them.

        Which rows make a batch does not depend on who reads them: each rank gives those of its own
        blocks. What only the first ``skip`` batches need is not read.
        """
        blocks, bounds = self.data.source.blocks, self._bounds(size)
        order = torch.randperm(len(blocks), generator=generator, device=generator.device).tolist()
        step = max(1, WINDOW_ROWS // size)
        starts = [*bounds[:-1:step], self.n_total]
        windows = self._windows([blocks[number] for number in order], starts[skip // step :])
        for number, (low, high) in enumerate(pairwise(starts)):
            shuffled = torch.randperm(high - low, generator=generator, device=generator.device)
            if number >= skip // step:
                inside = bounds[max(skip, number * step) : (number + 1) * step + 1]
                yield from next(windows).dealt(shuffled, [bound - low for bound in inside])

    def _windows(self, blocks: Sequence[Block], starts: Sequence[int]) -> Iterator[Rows]:
        """For each stretch of the stream of rows this rank's part of it."""
        placed = self._placed(blocks, starts[0])
        pending: list[tuple[int, Rows]] = []
        for low, high in pairwise(starts):
            while not pending or pending[-1][0] + len(pending[-1][1]) < high:
                if (part := next(placed, None)) is None:
                    break
                pending.append(part)
            inside = list(_between(pending, low, high))
            pending = list(_between(pending, high, self.n_total))
            rows = joined_rows([part for _, part in inside]) if inside else self._nothing()
            if self.data.ranks.size > 1:
                places = [torch.arange(place, place + len(part)) - low for place, part in inside]
                none = torch.zeros(0, dtype=torch.long)
                rows = replace(rows, total=high - low, places=torch.cat([none, *places]))
            yield rows

    def _placed(self, blocks: Sequence[Block], first: int) -> Iterator[tuple[int, Rows]]:
        """This rank's rows of a stream of blocks, and the place of the first of each piece in it.

        Blocks that end before the place ``first`` are not read.
        """
        ranks, source = self.data.ranks, self.data.source
        trained = [replace(b, n_rows=self.data.survey.trained[b.start]) for b in blocks]
        begins = accumulate((block.n_rows for block in trained), initial=0)
        place = {block.start: begin for block, begin in zip(trained, begins, strict=False)}
        own = {b.start for b in ranks.share(trained) if place[b.start] + b.n_rows > first}
        window = WINDOW_ROWS // ranks.size // rows_a_piece(source)
        mine = [block for block in blocks if block.start in own]
        for block, piece in self._pieces(mine, n_ahead=max(AHEAD, window)):
            rows = self._seen(block, piece)
            yield place[block.start], rows
            place[block.start] += len(rows)

    def _pieces(
        self, blocks: Sequence[Block], rows: int | None = None, n_ahead: int = AHEAD
    ) -> Iterator[tuple[Block, Piece]]:
        """Pieces of some blocks; on a GPU already, ``rows`` in a copy."""
        source = self.data.source
        if source.in_memory or self.view.device.type == "cpu":
            return pieces_of(source, blocks, n_ahead=n_ahead)
        return pieces_of(source, blocks, n_ahead=n_ahead, rows=rows, fetch=self.view.fetched)

    def _seen(self, block: Block, piece: Piece) -> Rows:
        """Those rows of a piece that are asked for, as the network sees them."""
        for part in (piece.X, piece.y):
            if isinstance(part, Tensor) and not self.data.source.in_memory:
                # it came by another stream, which may reuse its memory only after this
                part.record_stream(torch.cuda.current_stream(part.device))
        split = self.data.split
        chosen = split.side(block, piece, held_out=self.held_out)
        pick = slice(None) if chosen is None else chosen
        fold = split.folds(block, piece)[pick] if self.n_full else None
        X, y = self.view.inputs(piece.X, chosen), self.view.targets(piece.y, chosen)
        return self._counted(X, y, piece.mass[pick], fold)

    def _counted(
        self,
        X: Tensor,
        y: Tensor,
        mass: NDArray[np.float64],
        fold: NDArray[np.int64] | None,
    ) -> Rows:
        """Rows with what they count, for every member where these leave folds out."""
        facts, n, device = self.data.survey, self.n_total, self.view.device
        mean = float(facts.masses[int(self.held_out)]) / max(1, n) if facts.is_weighted else 1.0
        weight = torch.from_numpy(mass / mean)[None] if facts.is_weighted or self.n_full else None
        held = of_fold = None
        if self.n_full and weight is not None and fold is not None:
            of_fold, masses = torch.from_numpy(fold), torch.from_numpy(facts.fold_masses / mean)
            weight, held = fold_weights(weight, of_fold, masses, self.n_full, n)
            held = held.to(self.view.exact)
        if weight is not None:
            weight = weight.to(self.view.exact)
        if self.by_held:
            rows = Rows(X, y, None if held is None else held * n)
        else:
            rows = Rows(X, y, weight, held if self.judges else None, of_fold)
        return rows if device.type == "cpu" else rows.each(lambda tensor: tensor.to(device))

    def _nothing(self) -> Rows:
        """No rows, for a rank that has none."""
        block = self.data.source.blocks[0]
        return self._seen(block, next(self.data.source.read(block, 1))).taken(slice(0, 0))


def fold_weights(
    weight: Float[Tensor, "1 n"],
    fold: Int[Tensor, " n"],
    masses: Float[Tensor, " folds"],
    n_full: int,
    n_total: int,
) -> tuple[Float[Tensor, "m n"], Float[Tensor, "m n"]]:
    """What rows count to train on, and to judge the members that leave them out.

    The first ``n_full`` members see all rows, and one for each fold leaves that out. Weights have a
    mean of one over ``n_total`` rows; ``masses`` are their sums over each fold.
    """
    left_out, masses = fold == torch.arange(len(masses))[:, None], masses[:, None]
    full = weight.expand(n_full, -1)
    seen = weight * ~left_out * (n_total / (n_total - masses))
    return torch.cat([full, seen]), torch.cat([0 * full, weight * left_out / masses])


def _regrouped(
    pieces: Iterator[tuple[Block, Piece]], low: int, high: int, size: int
) -> Iterator[list[tuple[Block, Piece]]]:
    """Consecutive rows from ``low`` to ``high``, cut at multiples of ``size``."""
    waiting: list[tuple[Block, Piece]] = []
    for block, piece in pieces:
        begin = block.start + piece.first
        at, end = max(low, begin), min(high, begin + len(piece.X))
        while at < end:
            border = min(end, (at // size + 1) * size)
            waiting.append((block, piece.cut(at - begin, border - begin)))
            at = border
            if border % size == 0:
                yield waiting
                waiting = []
    if waiting:
        yield waiting


def _between(parts: Sequence[tuple[int, Rows]], low: int, high: int) -> Iterator[tuple[int, Rows]]:
    """What of some parts lies between two places, each with the place where it begins."""
    for start, rows in parts:
        first, last = (min(max(place - start, 0), len(rows)) for place in (low, high))
        if first < last:
            yield start + first, rows.taken(slice(first, last))
