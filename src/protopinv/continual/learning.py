"""What a fitted model can still learn and forget, without the rows it was fitted on."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.continual.banks import answers, grown, hidden_of, with_outputs, without_output
from protopinv.continual.inputs import in_one_scale, widened_to
from protopinv.continual.replay import New, State
from protopinv.continual.update import Settings, shrunk, update
from protopinv.errors import ConfigError, DataError
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.model import FitOptions, Model, merged_network
from protopinv.model.fitting import memory_named, require_some, shape_of
from protopinv.model.warm_start import continued, require_same_targets
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.rows import MemoryRows, Piece, RowSource, concatenated
from protopinv.tables.rows import encode_grown, grow_table
from protopinv.train.config import TrainConfig, is_auto
from protopinv.train.data import StreamedRows, data_in_memory
from protopinv.train.history import Observer, progress
from protopinv.train.machine import threads_for
from protopinv.train.resolve import have_one_unit, resolved
from protopinv.train.rows import Rows, View
from protopinv.train.survey import check_features, mass_of, rows_a_piece
from protopinv.train.targets import class_factors, classes_of, few, label_names
from protopinv.train.training import Job

# Rows of a long source that are learned at a time.
SOURCE_ROWS = 50_000
# Scaled numbers beyond this cannot be squared and added up.
LARGEST_ROW = 1e150
# Drawn rows on which a change is measured.
JUDGED_ROWS = 5_000


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """How to learn from more rows.

    ``decay`` is the share of the replay memory to forget first. ``classes`` are all there may be,
    if a user lists them. Predictions of numbers are ``bounded`` by the targets so far.
    """

    decay: float = 0.0
    observer: Observer | None = None
    max_prototypes: int | None = None
    classes: NDArray[Any] | None = None
    bounded: bool = True


def learn(
    model: Model, rows: RowSource, config: TrainConfig, options: FitOptions, how: LearnOptions
) -> Model:
    """The model after more rows, a stretch of a long source at a time."""
    if rows.in_memory:
        return _learn(model, rows, config, options, how)
    is_counted = False
    for stretch in _stretches(rows):
        if stretch.weight is None or np.any(stretch.weight):
            model = _learn(model, stretch, config, options, how)
            how, is_counted = replace(how, decay=0.0), True  # of what was known before the call
    if not is_counted:
        require_some(np.zeros(1))
    return model


def _stretches(source: RowSource) -> Iterator[MemoryRows]:
    """Rows to learn at a time, those of a table with text as a frame."""
    pieces: list[Piece] = []
    for block in source.blocks:
        for piece in source.read(block, rows_a_piece(source)):
            mass_of(block, piece)  # raises for what is no weight
            if not source.is_framed:
                check_features(source, block, piece)
            pieces.append(piece)
            if sum(len(each.y) for each in pieces) >= SOURCE_ROWS:
                yield _joined(source, pieces)
                pieces = []
    if pieces:
        yield _joined(source, pieces)


def _joined(source: RowSource, pieces: list[Piece]) -> MemoryRows:
    X, y, weight = concatenated(pieces)
    return MemoryRows(X, y, weight, names=source.names, is_framed=source.is_framed)


def _learn(
    model: Model, rows: RowSource, config: TrainConfig, options: FitOptions, how: LearnOptions
) -> Model:
    """The model after rows that are in memory."""
    bank, memory = model.prototypes, model.replay
    X, y, weight = rows.load()
    table, old = None, model.table
    if old is not None:
        table, X = grow_table(old, X)
    counts = _that_count(y, weight, options.class_weight)
    X, y, weight = X[counts], y[counts], None if weight is None else weight[counts]
    model = _for_targets(model, y, how)
    objective = model.objective
    factors = _class_factors(model, y, weight, options.class_weight)
    if table is not None and old is not None:
        table, X = encode_grown(old, table, X, _columns(objective, y), weight)
        model = widened_to(model, table)
    limit = memory.limit if options.memory == 0 else options.memory
    n_rows = round(float(memory.parts.rows.sum())) + len(X)
    memory = model.replay.limited(limit, n_rows, objective.n_groups)
    shape = shape_of(len(X), X.shape[1], objective.n_groups, options.device, have_one_unit(X))
    learning = replace(continued(config, model), image_shape=model.config.image_shape)
    learning = resolved(replace(learning, early_stopping=False), shape)
    learning = replace(learning, label_smoothing=model.config.label_smoothing)
    started = time.perf_counter()
    with (
        progress(enabled=options.verbose, also=how.observer) as observer,
        memory_named(),
        threads_for(shape, objective.n_outputs, learning, options.device),
    ):
        new = _seen(model, X, y, weight, learning, options.device)
        state = State(
            model.prototypes, memory, objective, model.n_frozen, model.last_bank, model.n_calls
        )
        features, state, Z = in_one_scale(model.features, state, new.Z, new.weight, model.config)
        settings = Settings(
            learning,
            Job(
                options.seed,
                options.device,
                lambda: time.perf_counter() - started,
                observer=observer,
            ),
            batch_is_free=is_auto(config.batch_size),
            is_wider=model.prototypes.inputs.shape != bank.inputs.shape,
            decay=how.decay,
            factors=factors,
            max_prototypes=how.max_prototypes,
        )
        state, history = update(state, replace(new, Z=Z), settings)
    if history.ending == "interrupted":
        raise KeyboardInterrupt
    return with_state(replace(model, features=features, history=history), state)


def _seen(
    model: Model,
    X: NDArray[Any],
    y: NDArray[Any],
    weight: NDArray[np.float64] | None,
    config: TrainConfig,
    device: torch.device,
) -> New:
    """New rows as the network sees them."""
    front = None if model.front is None else model.front.to(device)
    exact = getattr(torch, config.dtype)
    view = View(front, model.features.to(device), model.objective, exact, device)
    data = data_in_memory(MemoryRows(X, y, weight), model.objective, 0).placed(device)
    rows = StreamedRows(data, view).resident()
    if not isinstance(rows, Rows):
        raise AssertionError("rows are in memory")
    if not bool((rows.X.abs() <= LARGEST_ROW).all()):
        raise DataError(
            "Rows must be of a size like those of the fit. Some of these are too large to be "
            "squared once they are scaled as those were. Leave them out, or fit again."
        )
    mass = np.ones(len(X)) if weight is None else weight
    return New(rows.X, rows.y, torch.from_numpy(mass).to(device))


def with_state(model: Model, state: State) -> Model:
    """The model with these banks and this replay memory, and the network they make."""
    fault = state.memory.fault(model.features.n_components, state.objective.n_outputs)
    if fault is not None:
        raise DataError(
            f"A model must be of a kind that can be saved and learn further. Here {fault}. Scale "
            "the rows, or fit again."
        )
    config = replace(model.config, n_prototypes=state.bank.n_prototypes)
    features = without_ignored(model.features, state.memory)
    return replace(
        model,
        network=merged_network(state.bank, features, state.objective, config, model.calibration),
        objective=state.objective,
        config=config,
        bank=state.bank,
        memory=state.memory,
        last_bank=state.last,
        n_calls=state.n_calls,
        n_frozen=state.n_frozen,
    )


def without_ignored(features: FeatureMap, memory: Memory) -> FeatureMap:
    """The feature map without the directions that the network ignores since a class was added."""
    if not memory.is_cut or memory.basis is None:
        return features
    inside = memory.basis @ memory.basis.T
    return replace(features, basis=inside if features.basis is None else features.basis @ inside)


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


def _for_targets(model: Model, y: NDArray[Any], how: LearnOptions) -> Model:
    """The model with an output for every class that has come; raises DataError for others."""
    objective = model.objective
    if isinstance(objective, Classes):
        labels = _labels(model, objective, y, how.classes)
        is_closed = model.is_closed or how.classes is not None
        return replace(_with_classes(model, objective, labels), is_closed=is_closed)
    if how.classes is not None:
        raise DataError(
            "classes lists the classes of one class a row. y has several labels. Leave it out."
        )
    if isinstance(objective, Labels):
        n = objective.n_outputs
        if y.ndim != 2 or y.shape[1] != n or not np.isin(y, (0, 1)).all():
            raise DataError(
                f"This model has {n} labels a row: y must be a matrix of 0 and 1 with {n} columns. "
                f"It has the shape {y.shape}. Give all labels of the fit, and no others."
            )
        return model
    if not isinstance(objective, Numbers):
        raise AssertionError("an objective is of classes, labels or numbers")
    return replace(model, objective=require_same_targets(objective, y, bounded=how.bounded))


def _labels(
    model: Model, objective: Classes, y: NDArray[Any], listed: NDArray[Any] | None
) -> NDArray[Any]:
    """Classes of the model and new ones, sorted; raises DataError for those not allowed."""
    if y.ndim > 1:
        raise DataError(
            f"This model has one class a row. y has {y.shape[1]} columns. Give one of them."
        )
    if listed is not None:
        classes = np.union1d(objective.labels, listed)
        unlisted = np.setdiff1d(y, classes)
        if len(unlisted):
            raise DataError(
                f"classes must list every class of y: {few(classes.tolist())}. y holds "
                f"{few(unlisted.tolist())} too. Add these to classes, or leave it out."
            )
        return classes
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


def _with_classes(model: Model, objective: Classes, labels: NDArray[Any]) -> Model:
    """The model with an output for every class, in their order."""
    if len(labels) == objective.n_outputs:
        return model
    places = torch.from_numpy(np.searchsorted(labels, objective.labels))
    bank = with_outputs(model.prototypes, places, len(labels))
    memory = model.replay.renumbered(places, len(labels))
    return replace(model.with_bank(bank), memory=memory, objective=classes_of(labels))


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


@dataclass(frozen=True)
class Pruned:
    """How many prototypes every bank had and has, and what their removal cost.

    ``change`` is how far outputs for rows drawn from the replay memory moved, root mean square, in
    standard deviations of the outputs; ``agreement`` is the share of these rows with the same
    prediction as before: the same class, the same labels, a number within a tenth of a deviation.
    """

    n_before: int
    n_prototypes: int
    change: float
    agreement: float


def grow(model: Model, n: int, seed: int) -> Model:
    """The model with ``n`` more prototypes in every bank, at rows drawn from the replay memory."""
    require_count("n", n, 1)
    bank, architecture = model.prototypes, model.config.architecture
    members, generator = bank.n_members, Generator().manual_seed(seed)
    drawn, _ = model.replay.drawn(max(n * members * 10, 100), generator)
    picked = torch.randperm(len(drawn), generator=generator)[: n * members]
    inputs = drawn[picked].view(members, n, -1)
    bank = grown(bank, inputs, *hidden_of(bank, architecture, inputs))
    return with_state(model, State(bank, model.replay, model.objective, model.n_frozen))


def freeze(model: Model, n: int | None = None) -> Model:
    """The model with the first ``n`` prototypes of every bank fixed; None: all, 0: none."""
    bank = model.prototypes
    n = bank.n_prototypes if n is None else n
    require_count("n", n, 0)
    return replace(model, n_frozen=min(n, bank.n_prototypes), last_bank=None)


def prune(model: Model, n_prototypes: int, seed: int) -> tuple[Model, Pruned]:
    """The model with so many prototypes in every bank, the most important, and what that cost."""
    require_count("n_prototypes", n_prototypes, 1)
    bank, memory, architecture = model.prototypes, model.replay, model.config.architecture
    generator, n_frozen = Generator().manual_seed(seed), min(model.n_frozen, n_prototypes)
    smaller = shrunk(bank, memory, n_prototypes, model.config, generator, n_frozen=n_frozen)
    rows = memory.drawn(JUDGED_ROWS, generator)[0].double()
    before, after = (answers(each, architecture, rows) for each in (bank, smaller))
    cost = _moved(before, after, model.objective)
    pruned = Pruned(bank.n_prototypes, smaller.n_prototypes, *cost)
    return with_state(model, State(smaller, memory, model.objective, n_frozen)), pruned


def _moved(before: Tensor, after: Tensor, objective: Objective) -> tuple[float, float]:
    """How far outputs moved, in deviations, and the share of rows with the same prediction."""
    deviation = float(before.std(0, correction=0).square().mean().sqrt())
    change = float((after - before).square().mean().sqrt()) / (deviation or 1.0)
    if objective.are_odds:
        old, new = (objective.decode(each.numpy()) for each in (before, after))
        same = np.asarray(old == new).reshape(len(before), -1).all(1)
        return change, float(same.mean())
    near = (after - before).abs() <= 0.1 * before.std(0, correction=0)
    return change, float(near.all(1).double().mean())


def forget(model: Model, label: Any) -> Model:
    """The model without a class: its replay memory and its output go, others are as they were.

    Rows of this class have still shaped the hidden units; of the memory nothing of it is left.
    Training rows in ``examples`` go too, all of them: their classes are not stored.
    """
    memory, objective = model.replay, model.objective
    if not isinstance(objective, Classes):
        raise ConfigError("A class can be forgotten. This model has several labels a row.")
    places = np.flatnonzero(objective.labels == label)
    if not len(places) or objective.n_outputs < 3:
        raise DataError(
            "A class of the model can be forgotten while two others are left. Got "
            f"{label!r}, and there are {few(objective.labels.tolist())}. Choose one of these."
        )
    number = int(places[0])
    memory = memory.without(number)
    if not len(memory.parts):
        raise DataError(
            "A class can be forgotten while the memory has rows of others. That of this model "
            f"has rows of {few(objective.labels[places].tolist())} alone. Fit again without them."
        )
    smaller = classes_of(np.delete(objective.labels, number))
    bank = without_output(model.prototypes, number)
    model = replace(model, examples=model.examples[:0].copy())
    return with_state(model, State(bank, memory, smaller, model.n_frozen))


def require_count(name: str, value: Any, least: int) -> None:
    """Raise ConfigError unless this is a whole number from ``least`` on."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ConfigError(
            f"{name} must be a whole number from {least} on. Got {value!r}. Change it."
        )
