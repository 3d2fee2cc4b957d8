"""Rows of a source as the network sees them, read once or again for every pass over them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.features import Distortion, FeatureMap, Front, Stem
from protopinv.objective import Objective
from protopinv.rows import Block, Piece, RowSource
from protopinv.rows.cache import AHEAD
from protopinv.train.ranks import Ranks, owners
from protopinv.train.rows import CPU_CHUNK_MOST, Rows, joined_rows
from protopinv.train.survey import Sample, Split, as_tensor, pieces_of, rows_a_piece

# Rows are converted to float64 a piece at a time, about this many numbers; larger pieces are not
# faster, and leave memory behind. The maps of a stem get more room, or convolutions would crawl.
PIECE_NUMBERS, STEM_NUMBERS = 2**18, 2**21
GPU_PIECE_NUMBERS, GPU_STEM_NUMBERS = 2**23, 2**28
# Mini-batches are drawn from so many rows at a time, which come from blocks in a random order.
WINDOW_ROWS = 2**17
# A GPU works on so many rows at a time while others come, this many in a copy.
GPU_CHUNK = 2**18
GPU_PIECE_ROWS = 2**17

# Rows of an array or of a tensor on a GPU, and the numbers of some of them; None for all.
Part = tuple[Any, NDArray[np.int64] | None]


@dataclass(frozen=True)
class View:
    """How rows as they came become what the network sees.

    A ``distortion`` of images comes first, then the ``front``, then the affine map of ``features``.
    """

    front: Front | None
    features: FeatureMap
    objective: Objective
    dtype: torch.dtype
    device: torch.device
    distortion: Distortion | None = None

    @property
    def exact(self) -> torch.dtype:
        """The number type of targets and weights."""
        return torch.float32 if self.dtype == torch.bfloat16 else self.dtype

    def inputs(self, parts: Sequence[Part]) -> Float[Tensor, "n d"]:
        """Projected rows, made in pieces that stay in cache."""
        n, done = sum(len(X if chosen is None else chosen) for X, chosen in parts), 0
        Z = torch.empty(n, self.features.n_components, dtype=self.dtype, device=self.device)
        for X, chosen in parts:
            size = piece_rows(X.shape[1], self.front, self.device)
            for start in range(0, len(X if chosen is None else chosen), size):
                here = slice(start, start + size)
                rows = self.placed(rows_at(X, here if chosen is None else chosen[here]))
                if self.distortion is not None:
                    rows = self.distortion(rows, done)
                seen = self.features.project(behind_front(rows, self.front))
                Z[done : done + len(seen)] = seen
                done += len(seen)
        return Z

    def targets(self, parts: Sequence[Part]) -> Tensor:
        """Encoded, in the type they are judged in."""
        ys = [rows_at(y, slice(None) if chosen is None else chosen) for y, chosen in parts]
        if isinstance(ys[0], Tensor):  # fetched by another thread
            return torch.cat(ys)
        y = self.objective.encode(ys[0] if len(ys) == 1 else np.concatenate(ys))
        targets = torch.from_numpy(np.ascontiguousarray(y))
        return targets.to(self.device, self.exact if targets.is_floating_point() else None)

    def fetched(self, piece: Piece) -> Piece:
        """A piece on the GPU, with targets encoded: copied by the thread that reads.

        What the thread waits for does not keep the GPU from its work on earlier pieces.
        """
        stream = _fetching(self.device)
        with torch.cuda.stream(stream):
            X, y = self.placed(piece.X), self.targets([(np.asarray(piece.y), None)])
        stream.synchronize()
        return piece._replace(X=X, y=y)

    def placed(self, X: NDArray[Any] | Tensor) -> Tensor:
        """Numbers on the device; a GPU fetches them beside its work."""
        if isinstance(X, Tensor):
            return X
        if self.device.type == "cpu":
            return as_tensor(X)
        rows = as_tensor(X.astype(np.float64) if is_long_unsigned(X) else X)
        pinned = rows if rows.is_pinned() else rows.pin_memory()
        return pinned.to(self.device, non_blocking=True)


@lru_cache(maxsize=8)
def _fetching(device: torch.device) -> torch.cuda.Stream:
    """The stream on which rows come to a GPU."""
    return torch.cuda.Stream(device)


def is_long_unsigned(X: NDArray[Any]) -> bool:
    """Whether these are numbers of which torch cannot pick rows on a GPU."""
    return X.dtype.kind == "u" and X.dtype.itemsize > 1


def rows_at(X: Any, chosen: Any) -> Any:
    """Some rows of an array, or of a tensor on a GPU, by a slice or by their numbers."""
    if isinstance(X, Tensor) and not isinstance(chosen, slice):
        return X[torch.from_numpy(chosen).to(X.device)]
    return X[chosen] if isinstance(X, Tensor) else np.asarray(X)[chosen]


def piece_rows(width: int, front: Front | None, device: torch.device | str) -> int:
    """Rows to convert at a time."""
    on_cpu = torch.device(device).type == "cpu"
    if not isinstance(front, Stem):
        return max(1, (PIECE_NUMBERS if on_cpu else GPU_PIECE_NUMBERS) // width)
    return max(1, (STEM_NUMBERS if on_cpu else GPU_STEM_NUMBERS) // max(front.widest, width))


def behind_front(X: Tensor, front: Front | None) -> Float[Tensor, "n d"]:
    """Rows in float64, behind the front if there is one."""
    return X.double() if front is None else front.features(X)


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

    def weights(
        self, mass: NDArray[np.float64], fold: NDArray[np.int64], dtype: torch.dtype
    ) -> tuple[Tensor | None, Tensor | None]:
        """What rows count to train on, and to judge those who leave them out."""
        if self.mean is None and not self.fold_mass:
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
        return torch.cat([full, seen]).to(dtype), torch.cat([0 * full, held]).to(dtype)


@dataclass(frozen=True)
class StreamedRows:
    """The rows of a source that are trained on, or those that are held out.

    Every pass reads them again: this rank's blocks, in order or for mini-batches in a random one.
    ``trained`` says how many rows of each block, by its start, are trained on. Without ``judges`` a
    pass does not look at what members leave out; ``by_held`` rows count as these members count
    them.
    """

    source: RowSource
    view: View
    split: Split
    ranks: Ranks
    counting: Counting
    trained: dict[int, int]
    held_out: bool = False
    judges: bool = True
    by_held: bool = False

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
        """For a pass that need not judge what members leave out."""
        return replace(self, judges=False)

    def by_holders(self) -> "StreamedRows":
        """Rows that count as the members that leave them out count them."""
        return replace(self, by_held=True)

    def chunks(self, size: int) -> Iterator[Rows]:
        """This rank's rows, so many at a time; an empty chunk if there are none.

        Chunks begin at multiples of ``size``, by the number of a row among all: so they are the
        same for any number of ranks, and for rows in memory.
        """
        if self.view.device.type == "cuda":
            size = min(size, GPU_CHUNK)  # so that the first can be worked on while others come
        n, ranks, empty = self.source.n_rows, self.ranks, True
        # an even share, up to a chunk
        low, high = (
            min(n, round(n * number / ranks.size / size) * size)
            for number in (ranks.number, ranks.number + 1)
        )
        high = n if ranks.number == ranks.size - 1 else high
        inside = [b for b in self.source.blocks if b.start < high and b.start + b.n_rows > low]
        for parts in regrouped(self._pieces(inside, GPU_PIECE_ROWS), low, high, size):
            rows = self._rows(parts)
            if len(rows):
                empty = False
                yield rows
        if empty:
            yield self._nothing()

    def _pieces(
        self, blocks: Sequence[Block], rows: int | None = None, n_ahead: int = AHEAD
    ) -> Iterator[tuple[Block, Piece]]:
        """Pieces of some blocks; on a GPU already, ``rows`` in a copy."""
        if self.view.device.type == "cpu":
            return pieces_of(self.source, blocks, n_ahead=n_ahead)
        fetch = self.view.fetched
        return pieces_of(self.source, blocks, n_ahead=n_ahead, rows=rows, fetch=fetch)

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
        # even, as ``tensor_split`` makes them
        least, more = divmod(self.n_total, self.n_batches(size))
        sizes = [least + (number < more) for number in range(self.n_batches(size))]
        bounds = list(accumulate(sizes, initial=0))
        step = max(1, WINDOW_ROWS // size)
        starts = [*bounds[:-1:step], self.n_total]
        windows = self._windows([blocks[number] for number in order], starts[skip // step :])
        for number, (low, high) in enumerate(pairwise(starts)):
            shuffled = torch.randperm(high - low, generator=generator, device=generator.device)
            if number < skip // step:
                continue
            places, rows = next(windows)
            here = torch.full((high - low,), -1, dtype=torch.long)
            here[places - low] = torch.arange(len(places))
            here = here.to(shuffled.device)
            inside = bounds[max(skip, number * step) : (number + 1) * step + 1]
            for first, last in pairwise(inside):
                batch = here[shuffled[first - low : last - low]]
                # to look for rows of others would make a GPU's host wait
                mine = batch if self.ranks.size == 1 else batch[batch >= 0]
                yield replace(rows.taken(mine.to(rows.X.device)), total=last - first)

    def _windows(
        self, blocks: Sequence[Block], starts: Sequence[int]
    ) -> Iterator[tuple[Tensor, Rows]]:
        """For each stretch of the stream of rows this rank's part of it, and their places in it."""
        counts = [self.trained.get(block.start, 0) for block in blocks]
        begins = np.cumsum([0, *counts]).tolist()
        filled = [replace(b, n_rows=n) for b, n in zip(blocks, counts, strict=True)]
        mine = [
            (block, begin)
            for block, begin, n, owner in zip(
                blocks, begins, counts, owners(filled, self.ranks.size), strict=False
            )
            if owner == self.ranks.number and begin + n > starts[0]
        ]
        place = {block.start: begin for block, begin in mine}
        window = WINDOW_ROWS // self.ranks.size // rows_a_piece(self.source)
        read = self._pieces([block for block, _ in mine], n_ahead=max(AHEAD, window))
        pending: list[tuple[int, Rows]] = []
        begins_left = [begin for _, begin in mine]
        upto = 0  # rows before this place have been read, as far as they are ours
        exhausted = not mine
        for low, high in pairwise(starts):
            while not exhausted and upto < high:
                item = next(read, None)
                if item is None:
                    exhausted = True
                    break
                block, piece = item
                rows = self._rows([item])
                pending.append((place[block.start], rows))
                place[block.start] += len(rows)
                upto = place[block.start]
                if piece.first + len(piece.X) == block.n_rows:
                    begins_left.pop(0)
                    upto = begins_left[0] if begins_left else self.n_total
            pending, inside = _cut_at(pending, low, high)
            places = [torch.arange(begin, begin + len(rows)) for begin, rows in inside]
            joined = joined_rows([rows for _, rows in inside]) if inside else self._nothing()
            yield torch.cat([torch.zeros(0, dtype=torch.long), *places]), joined

    def _rows(self, parts: Sequence[tuple[Block, Piece]]) -> Rows:
        """Those rows of some pieces that are asked for, as the network sees them."""
        chosen, masses, folds = [], [], []
        for block, piece in parts:
            for part in (piece.X, piece.y):
                if isinstance(part, Tensor) and not self.source.in_memory:
                    # it came by another stream, which may reuse its memory only after this
                    part.record_stream(torch.cuda.current_stream(part.device))
            there = None if piece.weight is None or piece.weight.all() else piece.weight > 0
            if self.split.share > 0:
                out = self.split.held(block, piece)
                side = out if self.held_out else ~out
                there = side if there is None else there & side
            numbers = None if there is None else np.flatnonzero(there)
            pick = slice(None) if numbers is None else numbers
            chosen.append(numbers)
            mass = np.ones(len(piece.X)) if piece.weight is None else piece.weight
            masses.append(mass[pick])
            if self.counting.fold_mass:
                folds.append(self.split.folds(block, piece)[pick])
        fold = np.concatenate(folds) if folds else np.zeros(0, dtype=np.int64)
        X = [(piece.X, numbers) for (_, piece), numbers in zip(parts, chosen, strict=True)]
        y = [(piece.y, numbers) for (_, piece), numbers in zip(parts, chosen, strict=True)]
        return self._seen(X, y, np.concatenate(masses), fold)

    def _seen(
        self,
        X: Sequence[Part],
        y: Sequence[Part],
        mass: NDArray[np.float64],
        fold: NDArray[np.int64],
    ) -> Rows:
        weight, held = self.counting.weights(mass, fold, self.view.exact)
        if self.by_held:
            weight, held = held if held is None else held * self.n_total, None
        rows = Rows(
            self.view.inputs(X),
            self.view.targets(y),
            weight,
            held if self.judges else None,
            torch.from_numpy(fold) if self.counting.fold_mass and not self.by_held else None,
        )
        return (
            rows if self.view.device.type == "cpu" else rows.each(lambda t: t.to(self.view.device))
        )

    def of_sample(self, sample: Sample) -> Rows:
        """Some rows that were sampled, as if they were all."""
        return self._seen([(sample.X, None)], [(sample.y, None)], sample.weight, sample.fold)

    def resident(self) -> Rows:
        """This rank's rows, read once and kept in memory."""
        if self.source.in_memory:
            return self._rows(list(pieces_of(self.source, self.source.blocks)))
        rows = joined_rows(list(self.chunks(CPU_CHUNK_MOST)))
        if self.ranks.size == 1:
            return rows
        counts = self.ranks.gather(len(rows))
        before = sum(counts[: self.ranks.number])
        places = torch.arange(before, before + len(rows), device=rows.X.device)
        return replace(rows, total=self.n_total, places=places)

    def _nothing(self) -> Rows:
        X = np.empty((0, self.source.n_features))
        y = np.asarray(next(self.source.read(self.source.blocks[0], 1)).y)[:0]
        return self._seen([(X, None)], [(y, None)], np.ones(0), np.zeros(0, dtype=np.int64))


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
            rows = slice(at - begin, border - begin)
            weight = None if piece.weight is None else piece.weight[rows]
            waiting.append((block, Piece(piece.X[rows], piece.y[rows], weight, at - block.start)))
            at = border
            if border % size == 0:
                yield waiting
                waiting = []
    if waiting:
        yield waiting


def _cut_at(
    pending: list[tuple[int, Rows]], low: int, high: int
) -> tuple[list[tuple[int, Rows]], list[tuple[int, Rows]]]:
    """What comes later, and what lies in the window."""
    later, inside = [], []
    for start, rows in pending:
        begin = max(start, low)  # rows before that are of batches that were left out
        left = rows.taken(slice(begin - start, None)) if begin > start else rows
        n = min(len(left), max(0, high - begin))
        if n:
            inside.append((begin, left if n == len(left) else left.taken(slice(0, n))))
        if n < len(left):
            later.append((begin + n, left.taken(slice(n, None)) if n else left))
    return later, inside
