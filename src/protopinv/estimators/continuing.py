"""What a fitted model can still learn, without the rows it was fitted on."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Generator, Tensor

from protopinv.bank import Bank
from protopinv.continual import (
    New,
    Settings,
    State,
    answers,
    grown,
    hidden_of,
    shrunk,
    update,
)
from protopinv.errors import ConfigError, DataError, ModelFileError
from protopinv.estimators.checks import memory_named, resolve_device
from protopinv.estimators.door import Checked, all_or_nothing, require_some
from protopinv.estimators.fitting import target_names
from protopinv.estimators.frames import encoded_more
from protopinv.estimators.parameters import as_estimator
from protopinv.estimators.rescaling import rescaled, scales_columns
from protopinv.estimators.streaming import Streaming
from protopinv.estimators.streams import joined, pieces_as_they_are
from protopinv.estimators.warm_start import going_on
from protopinv.estimators.widening import Inputs, with_table
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.objective import Objective
from protopinv.rows import RowSource
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.loop import Observer
from protopinv.train.model import fold
from protopinv.train.progress import progress
from protopinv.train.settle import is_auto, settle
from protopinv.train.source import Source
from protopinv.train.threads import threads_for

# Rows of a long source that are learned at a time.
SOURCE_ROWS = 50_000
# Scaled numbers beyond this cannot be squared and added up.
LARGEST_ROW = 1e150
# Drawn rows on which a change is judged.
JUDGED_ROWS = 5_000


@dataclass(frozen=True)
class Pruned:
    """What became of the prototypes of every bank, and what that cost.

    ``change`` is how far outputs for rows drawn from the memory moved, root mean square, in
    standard deviations of the outputs; ``agreement`` is the share of these rows with the same
    answer as before: the same class, the same labels, a number within a tenth of a deviation.
    """

    n_before: int
    n_prototypes: int
    change: float
    agreement: float


@as_estimator
class Continuing(Streaming):
    """Learns more once it is fitted: ``partial_fit``, and what makes banks larger or smaller."""

    def _memory(self) -> Memory:
        """What is known of the rows so far; raises ModelFileError where that is nothing."""
        check_is_fitted(self, "network_")
        if self.memory_ is None:
            raise ModelFileError(
                "This needs the memory of a model, what it keeps of its rows. It was fitted with "
                "memory=0, or saved without. Fit it again, or load a file that was saved with it."
            )
        return self.memory_

    def _update(
        self,
        checked: Checked,
        state: State,
        decay: float,
        observer: Observer | None,
        factors: Tensor | None = None,
    ) -> Self:
        """Learn from rows that were checked; after Ctrl-C the model is as it was."""
        device = resolve_device(self.device)
        if self.table_ is not None:
            checked = encoded_more(checked, state.objective, self.table_)
        inputs, state = with_table(self._inputs, state, checked.table)
        objective, memory = state.objective, state.memory
        is_wider = inputs.features is not self.features_
        limit = memory.limit if self._memory_limit == 0 else self._memory_limit
        n = round(float(memory.parts.rows.sum())) + len(checked.X)
        state = replace(state, memory=memory.limited(limit, n, objective.n_groups))
        source = self._source(checked, objective)
        config = self._fit_config(source, device, state.bank)
        front = None if inputs.front is None else inputs.front.to(device)
        shown = progress(enabled=bool(self.verbose), also=observer)
        threads = threads_for(source.shape(device), objective.n_outputs, config, device)
        with shown as watched, memory_named(), threads:
            rows = replace(source, front=front).placed(device)
            dtype = getattr(torch, config.dtype)
            everything = np.arange(len(checked.X))
            seen = rows.projected(everything, inputs.features.to(device), dtype, device)
            counts = np.ones(len(checked.X)) if checked.weight is None else checked.weight
            Z, weight = seen.X, torch.from_numpy(counts).to(device)
            if not bool((Z.abs() <= LARGEST_ROW).all()):
                raise DataError(
                    "Rows must be of a size like those of the fit. Some of these are too large to "
                    "be squared once they are scaled as those were. Leave them out, or fit again."
                )
            if scales_columns(inputs.features, self.config_):
                inputs, state, Z = rescaled(inputs, state, Z, weight)
            settings = Settings(
                config,
                device,
                self._seed(),
                time.perf_counter,
                batch_is_free=is_auto(self.batch_size),
                is_wider=is_wider,
                decay=decay,
                factors=factors,
                most_prototypes=self.max_prototypes,
                observer=watched,
            )
            done = update(state, New(Z, seen.y, weight), settings)
        if done.history.ending == "interrupted":
            raise KeyboardInterrupt
        self._take_state(done.state, inputs)
        self.history_, self.n_iter_ = done.history, done.history.n_epochs
        return self

    def _take_state(self, state: State, inputs: Inputs | None = None) -> Self:
        """These banks and this memory, and the network they make."""
        inputs = self._inputs if inputs is None else inputs
        n_components, n_outputs = inputs.features.n_components, state.objective.n_outputs
        fault = state.memory.fault(n_components, n_outputs)
        if fault is not None:
            raise DataError(
                f"A model must be of a kind that can be saved and learn further. Here {fault}. "
                "Scale the rows, or fit again."
            )
        features = cut_features(inputs.features, state.memory)
        config = replace(self.config_, n_prototypes=state.bank.n_prototypes)
        self.network_ = fold(state.bank, features, state.objective, config, self.sharpness_)
        self.bank_, self.memory_, self.config_ = state.bank, state.memory, config
        self.last_bank_, self.n_calls_ = state.last, state.n_calls
        self.objective_ = state.objective
        self.table_, self.front_, self.features_ = inputs.table, inputs.front, inputs.features
        return self

    def _fit_config(self, source: Source, device: torch.device, bank: Bank) -> TrainConfig:
        """As a fit of as many rows would have it that begins with these banks."""
        given = {**self._given(), "image_shape": self.config_.image_shape}
        given = {**going_on(given, bank, self.config_), "early_stopping": False}
        config = settle(given, source.shape(device))
        return replace(config, label_smoothing=self.config_.label_smoothing)

    @property
    def _inputs(self) -> Inputs:
        """What lies before the banks."""
        return Inputs(self.table_, self.front_, self.features_)

    def _state(self) -> State:
        """What is known so far."""
        return State(
            self._bank(),
            self._memory(),
            self.objective_,
            self.n_frozen_,
            self.last_bank_,
            self.n_calls_,
        )

    def _learn_source(self, source: RowSource, **options: Any) -> Self:
        """Rows in files: those of a long source some at a time, all of them or none."""
        is_first = not hasattr(self, "network_")
        if is_first and options.get("classes") is None:
            return self.fit(source, observer=options["observer"])
        with self._taking(source) as model:
            for X, y, weight in _counted(_stretches(source)):
                model.partial_fit(X, y, sample_weight=weight, **options)
                options["decay"] = 0.0  # of what was known before the call
        if is_first:
            self._learn_names(source)
            self.target_names_ = target_names(source, None)
        return self

    @all_or_nothing
    def grow(self, n: int) -> Self:
        """Add ``n`` prototypes to every bank, at rows drawn from the memory.

        They say what the network says there, so that predictions hardly change; ``partial_fit``
        then has more to learn with.
        """
        require_count("n", n, 1)
        state, architecture = self._state(), architecture_of(self.config_)
        members, generator = state.bank.n_members, Generator().manual_seed(self._seed())
        drawn, _ = state.memory.drawn(max(n * members * 10, 100), generator)
        picked = torch.randperm(len(drawn), generator=generator)[: n * members]
        inputs = drawn[picked].view(members, n, -1)
        bank = grown(state.bank, inputs, *hidden_of(state.bank, architecture, inputs))
        return self._take_state(state.with_bank(bank))

    @all_or_nothing
    def freeze(self, n: int | None = None) -> Self:
        """Keep the first ``n`` prototypes of every bank where they are; None: all, 0: none.

        Those that are added later are trained.
        """
        bank = self._bank()
        n = bank.n_prototypes if n is None else n
        require_count("n", n, 0)
        self.n_frozen_ = min(n, bank.n_prototypes)
        self.last_bank_ = None
        return self

    @all_or_nothing
    def prune(self, n_prototypes: int) -> Pruned:
        """Leave every bank with so many prototypes, those that matter most.

        Each is weighed by how far outputs move without it, for rows drawn from the memory; frozen
        ones stay, as far as there is room.
        """
        require_count("n_prototypes", n_prototypes, 1)
        state, architecture = self._state(), architecture_of(self.config_)
        bank = state.bank
        generator = Generator().manual_seed(self._seed())
        n_frozen = min(self.n_frozen_, n_prototypes)
        smaller = shrunk(
            bank, state.memory, n_prototypes, self.config_, generator, n_frozen=n_frozen
        )
        rows = state.memory.drawn(JUDGED_ROWS, generator)[0].double()
        before, after = (answers(each, architecture, rows) for each in (bank, smaller))
        self._take_state(state.with_bank(smaller))
        self.n_frozen_ = n_frozen
        cost = judged(before, after, self.objective_)
        return Pruned(bank.n_prototypes, smaller.n_prototypes, *cost)


def _stretches(source: RowSource) -> Iterator[tuple[Any, Any, Any]]:
    """Rows to learn at a time: all of a source that fits in memory, or so many of it."""
    if source.fits_in_memory():
        yield source.load()
        return
    pieces: list[Any] = []
    for piece in pieces_as_they_are(source):
        pieces.append(piece)
        if sum(len(each.X) for each in pieces) >= SOURCE_ROWS:
            yield _together(pieces)
            pieces = []
    if pieces:
        yield _together(pieces)


def _counted(stretches: Iterator[tuple[Any, Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    """Those in which a row counts; raises DataError if there are none."""
    is_counted = False
    for X, y, weight in stretches:
        if weight is None or np.any(weight):
            is_counted = True
            yield X, y, weight
    if not is_counted:
        require_some(np.zeros(1))


def _together(pieces: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Rows, targets and weights of all pieces; either all have weights or none has."""
    X = joined([piece.X for piece in pieces])
    y = np.concatenate([np.asarray(piece.y) for piece in pieces])
    weights = [piece.weight for piece in pieces]
    return X, y, None if weights[0] is None else np.concatenate(weights)


def judged(before: Tensor, after: Tensor, objective: Objective) -> tuple[float, float]:
    """How far outputs moved, in deviations, and the share of rows with the same answer."""
    deviation = float(before.std(0, correction=0).square().mean().sqrt())
    change = float((after - before).square().mean().sqrt()) / (deviation or 1.0)
    if objective.are_odds:
        answered = [objective.decode(each.numpy()) for each in (before, after)]
        same = np.asarray(answered[0] == answered[1]).reshape(len(before), -1).all(1)
        return change, float(same.mean())
    near = (after - before).abs() <= 0.1 * before.std(0, correction=0)
    return change, float(near.all(1).double().mean())


def cut_features(features: FeatureMap, memory: Memory) -> FeatureMap:
    """The map of the features, without what the network must not look at."""
    if not memory.is_cut or memory.basis is None:
        return features
    inside = memory.basis @ memory.basis.T
    return replace(features, basis=inside if features.basis is None else features.basis @ inside)


def require_count(name: str, value: Any, least: int) -> None:
    """Raise ConfigError unless this is a whole number from ``least`` on."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(
            f"{name} must be a whole number from {least} on. Got {value!r}. Change it."
        )


def require_decay(decay: Any) -> float:
    """Raise ConfigError unless this is a share of the memory that leaves some of it."""
    number = isinstance(decay, int | float | np.number) and not isinstance(decay, bool)
    if not number or not 0 <= decay < 1:
        raise ConfigError(
            "decay is the share of the memory to forget: from 0 on and below 1. Got "
            f"{decay!r}. Change it, or fit again to forget everything."
        )
    return float(decay)


def refuse_classes(classes: Any) -> None:
    """Raise DataError: classes go with one class a row."""
    if classes is not None:
        raise DataError(
            "classes lists the classes of one class a row. y has several labels. Leave it out."
        )
