"""From rows to a model, wherever the rows are; or from a model and more rows (warm start)."""

import copy
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protopinv.callbacks import Callbacks, TrainingStart
from protopinv.errors import (
    ConfigError,
    DataError,
    NotLearnedWarning,
    SlowRowsWarning,
    TrainingError,
)
from protopinv.kernels import fast_bfloat16
from protopinv.memory import Memory, begin_memory, checked_limit, least_limit
from protopinv.model import Model, merged_network, range_of_images
from protopinv.objective import Classes, Numbers, Objective
from protopinv.plain import plain
from protopinv.rows import MemoryRows, RowSource, cached, concatenated, digest, few_rows
from protopinv.tables.rows import encode_by, encode_table
from protopinv.train.checkpoint import Checkpoints, Every
from protopinv.train.config import CHECKPOINT_EVERY, TrainConfig, is_auto
from protopinv.train.data import Data, data_in_memory, with_class_weight
from protopinv.train.history import progress
from protopinv.train.machine import (
    ALONE,
    Ranks,
    join,
    local_device,
    one_thread,
    own_number,
    threads_for,
)
from protopinv.train.prepare import Prepared, class_masses, noise_generator, prepare
from protopinv.train.resolve import (
    FEW_COLUMNS,
    UNIT_ROWS,
    DataShape,
    have_one_unit,
    resolve,
    resolved,
)
from protopinv.train.rows import Rows
from protopinv.train.survey import Split, Survey, survey
from protopinv.train.targets import LabelCounts, Targets
from protopinv.train.training import Job, Start, Trained, train

LINALG_ERROR: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
# Blocks of a source that show what its columns are like.
SHOWN_BLOCKS = 8
# A loss this many times that of the best constant has learned nothing.
NOTHING_LEARNED = 1.05
# Ranks compare the first targets of so many blocks, which lie evenly among all.
SOME_BLOCKS = 16
SOME_ROWS = 1024
# What the banks of a warm start were trained with.
OF_BANKS = ("activation", "ridge", "lr")

# The candidates to screen, and what is known of the rows that they are resolved for.
Plan = tuple[Data, DataShape, tuple[TrainConfig, ...]]


@contextmanager
def training_errors() -> Iterator[None]:
    """Raise TrainingError, in plain words, where memory runs out or a matrix is far too large."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, LINALG_ERROR):
            raise TrainingError(
                "Rows, and what a model knows of earlier ones, must be of a size to calculate "
                f"with. Here a matrix cannot be taken apart ({str(error).strip()[:80]}). Scale the "
                "rows, or fit again."
            ) from error
        out = isinstance(error, MemoryError | torch.OutOfMemoryError)
        # torch on a CPU raises a bare RuntimeError
        if out or "alloc" in str(error) or "Storage size" in str(error):
            raise TrainingError(
                "Training must fit in memory. It did not. Lower n_prototypes, hidden_sizes or "
                "n_components."
            ) from error
        raise


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a fit takes beside its rows and hyperparameters.

    With ``fixed_seed`` the seed is the user's, and a checkpoint with another is refused.
    ``memory`` limits the numbers of the replay memory; None leaves that to the rule. The state of
    the training goes to a ``checkpoint`` after so many epochs or some time; ``resume`` continues
    from the one there is.
    """

    seed: int
    device: torch.device
    fixed_seed: bool = False
    columns: Mapping[str, str] | None = None
    class_weight: Any = None
    memory: int | None = None
    verbose: bool = False
    checkpoint: str | Path | None = None
    checkpoint_every: int | str = CHECKPOINT_EVERY
    resume: bool = False


@training_errors()
def fit_rows(
    rows: RowSource,
    targets: Targets,
    config: TrainConfig,
    options: FitOptions,
    *,
    start: Model | None = None,
    callbacks: Callbacks | None = None,
) -> Model:
    """Train on rows, and return the model.

    ``targets`` collects statistics of the targets, and says what the network is trained for. With
    ``start`` training starts from the banks and the features of that model (warm start).
    """
    started, callbacks = time.perf_counter(), callbacks or Callbacks(None, None)
    rows, class_weights = with_class_weight(rows, options.class_weight)
    if rows.is_framed and start is not None and start.table is not None:
        rows = encode_by(start.table, rows)
    elif rows.is_framed:
        rows = encode_table(rows, options.columns, copy.copy(targets))
    job = _job(rows, config, options, seconds=lambda: time.perf_counter() - started)
    planned = _planned_in_memory if rows.in_memory else _planned_in_pieces
    data, shape, configs = planned(rows, targets, config, job, start)
    objective, checkpoints = data.objective, job.checkpoints
    if checkpoints is not None:
        facts = {"rows": {**data.source.fingerprint(), "targets of": plain(objective.describe())}}
        facts["configuration"] = {str(n): plain(asdict(each)) for n, each in enumerate(configs)}
        checkpoints.begin(facts, job.seed, keep_seed=options.fixed_seed)
    resumed = checkpoints is not None and checkpoints.saved_seed() is not None
    beginning = TrainingStart(configs, shape.n_rows, shape.n_features, resumed)
    callbacks.tell("on_train_begin", beginning)
    with (
        progress(enabled=options.verbose, also=callbacks.observer) as observer,
        threads_for(shape, objective.n_outputs, configs[0], job.device) as workers,
        rows.pinned(job.device.type == "cuda"),
    ):
        starts = () if start is None else tuple(map(_start, start.parts))
        fitted = None if start is None else (start.front, start.features)
        prepared = prepare(data, configs[0], job.device, seed=job.seed, fitted=fitted)
        if rows.table is not None and prepared.features.basis is None:
            # directions of n-grams are smooth: steps of them would only be many
            prepared = replace(prepared, without_steps=rows.table.are_ngrams)
        if options.memory:
            n_components = prepared.features.n_components
            checked_limit(options.memory, least_limit(n_components, objective.n_groups))
        job = replace(job, observer=observer, workers=workers)
        parts, seen = train(prepared, objective, configs, job, starts)
        memory = None
        if options.memory != 0:
            memory = _replay_memory(prepared, data, parts[0], options.memory, job.seed)
    if memory is not None and class_weights is not None:
        # the memory counts rows; what their class counts comes in where it is used
        memory = memory.reweighted(1 / class_weights.of(objective))
    _warn_of(parts[0])
    examples = few_rows(data.survey.sample.X) if rows.examples is None else rows.examples
    shared: dict[str, Any] = {
        "objective": objective,
        "features": prepared.features.to("cpu"),
        "n_columns": rows.n_features if rows.names is None else len(rows.names),
        "feature_names": rows.names if rows.is_named else None,
        "target_names": rows.target_names,
        "table": rows.table,
        "front": None if prepared.front is None else prepared.front.to("cpu"),
        "memory": memory,
        "image_range": range_of_images(examples, parts[0].config),
        "examples": examples,
    }
    first, *others = (_model(part, shared) for part in parts)
    return replace(first, others=tuple(others), candidates=seen)


def _start(part: Model) -> Start:
    """Where a warm start of one model of an ensemble begins."""
    return Start(part.prototypes, steps=part.steps, weight=part.weight)


def _model(part: Trained, shared: Mapping[str, Any]) -> Model:
    """The model of one candidate that was trained; an ensemble has several."""
    features = shared["features"] if part.steps is None else None
    return Model(
        network=merged_network(
            part.bank, features, shared["objective"], part.config, part.calibration
        ),
        config=part.config,
        history=part.history,
        bank=part.bank,
        steps=part.steps,
        weight=part.weight,
        calibration=part.calibration,
        **shared,
    )


def _job(
    rows: RowSource, config: TrainConfig, options: FitOptions, seconds: Callable[[], float]
) -> Job:
    """Where training runs, with which seed, and where its checkpoints go.

    Rows in memory are not shared among ranks: each trains on all, and the first one writes. Others
    are read a piece at a time, alone or as one of several ranks.
    """
    device, ranks = options.device, Ranks(own_number(), 1)
    if not rows.in_memory:
        device = local_device(device)
        ranks = join(device)
        _require_alike(ranks, rows, config, options)
    checkpoints, seed = None, ranks.gather(options.seed)[0]
    if options.checkpoint is not None:
        every, path = Every.of(options.checkpoint_every), Path(options.checkpoint)
        checkpoints = Checkpoints(path, every, options.resume, ranks, seconds)
        saved = None if options.fixed_seed else checkpoints.saved_seed()
        seed = seed if saved is None else saved
    elif options.resume:
        raise ConfigError(
            "To resume needs a checkpoint to resume from. Got resume=True without one. Give "
            "checkpoint=path too."
        )
    return Job(seed, device, seconds, ALONE if rows.in_memory else ranks, checkpoints)


def _planned_in_memory(
    rows: RowSource, targets: Targets, config: TrainConfig, job: Job, start: Model | None
) -> Plan:
    """Data of rows in memory, and what "auto" is for these; a warm start keeps its banks."""
    X, y, weight = rows.load()
    if weight is not None and not weight.all():  # nothing sees rows of weight zero
        require_some(weight)
        counts = weight > 0
        X, y, weight = X[counts], y[counts], weight[counts]
    mass = np.ones(len(y)) if weight is None else weight
    targets.add(y, mass, "y")
    objective = targets.objective((y, mass))
    shape = shape_of(len(X), X.shape[1], objective.n_groups, job.device, have_one_unit(X))
    if start is None:
        configs = candidates(config, shape)
    else:
        objective = _continued_objective(objective, start)
        each = (continued(config, part, alike=True) for part in start.parts)
        configs = tuple(candidates(one, shape)[0] for one in each)
    source, crossed = MemoryRows(X, y, weight), configs[0].early_stopping == "cross"
    held_out = configs[0].held_out
    data = data_in_memory(
        source, objective, job.seed, targets=targets, share=held_out, folds=crossed
    )
    return data, shape, configs


def _planned_in_pieces(
    rows: RowSource, targets: Targets, config: TrainConfig, job: Job, start: Model | None
) -> Plan:
    """Data of rows that are read a piece at a time, after one pass over them, or one of the ranks.

    Before that there is a pass over targets, where PLS must know them.
    """
    for is_asked, what, remedy in (
        (start is not None, "A warm start needs", "warm_start=False"),
        (config.image_copies > 0, "Copies of images need", "copies=None"),
    ):
        if is_asked:
            raise ConfigError(
                f"{what} rows in memory. These are read a piece at a time. Set {remedy}, or give "
                "arrays."
            )
    source = cached(rows)
    one_unit = rows.n_features > FEW_COLUMNS and have_one_unit(_some_rows(source))
    # nothing that is asked before the survey depends on the number of classes
    shape = shape_of(rows.n_rows, rows.n_features, 2, job.device, one_unit)
    first = resolved(config, shape)
    split = Split(job.seed, first.held_out)
    look = partial(
        survey, source, split=split, ranks=job.ranks, by_label=isinstance(targets, LabelCounts)
    )
    scatter = "diagonal" if first.projection == "none" else "full"
    if first.stem != "none" or source.n_features > source.n_rows:
        scatter = "none"
    with one_thread():  # files are decoded beside it, which takes a thread of its own
        against = None
        if first.projection == "pls" and scatter != "none":
            objective = _objective_of(look(copy.copy(targets), features=False))
            against = partial(_for_projection, objective)
        facts = look(targets, scatter=scatter, against=against)
    data = Data(source, _objective_of(facts), facts, split, job.ranks)
    shape = replace(shape, n_groups=data.objective.n_groups)
    return data, shape, candidates(config, shape)


def _objective_of(facts: Survey) -> Objective:
    """What a survey says the network is to be trained for."""
    if facts.targets is None:
        raise AssertionError("targets were surveyed")
    return facts.targets.objective((facts.sample.y, facts.sample.weight))


def _for_projection(objective: Objective, y: Any) -> Tensor:
    return objective.for_projection(torch.from_numpy(objective.encode(y)))


def _require_alike(ranks: Ranks, rows: RowSource, config: TrainConfig, options: FitOptions) -> None:
    """Raise RankError unless all ranks have the same rows, parameters and plan for checkpoints."""
    if ranks.size == 1:
        return
    places = np.unique(np.linspace(0, len(rows.blocks) - 1, SOME_BLOCKS).astype(np.int64))
    blocks = [rows.blocks[place] for place in places.tolist()]
    pieces = (next(rows.read(block, SOME_ROWS, features=False)) for block in blocks)
    targets = digest(*(np.asarray(piece.y)[:SOME_ROWS].astype(str).tobytes() for piece in pieces))
    names = ("columns", "class_weight", "memory", "resume")
    facts = {**asdict(config), **{name: getattr(options, name) for name in names}}
    facts["random_state"] = options.seed if options.fixed_seed else None
    facts["checkpoint_every"] = options.checkpoint and options.checkpoint_every
    facts["rows"] = {**rows.fingerprint(), "targets in some blocks": targets}
    ranks.require_alike(plain(facts))


def _some_rows(source: RowSource) -> NDArray[Any]:
    """Rows from all over a source, as files may be sorted."""
    blocks = source.blocks[:: max(1, len(source.blocks) // SHOWN_BLOCKS)]
    n_rows = max(1, UNIT_ROWS // len(blocks))
    X: NDArray[Any] = concatenated(next(source.read(block, n_rows)) for block in blocks)[0]
    return X


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
        stacklevel=6,
    )
    return tuple(replace(each, row_dtype="same") for each in configs)


def _replay_memory(
    prepared: Prepared, data: Data, trained: Trained, limit: int | None, seed: int
) -> Memory:
    """A Gaussian mixture for each group of rows, for ``partial_fit``.

    It is of a sample where not all rows are here, or Ctrl-C was pressed.
    """
    rows, objective = prepared.rows, data.objective
    in_haste = trained.history.ending == "interrupted"
    all_here = isinstance(rows, Rows) and rows.total is None and not in_haste
    # copies of images come after all originals, and are no rows
    n_rows = rows.n_total // (1 + trained.config.image_copies)
    rows = rows if all_here and isinstance(rows, Rows) else prepared.sample
    rows = rows.taken(slice(0, n_rows)) if n_rows < len(rows) else rows
    memory = begin_memory(
        rows.X,
        objective.groups(rows.y).to(rows.X.device),
        rows.X.new_ones(len(rows)) if rows.weight is None else rows.weight[0],
        n_groups=objective.n_groups,
        limit=limit,
        generator=noise_generator(seed, torch.device("cpu")),
    )
    memory = memory if all_here else memory.weakened(n_rows / len(rows))
    if all_here and not data.survey.is_weighted:
        return memory
    # weights have a mean of one, and a sample has more rows of rare groups than their share
    masses = memory.masses(objective.n_groups)
    return memory.reweighted(torch.where(masses > 0, class_masses(data) / masses, 1.0))


def require_some(weight: NDArray[np.float64]) -> None:
    """Raise DataError where no row counts."""
    if not weight.any():
        raise DataError(
            "Some rows must count. All weights are zero. Give larger ones, or leave them out."
        )


def _warn_of(trained: Trained) -> None:
    """Warn of what a user should know of a training."""
    history, config = trained.history, trained.config
    for warning in history.warnings():
        warnings.warn(warning, stacklevel=5)
    losses = history.loss
    if history.ending == "interrupted" or not losses or history.kept_epoch is None:
        return
    last = losses[min(history.kept_epoch + 1, len(losses) - 1)]
    if not last <= NOTHING_LEARNED * trained.constant_loss + 1e-6:
        warnings.warn(
            NotLearnedWarning(
                f"The network should fit its rows better than a constant does. Its loss is "
                f"{last:.4g}, that of a constant {trained.constant_loss:.4g}. Lower lr (it was "
                f"{config.lr:g}), or train for more epochs (max_epochs={config.max_epochs})."
            ),
            stacklevel=5,
        )


def continued(config: TrainConfig, model: Model, *, alike: bool = False) -> TrainConfig:
    """What training from the banks of a model resolves: their shape and kind, and no folds.

    Raises ConfigError where these must be ``alike`` and parameters ask for others.
    """
    bank = model.prototypes
    shape = {
        "n_prototypes": bank.n_prototypes,
        "hidden_sizes": tuple(H.shape[-1] for H in bank.hidden),
        "n_members": bank.n_members,
        "learn_scale": bank.scale is not None,
        "number_encoding": model.config.number_encoding,
    }
    for name, value in shape.items() if alike else ():
        asked = getattr(config, name)
        if not is_auto(asked) and (config.widths if name == "hidden_sizes" else asked) != value:
            raise ConfigError(
                f"A warm start keeps the shape of the last fit, {name}={value!r}. Got {asked!r}. "
                "Set warm_start=False."
            )
    kind = {n: getattr(model.config, n) for n in OF_BANKS if is_auto(getattr(config, n))}
    values: dict[str, Any] = {**shape, **kind, "early_stopping": config.early_stopping is True}
    return replace(config, **values)


def _continued_objective(objective: Objective, model: Model) -> Objective:
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
