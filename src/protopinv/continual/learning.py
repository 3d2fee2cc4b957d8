"""A fitted model learns from more rows, without those it was fitted on."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.continual.editing import in_one_scale, renewed, widened_to, with_classes
from protopinv.continual.update import LearnOptions, New, Settings, update
from protopinv.errors import DataError
from protopinv.fitting import (
    FitOptions,
    continued,
    require_some,
    shape_of,
)
from protopinv.model import Model
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.rows import MemoryRows, Piece, RowSource, concatenated
from protopinv.tables.rows import encode_grown, grow_table
from protopinv.train.config import TrainConfig, is_auto
from protopinv.train.history import progress
from protopinv.train.machine import threads_for
from protopinv.train.resolve import have_one_unit, resolved
from protopinv.train.rows import View
from protopinv.train.survey import check_piece, pieces_of
from protopinv.train.targets import (
    LabelCounts,
    NumberStats,
    Targets,
    class_factors,
    few,
    label_names,
    numbers_of,
    require_scale,
)
from protopinv.train.training import Job

# Rows of a long source that are learned at a time.
SOURCE_ROWS = 50_000
# Scaled numbers beyond this cannot be squared and added up.
LARGEST_ROW = 1e150


def learn(
    model: Model, rows: RowSource, config: TrainConfig, options: FitOptions, how: LearnOptions
) -> Model:
    """The model after more rows, a stretch of a long source at a time."""
    if rows.in_memory:
        return model.changed(lambda part: _learn(part, rows, config, options, how))
    learned = model
    for stretch in _stretches(rows):
        if stretch.weight is None or np.any(stretch.weight):
            learned = learn(learned, stretch, config, options, how)
            how = replace(how, decay=0.0)  # of what was known before the call
    if learned is model:
        require_some(np.zeros(1))
    return learned


def _stretches(source: RowSource) -> Iterator[MemoryRows]:
    """Rows to learn at a time, those of a table with text as a frame."""
    pieces, n_left = list[Piece](), source.n_rows
    for block, piece in pieces_of(source, source.blocks):
        check_piece(source, block, piece)
        pieces.append(piece)
        n_left -= len(piece.y)
        if n_left == 0 or sum(len(each.y) for each in pieces) >= SOURCE_ROWS:
            X, y, weight = concatenated(pieces)
            yield MemoryRows(X, y, weight, names=source.names, is_framed=source.is_framed)
            pieces = []


def _learn(
    model: Model, rows: RowSource, config: TrainConfig, options: FitOptions, how: LearnOptions
) -> Model:
    """One model of an ensemble after rows that are in memory."""
    n_inputs = model.prototypes.inputs.shape[2]
    model, rows, factors = _opened(model, rows, how.targets, options)
    n_groups, batch_is_free = model.objective.n_groups, is_auto(config.batch_size)
    one_unit = have_one_unit(rows.X)
    shape = shape_of(rows.n_rows, rows.n_features, n_groups, options.device, one_unit)
    same = {name: getattr(model.config, name) for name in ("image_shape", "label_smoothing")}
    config = resolved(replace(continued(config, model), early_stopping=False, **same), shape)
    started = time.perf_counter()
    with (
        progress(enabled=options.verbose, also=how.observer) as observer,
        threads_for(shape, model.objective.n_outputs, config, options.device),
    ):
        seen = _as_seen(model, rows, config, options.device)
        model, Z = in_one_scale(model, seen.Z, seen.weight)
        seconds = lambda: time.perf_counter() - started  # noqa: E731
        job = Job(options.seed, options.device, seconds, observer=observer)
        is_wider = model.prototypes.inputs.shape[2] != n_inputs
        settings = Settings(config, job, how, batch_is_free, is_wider, factors)
        model = update(model, replace(seen, Z=Z), settings)
    if model.history.ending == "interrupted":
        raise KeyboardInterrupt
    return renewed(model)


def _opened(
    model: Model, rows: RowSource, targets: Targets, options: FitOptions
) -> tuple[Model, MemoryRows, Tensor | None]:
    """The model with inputs, outputs and memory for more rows; those that count; class factors."""
    memory, old = model.replay, model.table
    X, y, weight = rows.load()
    if old is not None:
        table, X = grow_table(old, X)
    counts = _that_count(y, weight, options.class_weight)
    X, y, weight = X[counts], y[counts], None if weight is None else weight[counts]
    model = _for_targets(model, y, targets)
    factors = _class_factors(model, y, weight, options.class_weight)
    if old is not None:
        table, X = encode_grown(old, table, X, _columns(model.objective, y), weight)
        model = widened_to(model, table)
    limit = memory.limit if options.memory == 0 else options.memory
    n_rows = round(float(memory.gaussians.rows.sum())) + len(X)
    memory = model.replay.limited(limit, n_rows, model.objective.n_groups)
    return replace(model, memory=memory), MemoryRows(X, y, weight), factors


def _as_seen(model: Model, rows: MemoryRows, config: TrainConfig, device: torch.device) -> New:
    """New rows as the network sees them."""
    front = None if model.front is None else model.front.to(device)
    exact = getattr(torch, config.dtype)
    view = View(front, model.features.to(device), model.objective, exact, device)
    Z = view.inputs(rows.X)
    if not bool((Z.abs() <= LARGEST_ROW).all()):
        raise DataError(
            "Rows must be of a size like those of the fit. Some of these are too large to be "
            "squared once they are scaled as those were. Leave them out, or fit again."
        )
    mass = np.ones(rows.n_rows) if rows.weight is None else rows.weight
    return New(Z, view.targets(rows.y), torch.from_numpy(mass).to(device))


def _that_count(
    y: NDArray[Any], weight: NDArray[np.float64] | None, class_weight: Any
) -> NDArray[np.bool_]:
    """Which rows have a weight, and are of a class that has one."""
    counts = np.ones(len(y), dtype=bool) if weight is None else weight > 0
    if isinstance(class_weight, dict) and y.ndim == 1:
        weightless = [label for label, number in class_weight.items() if number == 0]
        labels, codes = np.unique(y, return_inverse=True)
        counts &= np.array([label not in weightless for label in labels.tolist()])[codes]
    require_some(counts.astype(np.float64))
    return counts


def _for_targets(model: Model, y: NDArray[Any], targets: Targets) -> Model:
    """The model with an output for every class that has come; raises DataError for others."""
    objective = model.objective
    if isinstance(objective, Classes):
        if not isinstance(targets, LabelCounts):
            raise DataError(
                f"This model has one class a row. y has {y.shape[1]} columns. Give one of them."
            )
        labels = _labels(model, objective, y, targets.listed)
        is_closed = model.is_closed or targets.listed is not None
        return replace(with_classes(model, objective, labels), is_closed=is_closed)
    if isinstance(objective, Labels):
        n = objective.n_outputs
        if y.ndim != 2 or y.shape[1] != n or not np.isin(y, (0, 1)).all():
            raise DataError(
                f"This model has {n} labels a row: y must be a matrix of 0 and 1 with {n} columns. "
                f"It has the shape {y.shape}. Give all labels of the fit, and no others."
            )
        return model
    if not isinstance(objective, Numbers) or not isinstance(targets, NumberStats):
        raise AssertionError("an objective is of classes, labels or numbers")
    numbers = numbers_of(y, "y")
    n_targets = 1 if numbers.ndim == 1 else numbers.shape[1]
    if n_targets != objective.n_outputs:
        raise DataError(
            f"This model has {objective.n_outputs} targets a row. y has {n_targets}. Give those of "
            "the fit."
        )
    require_scale(objective, numbers)
    return replace(model, objective=objective.bounded_by(numbers) if targets.bounded else objective)


def _labels(
    model: Model, objective: Classes, y: NDArray[Any], listed: NDArray[Any] | None
) -> NDArray[Any]:
    """Classes of the model and new ones, sorted; raises DataError for those not allowed."""
    if listed is not None:
        counts = LabelCounts(np.union1d(objective.labels, listed))
        counts.add(y, np.ones(len(y)), "y")
        return counts.objective().labels
    if (y.dtype.kind in "OU") != (objective.labels.dtype.kind in "OU"):
        raise DataError(
            f"Labels must be of one kind: this model has {few(objective.labels.tolist())}. y "
            f"holds {few(np.unique(y).tolist())}. Convert them."
        )
    new = np.setdiff1d(y, objective.labels)
    if len(new) and model.is_closed:
        raise DataError(
            f"An earlier call listed all classes: {few(objective.labels.tolist())}. y holds "
            f"{few(new.tolist())}. List these in classes to have them learned."
        )
    return np.union1d(objective.labels, new) if len(new) else objective.labels


def _class_factors(
    model: Model, y: NDArray[Any], weight: NDArray[np.float64] | None, class_weight: Any
) -> Tensor | None:
    """What rows of each class count; of old rows the replay memory knows how many there were."""
    objective = model.objective
    if class_weight is None or not isinstance(objective, Classes):
        return None
    n = objective.n_groups
    mass = np.bincount(objective.encode(y), weight, n) + model.replay.masses(n).numpy()
    if isinstance(class_weight, dict):  # classes without weight are not among the labels
        class_weight = {label: v for label, v in class_weight.items() if v != 0}
    there, factors = mass > 0, np.ones(n)
    factors[there] = class_factors(class_weight, objective.labels[there], mass[there])
    return torch.from_numpy(factors)


def _columns(objective: Objective, y: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    """Targets as columns to average, of all classes, by what they may be called in a table."""
    codes = np.asarray(objective.encode(y))
    if not isinstance(objective, Classes):
        columns = codes.reshape(len(codes), -1).T.astype(np.float64)
        return dict(zip(label_names(objective), columns, strict=True))
    columns = np.eye(objective.n_outputs)[codes].T
    names = [label_names(objective)]
    if objective.labels.dtype.kind == "f":
        # labels that are whole may have been integers when the table was made
        names.append([str(int(label)) for label in objective.labels.tolist()])
    return {name: column for each in names for name, column in zip(each, columns, strict=True)}
