"""The one way from rows to a model, wherever the rows are."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.memory import Memory, begin_memory, least_limit, require_room
from protopinv.model.model import Model, merged_network
from protopinv.model.warm_start import continued, continued_objective, require_same_shape
from protopinv.objective import Objective
from protopinv.plain import plain
from protopinv.rows import MemoryRows, RowSource, cached, concatenated, digest
from protopinv.tables.rows import encode_by, encode_table, few_rows
from protopinv.train.checkpoint import Checkpoints, Every
from protopinv.train.config import TrainConfig
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
from protopinv.train.prepare import Prepared, noise_generator, prepare
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
from protopinv.train.targets import (
    LabelCounts,
    Targets,
)
from protopinv.train.training import Job, Start, Trained, train

LINALG_ERROR: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]
# Blocks of a source that show what its columns are like.
SHOWN_BLOCKS = 8
# A loss this many times that of the best constant has learned nothing.
NOTHING_LEARNED = 1.05
# Ranks compare the first targets of so many blocks, which lie evenly among all.
SOME_BLOCKS = 16
SOME_ROWS = 1024


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


@dataclass(frozen=True)
class Saving:
    """Where checkpoints of a fit go, how often, and whether to resume from the one there is."""

    path: str | Path | None = None
    every: int | str = "5min"
    resume: bool = False

    def checkpoints(self, ranks: Ranks) -> Checkpoints | None:
        """Where checkpoints go, if anywhere."""
        if self.path is not None:
            started = time.perf_counter()
            every, path = Every.of(self.every), Path(self.path)
            return Checkpoints(
                path, every, self.resume, ranks, lambda: time.perf_counter() - started
            )
        if self.resume:
            raise ConfigError(
                "To resume needs a checkpoint to resume from. Got resume=True without one. "
                "Give checkpoint=path too."
            )
        return None


class _Plan(NamedTuple):
    """Rows with their objective, the candidates to screen, and where these are trained."""

    data: Data
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
    weights = None
    if options.class_weight is not None:
        rows, weights = with_class_weight(rows, options.class_weight)
    if rows.is_framed and start is not None and start.table is not None:
        rows = encode_by(start.table, rows)
    elif rows.is_framed:
        rows, targets = encode_table(rows, options.columns, targets), targets.fresh()
    plan = _plan(rows, targets, config, options, saving, start)
    data, shape, configs, job, _ = plan
    objective, checkpoints = data.objective, job.checkpoints
    resumed = checkpoints is not None and checkpoints.saved_seed() is not None
    callbacks.begin(TrainingStart(configs, shape.n_rows, shape.n_features, resumed))
    with (
        progress(enabled=options.verbose, also=callbacks.observer) as observer,
        memory_named(),
        threads_for(shape, objective.n_outputs, configs[0], job.device) as workers,
        rows.pinned(job.device.type == "cuda"),
    ):
        seconds = lambda: time.perf_counter() - started  # noqa: E731
        job = replace(job, observer=observer, workers=workers, seconds=seconds)
        begin = None if start is None else Start(start.prototypes)
        fitted = None if start is None else (start.front, start.features)
        prepared = prepare(data, configs[0], job.device, seed=job.seed, fitted=fitted)
        if options.memory:
            n_components = prepared.features.n_components
            require_room(options.memory, least_limit(n_components, objective.n_groups))
        trained = train(prepared, objective, configs, job, begin)
        memory = None
        if options.memory != 0:
            memory = _replay_memory(prepared, objective, trained, options.memory, job.seed)
    if memory is not None and weights is not None:
        # the memory counts rows; what their class counts comes in where it is used
        memory = memory.reweighted(1 / weights.of(objective))
    _warn_of(trained)
    features, config = prepared.features.to("cpu"), trained.config
    return Model(
        objective=objective,
        network=merged_network(trained.bank, features, objective, config, trained.calibration),
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


def _plan(
    rows: RowSource,
    targets: Targets,
    config: TrainConfig,
    options: FitOptions,
    saving: Saving,
    start: Model | None,
) -> _Plan:
    """Survey the rows, and resolve what is "auto" by what it shows.

    Rows in memory are not shared among ranks: each trains on all, and the first one writes. Others
    are read a piece at a time, alone or as one of several ranks.
    """
    if rows.in_memory:
        rows, device, ranks = _without_weightless(rows), options.device, Ranks(own_number(), 1)
    else:
        _require_memory(config, start)
        device = local_device(options.device)
        ranks = join(device)
        require_alike(ranks, rows, options.parameters or {}, saving)
    checkpoints = saving.checkpoints(ranks)
    seed = ranks.gather(options.seed)[0]
    if checkpoints is not None and not options.fixed_seed:
        saved = checkpoints.saved_seed()
        seed = seed if saved is None else saved
    if rows.in_memory:
        X, y, weight = rows.load()
        targets.add(y, np.ones(len(y)) if weight is None else weight, "y")
        objective = targets.objective((y, np.ones(len(y)) if weight is None else weight))
        if start is not None:
            objective = continued_objective(objective, start)
            require_same_shape(config, start)
            config = continued(config, start)
        n, d = X.shape
        shape = shape_of(n, d, objective.n_groups, device, have_one_unit(X))
        configs = candidates(config, shape)
        share, crossed = configs[0].held_out, configs[0].early_stopping == "cross"
        data = data_in_memory(rows, objective, seed, targets=targets, share=share, folds=crossed)
        examples = few_rows(X)
    else:
        source, one_unit = cached(rows), False
        if rows.n_features > FEW_COLUMNS:
            one_unit = have_one_unit(_some_rows(source))
        # nothing that is asked before the survey depends on the number of classes
        shape = shape_of(rows.n_rows, rows.n_features, 2, device, one_unit)
        data = _surveyed(source, targets, resolved(config, shape), seed=seed, ranks=ranks)
        shape = replace(shape, n_groups=data.objective.n_groups)
        configs = candidates(config, shape)
        examples = few_rows(data.survey.sample.X)
    if checkpoints is not None:
        facts = _fingerprint(rows if rows.in_memory else data.source, configs, data.objective)
        checkpoints.begin(facts, seed, keep_seed=options.fixed_seed)
    job = Job(seed, device, float, ALONE if rows.in_memory else ranks, checkpoints)
    return _Plan(data, shape, configs, job, examples if rows.examples is None else rows.examples)


def _without_weightless(rows: RowSource) -> RowSource:
    """Rows in memory, as numbers; those of weight zero are left out, so that nothing sees them."""
    X, y, weight = rows.load()
    if weight is not None and not weight.all():
        require_some(weight)
        counts = weight > 0
        X, y, weight = X[counts], y[counts], weight[counts]
    plain_rows = MemoryRows(X, y, weight)
    plain_rows.examples = rows.examples
    return plain_rows


def _require_memory(config: TrainConfig, start: Model | None) -> None:
    """Raise ConfigError for what needs all rows in memory."""
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


def _surveyed(
    source: RowSource, targets: Targets, config: TrainConfig, *, seed: int, ranks: Ranks
) -> Data:
    """One pass over all rows; before it one over targets, where PLS must know them."""
    split, by_label = Split(seed, config.held_out), isinstance(targets, LabelCounts)
    scatter = "diagonal" if config.projection == "none" else "full"
    if config.stem != "none" or source.n_features > source.n_rows:
        scatter = "none"
    with one_thread():  # files are decoded beside it, which takes a thread of its own
        against = None
        if config.projection == "pls" and scatter != "none":
            first = survey(source, targets.fresh(), split, ranks, by_label=by_label, features=False)
            against = partial(_for_projection, _objective_of(first))
        facts = survey(
            source, targets, split, ranks, by_label=by_label, scatter=scatter, against=against
        )
    return Data(source, _objective_of(facts), facts, split, ranks)


def _objective_of(facts: Survey) -> Objective:
    """What a survey says the network is to be trained for."""
    if facts.targets is None:
        raise AssertionError("targets were surveyed")
    return facts.targets.objective((facts.sample.y, facts.sample.weight))


def _for_projection(objective: Objective, y: Any) -> Tensor:
    return objective.for_projection(torch.from_numpy(objective.encode(y)))


def require_alike(
    ranks: Ranks, rows: RowSource, parameters: Mapping[str, Any], saving: Saving
) -> None:
    """Raise RankError unless all ranks have the same rows, parameters and plan for checkpoints."""
    if ranks.size == 1:
        return
    places = np.unique(np.linspace(0, len(rows.blocks) - 1, SOME_BLOCKS).astype(np.int64))
    blocks = [rows.blocks[place] for place in places.tolist()]
    pieces = (next(rows.read(block, SOME_ROWS, features=False)) for block in blocks)
    targets = digest(*(np.asarray(piece.y)[:SOME_ROWS].astype(str).tobytes() for piece in pieces))
    own = {name: plain(value) for name, value in parameters.items()}
    every = None if saving.path is None else saving.every
    facts = {**rows.fingerprint(), "targets in some blocks": targets}
    ranks.require_alike({**own, "checkpoint_every": every, "resume": saving.resume, "rows": facts})


def _fingerprint(
    rows: RowSource, configs: Sequence[TrainConfig], objective: Objective
) -> dict[str, Any]:
    """What a checkpoint must agree in with the training that resumes from it."""
    return {
        "rows": {**rows.fingerprint(), "targets of": plain(objective.describe())},
        "configuration": {
            str(number): plain(asdict(config)) for number, config in enumerate(configs)
        },
    }


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
        stacklevel=4,
    )
    return tuple(replace(each, row_dtype="same") for each in configs)


def _replay_memory(
    prepared: Prepared, objective: Objective, trained: Trained, limit: int | None, seed: int
) -> Memory:
    """A Gaussian mixture for each group of rows, for ``partial_fit``.

    It is of a sample where not all rows are here, or Ctrl-C was pressed.
    """
    rows, in_haste = prepared.rows, trained.was_interrupted
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
    if prepared.masses is None:
        return memory
    # weights have a mean of one, and a sample has more rows of rare groups than their share
    masses = memory.masses(objective.n_groups)
    return memory.reweighted(torch.where(masses > 0, prepared.masses / masses, 1.0))


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
