"""The one way from rows to a model, wherever the rows are."""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from torch import Tensor

from protopinv.callbacks import Callbacks, TrainingStart
from protopinv.errors import (
    ConfigError,
    DataError,
    NotLearnedWarning,
    SlowRowsWarning,
    TrainingError,
)
from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.memory import Memory, least_limit, require_room
from protopinv.model.model import Model
from protopinv.model.resuming import Saving, fingerprint, is_resumed, require_alike
from protopinv.objective import Classes, Numbers, Objective
from protopinv.rows import MemoryRows, RowSource, WeightedRows, cached
from protopinv.tables.rows import encode_by, encode_table, few_rows
from protopinv.train.config import TrainConfig, is_auto
from protopinv.train.data import ArrayData, Data, StreamData
from protopinv.train.prepare import Prepared, prepare, surveyed
from protopinv.train.progress import progress
from protopinv.train.ranks import Ranks, join, local_device, own_number
from protopinv.train.resolve import (
    FEW_COLUMNS,
    UNIT_ROWS,
    DataShape,
    have_one_unit,
    resolve,
    resolved,
)
from protopinv.train.survey import Split, pieces_of
from protopinv.train.targets import (
    LabelCounts,
    Targets,
    check_class_weight,
    class_factors,
    numbers_of,
    require_scale,
)
from protopinv.train.threads import one_thread, threads_for
from protopinv.train.training import (
    Job,
    Start,
    Trained,
    merged_network,
    replay_memory,
    train,
)

LINALG_ERROR: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
# Blocks of a source that show what its columns are like.
SHOWN_BLOCKS = 8
# A loss this many times that of the best constant has learned nothing.
NOTHING_LEARNED = 1.05


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a fit takes beside its rows and hyperparameters.

    ``memory`` limits the numbers of the replay memory; None leaves that to the rule. With
    ``fixed_seed`` the seed is the user's, and a checkpoint with another is refused.
    """

    seed: int
    device: torch.device
    fixed_seed: bool = False
    columns: Mapping[str, str] | None = None
    class_weight: Any = None
    memory: int | None = None
    verbose: bool = False
    parameters: Mapping[str, Any] | None = None


class _Plan(NamedTuple):
    """Rows with their objective, the candidates to screen, and where these are trained."""

    data: Data
    objective: Objective
    shape: DataShape
    configs: tuple[TrainConfig, ...]
    job: Job
    examples: NDArray[Any]


def fit_rows(
    rows: RowSource,
    targets: Targets,
    config: TrainConfig,
    options: FitOptions,
    *,
    start: Model | None = None,
    callbacks: Callbacks | None = None,
    saving: Saving | None = None,
) -> Model:
    """Train on rows, and return the model.

    ``targets`` collects statistics of the targets, and says what the network is trained for. With
    ``start`` training starts from the banks and the features of that model (warm start).
    """
    started = time.perf_counter()
    callbacks, saving = callbacks or Callbacks(None, None), saving or Saving()
    rows, weights = with_class_weight(rows, options.class_weight)
    if rows.is_framed and start is not None and start.table is not None:
        rows = encode_by(start.table, rows)
    elif rows.is_framed:
        rows, targets = encode_table(rows, options.columns, targets), targets.fresh()
    make_plan = _plan_in_memory if rows.in_memory else _plan_stream
    plan = make_plan(rows, targets, config, options, saving, start)
    data, objective, shape, configs, job, _ = plan
    resumed = is_resumed(job.checkpoints)
    callbacks.begin(TrainingStart(configs, shape.n_rows, shape.n_features, resumed))
    with (
        progress(enabled=options.verbose, also=callbacks.observer) as observer,
        memory_named(),
        threads_for(shape, objective.n_outputs, configs[0], job.device) as workers,
        rows.pinned(job.device.type == "cuda"),
    ):
        job = replace(
            job,
            observer=observer,
            workers=workers,
            seconds=lambda: time.perf_counter() - started,
        )
        begin = None if start is None else Start(start.prototypes, start.front, start.features)
        fitted = None if begin is None else (begin.front, begin.features)
        prepared = prepare(data, configs[0], job.device, seed=job.seed, fitted=fitted)
        if options.memory:
            n_components = prepared.features.n_components
            require_room(options.memory, least_limit(n_components, objective.n_groups))
        trained = train(prepared, objective, configs, job, begin)
        memory = replay_memory(prepared, objective, trained, options.memory, job.seed)
    if memory is not None and weights is not None:
        # the memory counts rows; what their class counts comes in where it is used
        memory = memory.reweighted(1 / weights.of(objective))
    _warn_of(trained)
    return _assembled(rows, plan, prepared, trained, memory)


def _assembled(
    rows: RowSource, plan: _Plan, prepared: Prepared, trained: Trained, memory: Memory | None
) -> Model:
    features, config = prepared.features.to("cpu"), trained.config
    network = merged_network(trained.bank, features, plan.objective, config, trained.calibration)
    return Model(
        objective=plan.objective,
        network=network,
        features=features,
        config=config,
        history=trained.history,
        n_columns=rows.n_features if rows.names is None else len(rows.names),
        feature_names=rows.names if rows.is_named else None,
        target_names=rows.target_names,
        table=rows.table,
        front=None if prepared.front is None else prepared.front.to("cpu"),
        bank=trained.bank,
        calibration=trained.calibration,
        memory=memory,
        candidates=trained.candidates,
        image_range=range_of_images(plan.examples, config),
        examples=plan.examples,
    )


def _plan_in_memory(
    rows: RowSource,
    targets: Targets,
    config: TrainConfig,
    options: FitOptions,
    saving: Saving,
    start: Model | None,
) -> _Plan:
    """All rows as arrays; arrays are not shared among ranks, and the first rank writes."""
    X, y, weight = rows.load()
    if weight is not None and not weight.all():
        require_some(weight)
        counts = weight > 0
        X, y, weight = X[counts], y[counts], weight[counts]
    mass = np.ones(len(y)) if weight is None else weight
    targets.add(y, mass, "y")
    objective = targets.objective((y, mass))
    if start is not None:
        objective = continued_objective(objective, start)
        require_same_shape(config, start)
        config = continued(config, start)
    ranks = Ranks(own_number(), 1)
    checkpoints, seed = saving.checkpoints(ranks, options.seed, is_fixed=options.fixed_seed)
    # relative to the largest weight, so that no sum of them overflows or vanishes
    unit = float(mass.max())
    share = None if weight is None else weight / unit
    data = ArrayData(X, objective.encode(y), objective, share, unit, seed)
    shape = shape_of(len(X), X.shape[1], objective.n_groups, options.device, have_one_unit(X))
    configs = candidates(config, shape)
    data = replace(data, held_out=hold_out(data.groups(), configs[0].held_out, seed))
    if checkpoints is not None:
        facts = fingerprint(MemoryRows(X, y, weight), configs, objective)
        checkpoints.begin(facts, seed, keep_seed=options.fixed_seed)
    job = Job(seed, options.device, float, checkpoints=checkpoints)
    examples = few_rows(X) if rows.examples is None else rows.examples
    return _Plan(data, objective, shape, configs, job, examples)


def _plan_stream(
    rows: RowSource,
    targets: Targets,
    config: TrainConfig,
    options: FitOptions,
    saving: Saving,
    start: Model | None,
) -> _Plan:
    """Rows that are read a piece at a time, alone or as one of several ranks."""
    if start is not None:
        raise ConfigError(
            "A warm start needs rows in memory. These are read a piece at a time. Set "
            "warm_start=False, or give arrays."
        )
    if config.image_copies:
        raise ConfigError(
            "Copies of images are made of rows in memory. These are read a piece at a time. Set "
            "copies=None, or give arrays."
        )
    examples, rows = rows.examples, cached(rows)
    device = local_device(options.device)
    ranks = join(device)
    require_alike(ranks, rows, options.parameters or {}, saving)
    checkpoints, seed = saving.checkpoints(ranks, options.seed, is_fixed=options.fixed_seed)
    one_unit = rows.n_features > FEW_COLUMNS and have_one_unit(_some_rows(rows))
    # nothing that is asked before the survey depends on the number of classes
    shape = shape_of(rows.n_rows, rows.n_features, 2, device, one_unit)
    # files are decoded beside it, which takes a thread of its own
    with one_thread():
        first = resolved(config, shape)
        survey, objective = surveyed(rows, targets, first, seed=seed, ranks=ranks)
    shape = replace(shape, n_groups=objective.n_groups)
    configs = candidates(config, shape)
    data = StreamData(rows, objective, survey, Split(seed, configs[0].held_out), ranks)
    if checkpoints is not None:
        facts = fingerprint(rows, configs, objective)
        checkpoints.begin(facts, seed, keep_seed=options.fixed_seed)
    job = Job(seed, device, float, ranks, checkpoints)
    if examples is None:
        examples = few_rows(survey.sample.X)
    return _Plan(data, objective, shape, configs, job, examples)


def _some_rows(source: RowSource) -> NDArray[Any]:
    """Rows from all over a source, as files may be sorted."""
    blocks = source.blocks[:: max(1, len(source.blocks) // SHOWN_BLOCKS)]
    n_rows = max(1, UNIT_ROWS // len(blocks))
    starts = (islice(source.read(block, n_rows), 1) for block in blocks)
    return np.concatenate([piece.X for start in starts for piece in start])


def shape_of(
    n_rows: int, n_features: int, n_groups: int, device: torch.device, one_unit: bool
) -> DataShape:
    """The facts that the rules for "auto" look at."""
    fast, on_gpu = fast_bfloat16(device), device.type == "cuda"
    return DataShape(n_rows, n_features, n_groups, fast, on_gpu, one_unit)


def candidates(config: TrainConfig, shape: DataShape) -> tuple[TrainConfig, ...]:
    """Configurations to screen, with rows in bfloat16 only where the device is fast at it."""
    configs = resolve(config, shape)
    if configs[0].row_dtype != "bfloat16" or shape.fast_bfloat16:
        return configs
    warnings.warn(
        SlowRowsWarning(
            "row_dtype='bfloat16' needs a device with instructions for it. This one has none, and "
            "would be many times slower than with float32. Went on with row_dtype='same'."
        ),
        stacklevel=4,
    )
    return tuple(replace(each, row_dtype="same") for each in configs)


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
    return WeightedRows(rows, *weights), weights


# What the banks of a warm start were trained with.
KEPT = ("activation", "ridge", "lr")


def require_same_shape(config: TrainConfig, model: Model) -> None:
    """Raise ConfigError where parameters ask for other banks than the model has."""
    for name, value in _shape_of_banks(model).items():
        if is_auto(getattr(config, name)):
            continue
        asked = config.widths if name == "hidden_sizes" else getattr(config, name)
        if asked != value:
            raise ConfigError(
                f"A warm start keeps the shape of the last fit, {name}={value!r}. Got {asked!r}. "
                "Set warm_start=False."
            )


def continued(config: TrainConfig, model: Model) -> TrainConfig:
    """What training from the banks of a model resolves: their shape and kind, and no folds."""
    same = {n: getattr(model.config, n) for n in KEPT if is_auto(getattr(config, n))}
    held_out = config.early_stopping is True
    return replace(config, **same, **_shape_of_banks(model), early_stopping=held_out)


def _shape_of_banks(model: Model) -> dict[str, Any]:
    bank = model.prototypes
    return {
        "n_prototypes": bank.n_prototypes,
        "hidden_sizes": tuple(H.shape[-1] for H in bank.hidden),
        "n_members": bank.n_members,
        "learn_scale": bank.scale is not None,
    }


def continued_objective(objective: Objective, model: Model) -> Objective:
    """The objective of new rows in the units of a model; raises DataError for another kind."""
    before = model.objective
    classes = [each.labels.tolist() for each in (before, objective) if isinstance(each, Classes)]
    if len(classes) == 2 and classes[0] != classes[1]:
        raise DataError(
            f"A warm start needs the classes of the last fit: {classes[0]}. y has {classes[1]}. "
            "Set warm_start=False."
        )
    if type(objective) is not type(before) or objective.n_outputs != before.n_outputs:
        raise DataError(
            f"A warm start needs the targets of the last fit: {before.n_outputs} outputs. y asks "
            f"for {objective.n_outputs}. Set warm_start=False."
        )
    if isinstance(objective, Numbers) and isinstance(before, Numbers):
        same_units = replace(before, loss=objective.loss, is_column=objective.is_column)
        return same_units.within(objective)
    return objective


def require_targets(objective: Numbers, y: NDArray[Any], *, bounded: bool) -> Numbers:
    """The objective after more targets in its units; raises DataError for those that do not fit."""
    numbers = numbers_of(y, "y")
    n_targets = 1 if numbers.ndim == 1 else numbers.shape[1]
    if n_targets != objective.n_outputs:
        raise DataError(
            f"This model has {objective.n_outputs} targets a row. y has {n_targets}. Give those of "
            "the fit."
        )
    require_scale(objective, numbers)
    return objective.bounded_by(numbers) if bounded else objective


def hold_out(groups: NDArray[Any], fraction: float, seed: int) -> NDArray[Any] | None:
    """Row numbers for validation: stratified where every group of rows allows it, else random."""
    if fraction == 0:
        return None
    counts = np.bincount(groups)
    n_held = round(fraction * len(groups))
    if not 1 <= n_held < len(groups):
        raise DataError(
            f"A hold-out needs at least one row on each side. {len(groups)} rows with "
            f"validation_fraction={fraction} leave {n_held} to validate on. "
            "Give more rows, or set validation_fraction=0."
        )
    divisible = counts.min() >= 2 and len(counts) <= n_held <= len(groups) - len(counts)
    _, held_out = train_test_split(
        np.arange(len(groups)),
        test_size=n_held,
        random_state=seed,
        stratify=groups if divisible else None,
    )
    return np.sort(held_out)


def require_some(weight: NDArray[np.float64]) -> None:
    """Raise DataError where no row counts."""
    if not weight.any():
        raise DataError(
            "Some rows must count. All weights are zero. Give larger ones, or leave them out."
        )


def range_of_images(rows: NDArray[Any], config: TrainConfig) -> tuple[float, float] | None:
    """The least and the largest pixel; None for rows that are no images, and for none at all."""
    if config.image_shape is None or not len(rows):
        return None
    return float(rows.min()), float(rows.max())


@contextmanager
def memory_named() -> Iterator[None]:
    """Say in plain words that memory ran out; torch on a CPU raises a bare RuntimeError."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        out = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if out or "alloc" in str(error) or "Storage size" in str(error):
            raise TrainingError(
                "Training must fit in memory. It did not. Lower n_prototypes, hidden_sizes or "
                "n_components."
            ) from error
        raise


@contextmanager
def solvable() -> Iterator[None]:
    """Say in plain words that a matrix has no decomposition, for numbers that are far too large."""
    try:
        yield
    except LINALG_ERROR as error:
        raise TrainingError(
            "Rows, and what a model knows of earlier ones, must be of a size to calculate with. "
            f"Here a matrix cannot be taken apart ({str(error).strip()[:80]}). Scale the rows, or "
            "fit again."
        ) from error


def _warn_of(trained: Trained) -> None:
    """Warn of what a user should know of a training."""
    history, config = trained.history, trained.config
    for warning in history.warnings():
        warnings.warn(warning, stacklevel=4)
    losses = history.loss
    if trained.was_interrupted or not losses or history.kept_epoch is None:
        return
    last = losses[min(history.kept_epoch + 1, len(losses) - 1)]
    if not last <= NOTHING_LEARNED * trained.constant_loss + 1e-6:
        warnings.warn(
            NotLearnedWarning(
                f"The network should fit its rows better than a constant does. Its loss is "
                f"{last:.4g}, that of a constant {trained.constant_loss:.4g}. Lower lr (it was "
                f"{config.lr:g}), or train for more epochs (max_epochs={config.max_epochs})."
            ),
            stacklevel=4,
        )
