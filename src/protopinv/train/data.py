"""Rows as they came, in memory or read a piece at a time, and what training asks of either."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from protopinv.features import Distortion, Front, Moments, measure_moments, moments_of_chunk
from protopinv.objective import Classes, Objective
from protopinv.rows import RowSource
from protopinv.train import survey as surveys
from protopinv.train.cross import crossed, deal_folds
from protopinv.train.ranks import Ranks
from protopinv.train.resolve import FOLDS
from protopinv.train.rows import AnyRows, Rows
from protopinv.train.streamed import Counting, StreamedRows
from protopinv.train.survey import Split, Survey, pieces_of, sampled
from protopinv.train.targets import LabelCounts
from protopinv.train.view import (
    MOST_OF_FREE,
    View,
    as_tensor,
    moved_to,
    piece_rows,
    seen_by_network,
)


class Some(NamedTuple):
    """Rows as they came, encoded targets, and what each row counts (None: once each)."""

    X: Tensor
    targets: Tensor
    weight: Float[Tensor, " n"] | None


@dataclass(frozen=True)
class ArrayData:
    """Rows in memory in the type they came in; only a piece at a time is converted.

    ``targets`` are encoded as the objective has them. ``weight`` says what each row counts, in a
    ``unit`` that matters only for the replay memory; None: once each. ``held_out`` are the numbers
    of the rows to validate on. ``moved`` holds all rows on a GPU, if these take little of it.
    """

    X: NDArray[Any]
    targets: NDArray[Any]
    objective: Objective
    weight: NDArray[np.float64] | None = None
    unit: float = 1.0
    seed: int = 0
    held_out: NDArray[np.integer[Any]] | None = None
    moved: Tensor | None = None

    @property
    def n_features(self) -> int:
        """Numbers of a row as it came."""
        return int(self.X.shape[1])

    @property
    def training(self) -> NDArray[np.integer[Any]]:
        """The numbers of the rows to train on."""
        everything = np.arange(len(self.X))
        return everything if self.held_out is None else np.setdiff1d(everything, self.held_out)

    def groups(self) -> NDArray[np.int64]:
        """The group of each row, for folds and a hold-out: its class, or 0."""
        groups: NDArray[np.int64] = self.objective.groups(torch.from_numpy(self.targets)).numpy()
        return groups

    def placed(self, device: torch.device) -> "ArrayData":
        """The data with all rows on the device, where there is room for them."""
        return replace(self, moved=moved_to(device, self.X))

    def some(self, device: torch.device) -> Some:
        """A uniform sample of the rows to train on."""
        numbers = self._sampled(uniform=True)
        targets = torch.from_numpy(self.targets[numbers]).to(device)
        return Some(self._rows_at(numbers, device), targets, self._weights_at(numbers, device))

    def moments(
        self, front: Front | None, against: bool, device: torch.device, *, diagonal: bool
    ) -> Moments:
        """Moments of the features of all training rows behind ``front``, and against targets."""
        width = self.n_features if front is None else front.n_outputs
        pieces = self._pieces(self.training, front, device, width + self.objective.n_outputs)
        chunks = (
            (X, self.objective.for_projection(y) if against else X[:, :0], weight)
            for X, y, weight in pieces
        )
        return measure_moments(chunks, diagonal=diagonal)

    def rows(self, view: View, distortions: Sequence[Distortion] = ()) -> Rows:
        """The training rows as the network sees them, then a copy for each distortion."""
        return self._projected(self.training, view, distortions)

    def held_rows(self, view: View) -> Rows | None:
        """The rows to validate on."""
        return None if self.held_out is None else self._projected(self.held_out, view)

    def sample(self, rows: Rows) -> Rows:
        """Those of the training rows from which banks start: some, and some of each group."""
        numbers = self._sampled(uniform=False)
        training = self.training
        if len(numbers) == len(rows):
            return rows
        places = np.searchsorted(training, numbers)
        return rows.taken(torch.from_numpy(places).to(rows.X.device))

    def judged(self, held: Rows) -> Rows:
        """The held-out rows that say how the network should be calibrated: all of them."""
        return held

    def cross(self, rows: Rows, n_full: int) -> tuple[Rows, Rows, Rows] | None:
        """For members that see all rows and one for each fold: rows, a sample, rows to judge.

        None where no group has rows enough.
        """
        fold = deal_folds(self.groups(), FOLDS, self.seed)
        if fold.max() < FOLDS - 1:
            return None
        # distorted copies stay in the fold of their original
        repeated = torch.from_numpy(fold).repeat(len(rows) // len(fold)).to(rows.X.device)
        both = crossed(rows, repeated, n_full, len(fold))
        return both, self.sample(both), both

    def resident(self, rows: Rows) -> Rows:
        """Rows to walk again and again: these are in memory."""
        return rows

    def masses(self) -> Float[Tensor, " g"]:
        """What the training rows of every group count together."""
        training = self.training
        weight = None if self.weight is None else self.weight[training] * self.unit
        sums = np.bincount(self.groups()[training], weight, self.objective.n_groups)
        return torch.from_numpy(sums.astype(np.float64))

    def _sampled(self, *, uniform: bool) -> NDArray[np.integer[Any]]:
        training = self.training
        keys = Split(self.seed).sample_keys(training)
        chosen, is_uniform = sampled(keys, self.groups()[training])
        return training[chosen[is_uniform] if uniform else chosen]

    def _pieces(
        self,
        chosen: NDArray[np.integer[Any]],
        front: Front | None,
        device: torch.device,
        width: int,
        distortion: Distortion | None = None,
    ) -> Iterator[tuple[Float[Tensor, "n d"], Tensor, Float[Tensor, " n"] | None]]:
        """Chosen rows behind the front in float64, targets, weights; ``width`` numbers a row.

        A ``distortion`` comes before anything else.
        """
        size, done = piece_rows(width, front, device), 0
        for numbers in np.array_split(chosen, max(1, -(-len(chosen) // size))):
            rows = self._rows_at(numbers, device)
            if distortion is not None:
                rows = distortion(rows, done)
            done += len(rows)
            targets = torch.from_numpy(self.targets[numbers]).to(device)
            yield seen_by_network(rows, front), targets, self._weights_at(numbers, device)

    def _projected(
        self,
        chosen: NDArray[np.integer[Any]],
        view: View,
        distortions: Sequence[Distortion] = (),
    ) -> Rows:
        times, device = 1 + len(distortions), view.device
        n_components, front = view.features.n_components, view.front
        Z = torch.empty(len(chosen) * times, n_components, dtype=view.dtype, device=device)
        done, width = 0, self.n_features if front is None else front.n_outputs
        for distortion in (None, *distortions):
            for X, _, _ in self._pieces(chosen, front, device, width, distortion):
                Z[done : done + len(X)] = view.features.project(X)
                done += len(X)
        y = torch.from_numpy(self.targets[chosen])
        y = y.to(device, view.exact if y.is_floating_point() else None)
        y = y.repeat(times, *[1] * (y.ndim - 1))
        weight = self._weights_at(chosen, device)
        if weight is not None:
            weight = (weight / weight.mean()).to(view.exact).repeat(times)[None]
        return Rows(Z, y, weight)

    def _weights_at(
        self, numbers: NDArray[np.integer[Any]], device: torch.device
    ) -> Float[Tensor, " n"] | None:
        return None if self.weight is None else torch.from_numpy(self.weight[numbers]).to(device)

    def _rows_at(self, numbers: NDArray[np.integer[Any]], device: torch.device) -> Tensor:
        if self.moved is None:
            return torch.from_numpy(self.X[numbers]).to(device)
        return self.moved[torch.from_numpy(numbers).to(device)]


@dataclass(frozen=True)
class StreamData:
    """Rows that are read again for every pass, after a survey of them, by one or several ranks."""

    source: RowSource
    objective: Objective
    survey: Survey
    split: Split
    ranks: Ranks

    @property
    def n_features(self) -> int:
        """Numbers of a row as it came."""
        return self.source.n_features

    @property
    def training(self) -> range:
        """As many numbers as there are rows to train on."""
        return range(int(self.survey.counts[0]))

    def placed(self, _: torch.device) -> "StreamData":
        """The data themselves: their rows are moved a piece at a time."""
        return self

    def some(self, device: torch.device) -> Some:
        """A uniform sample of the rows to train on."""
        some = self.survey.sample.lowest(surveys.SAMPLE_ROWS)
        targets = torch.from_numpy(np.ascontiguousarray(self.objective.encode(some.y))).to(device)
        weight = None if (some.weight == 1).all() else torch.from_numpy(some.weight).to(device)
        return Some(as_tensor(some.X).to(device), targets, weight)

    def moments(
        self, front: Front | None, against: bool, device: torch.device, *, diagonal: bool
    ) -> Moments:
        """Moments from the survey or, behind a ``front`` it did not know, from another pass."""
        if front is None and self.survey.moments is not None:
            return self.survey.moments
        total: Moments | None = None
        for X, y, weight in self._pieces(front, device):
            Y = self.objective.for_projection(y) if against else X[:, :0]
            part = moments_of_chunk(X, Y, weight, diagonal=diagonal)
            total = part if total is None else total.merge(part)
        mine = None if total is None else total.to("cpu")  # a GPU of another rank is not ours
        first, *others = [m.to(device) for m in self.ranks.gather(mine) if m is not None]
        for other in others:
            first = first.merge(other)
        return first

    def _pieces(
        self, front: Front | None, device: torch.device
    ) -> Iterator[tuple[Float[Tensor, "n d"], Tensor, Float[Tensor, " n"] | None]]:
        """This rank's training rows behind the front, with targets and weights."""
        width = self.n_features if front is None else front.n_outputs
        size = piece_rows(width, front, device)
        for block, piece in pieces_of(self.source, self.ranks.share(self.source.blocks)):
            trained = ~self.split.held(block, piece)
            if piece.weight is not None:
                trained &= piece.weight > 0
            n_pieces = -(-int(trained.sum()) // size)
            for rows in np.array_split(np.flatnonzero(trained), n_pieces) if n_pieces else ():
                X = seen_by_network(as_tensor(piece.X[rows]).to(device), front)
                y = torch.from_numpy(self.objective.encode(np.asarray(piece.y)[rows])).to(device)
                weight = None if piece.weight is None else torch.from_numpy(piece.weight[rows])
                yield X, y, None if weight is None else weight.to(device)

    def rows(self, view: View, _: Sequence[Distortion] = ()) -> StreamedRows:
        """The training rows as the network sees them; images are not copied here."""
        return self._streamed(view, part=0)

    def held_rows(self, view: View) -> StreamedRows | None:
        """The rows to validate on."""
        held = self._streamed(view, part=1)
        return held if held.n_total else None

    def sample(self, rows: StreamedRows) -> Rows:
        """Those of the training rows from which banks start: some, and some of each group."""
        return rows.of_sample(self.survey.sample)

    def judged(self, held: StreamedRows) -> Rows | None:
        """The held-out rows that say how the network should be calibrated: a sample of them."""
        sample = self.survey.held_sample
        return None if sample is None else held.of_sample(sample)

    def cross(self, rows: StreamedRows, n_full: int) -> tuple[AnyRows, Rows, Rows] | None:
        """For members that see all rows and one for each fold: rows, a sample, rows to judge.

        None where a fold has no rows.
        """
        masses = self.survey.fold_masses
        if (masses <= 0).any():
            return None
        both = rows.crossed(n_full, masses.tolist())
        sample = self.survey.sample
        return both, both.of_sample(sample), both.of_sample(sample.lowest(surveys.SAMPLE_ROWS))

    def resident(self, rows: StreamedRows) -> AnyRows:
        """Rows to walk again and again: in memory, where this rank's part has room there."""
        view = rows.view
        size = rows.n_total / self.ranks.size * view.features.n_components * view.dtype.itemsize
        room = self.source.memory
        if view.device.type == "cuda":
            room = int(MOST_OF_FREE * torch.cuda.mem_get_info(view.device)[0]) if room else 0
        # all or none: ranks that keep their rows exchange how many these are
        (too_large,) = self.ranks.agree(size > room)
        return rows if too_large else rows.resident()

    def masses(self) -> Float[Tensor, " g"]:
        """What the training rows of every group count; held-out rows are as many of each."""
        shares, targets = torch.ones(1, dtype=torch.float64), self.survey.targets
        if isinstance(self.objective, Classes) and isinstance(targets, LabelCounts):
            shares = torch.from_numpy(targets.masses_of(self.objective.labels))
        return shares / shares.sum() * float(self.survey.masses[0])

    def _streamed(self, view: View, *, part: int) -> StreamedRows:
        survey = self.survey
        n, mass = int(survey.counts[part]), float(survey.masses[part])
        counting = Counting(n, mass / max(1, n) if survey.is_weighted else None)
        return StreamedRows(
            self.source, view, self.split, self.ranks, counting, survey.trained, held_out=part == 1
        )


Data = ArrayData | StreamData
