"""Rows that are read again for every pass over them, as the network sees them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.rows import Block, Piece, RowSource
from protopinv.rows.cache import AHEAD
from protopinv.train.ranks import Ranks, owners
from protopinv.train.rows import CPU_CHUNK_MOST, Rows
from protopinv.train.survey import Sample, Split, pieces_of, rows_a_piece
from protopinv.train.view import View

# Mini-batches are drawn from so many rows at a time, which come from blocks in a random order.
WINDOW_ROWS = 2**17
# A GPU works on so many rows at a time while others come, this many in a copy.
GPU_CHUNK = 2**18
GPU_PIECE_ROWS = 2**17


@dataclass(frozen=True)
class Counting:
    """What rows count: once each, by their weights, and by the members that leave them out.

    ``mean`` is that of the weights of all rows; None counts each once. With folds ``n_full``
    members see all rows, and ``fold_mass`` is what the rows of each fold count together.
    """

    n: int
    mean: float | None = None
    n_full: int = 0
    fold_mass: tuple[float, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether any row counts other than once."""
        return self.mean is not None or len(self.fold_mass) > 0

    def weights(
        self, mass: NDArray[np.float64], fold: NDArray[np.int64], dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """What rows count to train on, and to judge those who leave them out."""
        if not self.is_needed:
            return None, None
        weight = torch.from_numpy(mass / (self.mean or 1.0))[None]
        if not self.fold_mass:
            return weight.to(dtype), None
        # in units in which all rows count ``n`` together
        folds = torch.tensor(self.fold_mass, dtype=torch.float64)[:, None] / (self.mean or 1.0)
        left_out = torch.from_numpy(fold) == torch.arange(len(folds))[:, None]
        seen = weight * ~left_out * (self.n / (self.n - folds))
        held = weight * left_out / folds
        full = weight.expand(self.n_full, -1)
        nothing = torch.zeros_like(full)
        return torch.cat([full, seen]).to(dtype), torch.cat([nothing, held]).to(dtype)


@dataclass(frozen=True)
class StreamedRows:
    """The rows of a source that are trained on, or those that are held out.

    Every pass reads them again: this rank's blocks, in order or for mini-batches in a random one.
    """

    source: RowSource
    view: View
    split: Split
    ranks: Ranks
    counting: Counting
    trained: dict[int, int]
    held_out: bool = False
    judges: bool = True

    def batches_on_gpu(self, size: int | None) -> bool:
        """Mini-batches do, which are taken from a window of rows; all rows do not."""
        few = size is not None and size < self.n_total
        return few and self.view.device.type == "cuda" and self.ranks.size == 1

    @property
    def bytes_read(self) -> int:
        """By this rank so far, in all passes."""
        return self.source.bytes_read

    @property
    def n_total(self) -> int:
        """Rows on all ranks."""
        return self.counting.n

    @property
    def holds(self) -> list[bool]:
        """Which members leave rows out."""
        n_folds = len(self.counting.fold_mass)
        return [False] * self.counting.n_full + [True] * n_folds if n_folds else [False]

    @property
    def held(self) -> bool | None:
        """Whether members leave rows out; None if not."""
        return True if self.counting.fold_mass else None

    def without_held(self) -> "StreamedRows":
        """The same for a pass that need not judge what members leave out."""
        return replace(self, judges=False)

    def by_holders(self) -> "StreamedRows":
        """The same, where each row counts as the members that leave it out count it."""
        return _ByHolders(**vars(self))

    def crossed(self, n_full: int, fold_masses: Sequence[float]) -> "StreamedRows":
        """The same for so many members that see all rows, and one for each fold."""
        mean = self.counting.mean
        counting = Counting(self.counting.n, mean, n_full, tuple(fold_masses))
        return replace(self, counting=counting)

    def chunks(self, size: int) -> Iterator[Rows]:
        """This rank's rows, so many at a time; an empty chunk if there are none.

        Chunks begin at multiples of ``size``, by the number of a row among all: so they are the
        same for any number of ranks, and for rows in memory.
        """
        if self.view.device.type == "cuda":
            size = min(size, GPU_CHUNK)  # so that the first can be worked on while others come
        low, high = self._range(size)
        empty = True
        for parts in regrouped(self._pieces(low, high), low, high, size):
            rows = self._rows(parts)
            if len(rows):
                empty = False
                yield rows
        if empty:
            yield self._nothing()

    def _range(self, size: int) -> tuple[int, int]:
        """The rows of this rank, by number: an even share, up to a chunk."""
        n, ranks = self.source.n_rows, self.ranks
        low, high = (
            min(n, round(n * number / ranks.size / size) * size)
            for number in (ranks.number, ranks.number + 1)
        )
        return low, n if ranks.number == ranks.size - 1 else high

    def _pieces(self, low: int, high: int) -> Iterator[tuple[Block, Piece]]:
        inside = [b for b in self.source.blocks if b.start < high and b.start + b.n_rows > low]
        if self.view.device.type == "cpu":
            return pieces_of(self.source, inside)
        return pieces_of(self.source, inside, rows=GPU_PIECE_ROWS, fetch=self.view.fetched)

    def n_batches(self, size: int | None) -> int:
        """How many batches of at most this size there are."""
        return 1 if size is None else -(-self.n_total // size)

    def batches(
        self, size: int | None, generator: Generator, *, skip: int = 0
    ) -> "Iterator[Rows | StreamedRows]":
        """All rows at once for ``None``, else every row once in mini-batches.

        Blocks come in a random order, and rows are shuffled within a window of them. Which rows
        make a batch does not depend on who reads them: each rank gives those of its own blocks.
        The first ``skip`` batches are left out, and what only they need is not read.
        """
        if size is None or size >= self.n_total:
            yield self
            return
        blocks = self.source.blocks
        order = torch.randperm(len(blocks), generator=generator, device=generator.device).tolist()
        bounds = _even(self.n_total, self.n_batches(size))
        step = max(1, WINDOW_ROWS // size)
        starts = [*bounds[:-1:step], self.n_total]
        windows = self._windows([blocks[number] for number in order], starts[skip // step :])
        for number in range(len(starts) - 1):
            low, high = starts[number], starts[number + 1]
            shuffled = torch.randperm(high - low, generator=generator, device=generator.device)
            if number < skip // step:
                continue
            places, rows = next(windows)
            here = torch.full((high - low,), -1, dtype=torch.long)
            here[places - low] = torch.arange(len(places))
            here = here.to(shuffled.device)
            inside = bounds[max(skip, number * step) : (number + 1) * step + 1]
            for first, last in pairwise(inside):
                found = here[shuffled[first - low : last - low]]
                # to look for rows of others would make a GPU's host wait
                mine = found if self.ranks.size == 1 else found[found >= 0]
                chosen = mine.to(rows.X.device)
                yield replace(rows.taken(chosen), total=last - first)

    def _windows(
        self, blocks: Sequence[Block], starts: Sequence[int]
    ) -> Iterator[tuple[Tensor, Rows]]:
        """For each stretch of the stream of rows this rank's part of it, and their places in it."""
        counts = [self.trained.get(block.start, 0) for block in blocks]
        begins = np.cumsum([0, *counts]).tolist()
        owner = owners(
            [replace(b, n_rows=n) for b, n in zip(blocks, counts, strict=True)], self.ranks.size
        )
        mine = [
            (block, begin)
            for block, begin, n, whose in zip(blocks, begins, counts, owner, strict=False)
            if whose == self.ranks.number and begin + n > starts[0]
        ]
        place = {block.start: begin for block, begin in mine}
        window = WINDOW_ROWS // self.ranks.size // rows_a_piece(self.source)
        fetch = self.view.fetched if self.view.device.type == "cuda" else None
        blocks_of_mine = [block for block, _ in mine]
        read = pieces_of(self.source, blocks_of_mine, n_ahead=max(AHEAD, window), fetch=fetch)
        pending: list[tuple[int, Rows]] = []
        begins_left = [begin for _, begin in mine]
        upto = 0  # rows before this place have been read, as far as they are ours
        exhausted = not mine
        for low, high in pairwise(starts):
            while not exhausted and upto < high:
                found = next(read, None)
                if found is None:
                    exhausted = True
                    break
                block, piece = found
                rows = self._rows([(block, piece)])
                pending.append((place[block.start], rows))
                place[block.start] += len(rows)
                upto = place[block.start]
                if piece.first + len(piece.X) == block.n_rows:
                    begins_left.pop(0)
                    upto = begins_left[0] if begins_left else self.n_total
            pending, taken = _split(pending, low, high)
            if taken:
                yield _together(taken)
            else:
                yield torch.zeros(0, dtype=torch.long), self._nothing()

    def _rows(self, parts: Sequence[tuple[Block, Piece]]) -> Rows:
        """Those rows of some pieces that are asked for, as the network sees them."""
        Xs, ys, masses, folds = [], [], [], []
        for block, piece in parts:
            for part in (piece.X, piece.y):
                if isinstance(part, Tensor):
                    # it was fetched on another stream, which may reuse its memory only after this
                    part.record_stream(torch.cuda.current_stream(part.device))
            kept: Any = slice(None)
            if self.split.share > 0:
                out = self.split.held(block, piece)
                kept = out if self.held_out else ~out
            if piece.weight is not None and not piece.weight.all():
                there = piece.weight > 0
                kept = there if isinstance(kept, slice) else kept & there
            Xs.append(_taken(piece.X, kept))
            ys.append(_taken(piece.y, kept))
            if self.counting.is_needed:
                mass = np.ones(len(piece.X)) if piece.weight is None else piece.weight
                masses.append(mass[kept])
            if self.counting.fold_mass:
                folds.append(self.split.folds(block, piece)[kept])
        fold = _whole(folds) if folds else np.zeros(0, dtype=np.int64)
        mass = _whole(masses) if masses else np.zeros(0)
        return self._seen(_whole(Xs), _whole(ys), mass, fold)

    def _seen(
        self,
        X: NDArray[Any],
        y: NDArray[Any],
        mass: NDArray[np.float64],
        fold: NDArray[np.int64],
    ) -> Rows:
        device, exact = self.view.device, self.view.exact
        weight, held = self.counting.weights(mass, fold, exact)
        return Rows(
            self.view.inputs(X),
            self.view.targets(y),
            None if weight is None else weight.to(device),
            None if held is None or not self.judges else held.to(device),
            torch.from_numpy(fold).to(device) if self.counting.fold_mass else None,
        )

    def of_sample(self, sample: Sample) -> Rows:
        """Some rows that were kept, as if they were all."""
        return self._seen(sample.X, sample.y, sample.weight, sample.fold)

    def resident(self) -> Rows:
        """This rank's rows, read once and kept."""
        whole = _joined(list(self.chunks(CPU_CHUNK_MOST)))
        if self.ranks.size == 1:
            return whole
        counts = self.ranks.gather(len(whole))
        before = sum(counts[: self.ranks.number])
        places = torch.arange(before, before + len(whole), device=whole.X.device)
        return replace(whole, total=self.n_total, places=places)

    def _nothing(self) -> Rows:
        width = self.source.n_features
        y = np.asarray(next(self.source.read(self.source.blocks[0], 1)).y)[:0]
        fold = np.zeros(0, dtype=np.int64)
        return self._seen(np.empty((0, width)), y, np.ones(0), fold)


class _ByHolders(StreamedRows):
    """Rows that count as the members that leave them out count them."""

    def _seen(self, *given: Any) -> Rows:
        rows = super()._seen(*given)
        held = rows.X.new_zeros(1, len(rows)) if rows.held is None else rows.held
        return Rows(rows.X, rows.y, held * self.n_total)


def regrouped(
    pieces: Iterator[tuple[Block, Piece]], low: int, high: int, size: int
) -> Iterator[list[tuple[Block, Piece]]]:
    """Consecutive rows from ``low`` to ``high``, cut at multiples of ``size``."""
    waiting: list[tuple[Block, Piece]] = []
    for block, piece in pieces:
        begin = block.start + piece.first
        at, end = max(low, begin), min(high, begin + len(piece.X))
        while at < end:
            border = min(end, (at // size + 1) * size)
            waiting.append((block, _cut(piece, at - begin, border - begin)))
            at = border
            if border % size == 0:
                yield waiting
                waiting = []
    if waiting:
        yield waiting


def _taken(part: Any, kept: Any) -> Any:
    """Some rows of an array or of a tensor on a GPU."""
    if not isinstance(part, Tensor):
        return np.asarray(part)[kept]
    return part if isinstance(kept, slice) else part[torch.from_numpy(kept).to(part.device)]


def _whole(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) else np.concatenate(parts)


def _cut(piece: Piece, first: int, last: int) -> Piece:
    X, y, weight, start = piece
    return Piece(
        X[first:last],
        None if y is None else y[first:last],
        None if weight is None else weight[first:last],
        start + first,
    )


def _even(n: int, parts: int) -> list[int]:
    """Bounds of parts that differ by one row at most, as ``tensor_split`` makes them."""
    size, more = divmod(n, parts)
    sizes = [*([size + 1] * more), *([size] * (parts - more))]
    return list(accumulate(sizes, initial=0))


def _split(
    pending: list[tuple[int, Rows]], low: int, high: int
) -> tuple[list[tuple[int, Rows]], list[tuple[int, Rows]]]:
    """What comes later, and what lies in the window."""
    later, taken = [], []
    for start, whole in pending:
        begin = max(start, low)  # rows before that are of batches that were left out
        rows = whole.taken(slice(begin - start, None)) if begin > start else whole
        inside = min(len(rows), max(0, high - begin))
        if inside:
            taken.append((begin, rows if inside == len(rows) else rows.taken(slice(0, inside))))
        if inside < len(rows):
            later.append((begin + inside, rows.taken(slice(inside, None)) if inside else rows))
    return later, taken


def _together(parts: Sequence[tuple[int, Rows]]) -> tuple[Tensor, Rows]:
    places = torch.cat([torch.arange(begin, begin + len(rows)) for begin, rows in parts])
    return places, _joined([rows for _, rows in parts])


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]

    def of(name: str, dim: int) -> Tensor | None:
        there = [getattr(part, name) for part in parts]
        return None if there[0] is None else torch.cat(there, dim=dim)

    X, y = of("X", 0), of("y", 0)
    if X is None or y is None:
        raise AssertionError
    return Rows(X, y, of("weight", 1), of("held", 1), of("fold", 0))
