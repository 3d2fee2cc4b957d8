"""What the classifier and the regressor share: from checked rows to a fitted model."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags
from torch import Tensor

from protopinv.bank import Bank
from protopinv.callbacks import Callback, Callbacks, TrainingStart
from protopinv.errors import ConfigError, DataError, NotLearnedWarning, SlowRowsWarning
from protopinv.estimators.checks import hold_out, memory_named, require_number, resolve_device
from protopinv.estimators.door import Checked, with_image_shape
from protopinv.estimators.frames import checked_frame, encoded, refuse_columns, rows_of
from protopinv.estimators.parameters import BankParameters, as_estimator
from protopinv.estimators.trained import BankEstimator
from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.objective import Objective
from protopinv.plain import plain
from protopinv.shards import RowSource, cached
from protopinv.shards.arrays import digest
from protopinv.tables import is_frame
from protopinv.train.checkpoint import Checkpoints, Every
from protopinv.train.config import TrainConfig
from protopinv.train.loop import Observer
from protopinv.train.model import Model, Start, Training, train_model
from protopinv.train.prepare_stream import prepare_stream, surveyed
from protopinv.train.progress import progress
from protopinv.train.ranks import Ranks, join, local_device, own_number
from protopinv.train.settle import DataShape, candidates, check, is_auto, settle
from protopinv.train.source import Source
from protopinv.train.summary import Summary
from protopinv.train.survey import Survey
from protopinv.train.threads import one_thread, threads_for

# What the banks of a warm start were trained for.
KIND = ("activation", "ridge", "lr")
# So many rows are kept with a model, if they are not longer than this.
EXAMPLES = 32
EXAMPLE_BYTES = 2**16
# A loss this many times that of the best constant has learned nothing.
NOTHING_LEARNED = 1.05
# Rows of a frame that become numbers at once.
FRAME_ROWS = 2**16


@dataclass(frozen=True)
class Saving:
    """Where checkpoints of a fit go, how often, and whether to go on from the one there is."""

    path: str | Path | None = None
    every: int | str = "5min"
    resume: bool = False


@as_estimator
class ProtoPINV(BankParameters, BankEstimator):
    """A small network whose weights are solved from trained banks of prototypes."""

    def __sklearn_tags__(self) -> Tags:
        """Sparse rows are fine: they are written out a piece at a time."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        observer: Observer | None = None,
        callbacks: Iterable[Callback] | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_every: int | str = "5min",
        resume: bool = False,
    ) -> Self:
        """Train on rows ``X`` and targets ``y``, of which each counts as its weight says.

        ``X`` may be a source of rows that brings its targets and weights along, as ``open_rows``
        makes it of files; then ``y`` is left out.

        ``observer`` is a function that is shown every epoch's report; if it returns True, training
        ends there. ``callbacks`` are told of the beginning and the end too, and may fail without
        harm; ``protopinv.callbacks`` has some.

        With ``checkpoint``, a path, all that training needs to go on is written there every so many
        epochs, or after a time such as "30s" or "10min", and on Ctrl-C or SIGTERM; ``resume`` goes
        on from what is there, or begins if there is nothing.
        """
        told = Callbacks(observer, callbacks)
        with told.told_of(self):
            saving = Saving(checkpoint, checkpoint_every, resume)
            self._fit_given(X, y, sample_weight, told, saving)
        return self

    @abstractmethod
    def _fit_given(
        self, X: Any, y: Any, sample_weight: Any, callbacks: Callbacks, saving: Saving
    ) -> None:
        """Train on rows as they came: arrays, frames, or a source of them."""

    def _fit(
        self,
        checked: Checked,
        objective: Objective,
        config: TrainConfig,
        callbacks: Callbacks,
        saving: Saving,
    ) -> None:
        """Train on rows that were checked, with a configuration whose images are known."""
        device = resolve_device(self.device)
        seen = checked.X
        checked = encoded(checked, objective, is_known=checked.table is self.table_)
        source = self._source(checked, objective)
        # arrays are not shared among ranks: each has all of them, and the first one writes
        checkpoints, seed = self._checkpoints(saving, Ranks(own_number(), 1))
        start = self._start(source, config)
        given = {**self._given(), "image_shape": config.image_shape}
        if start is not None:
            given = going_on(given, start.bank, self.config_)
        shape = source.shape(device)
        configs = tuple(with_fast_rows(each, shape) for each in candidates(given, shape))
        config = configs[0]
        if checkpoints is not None:
            known = fingerprint(array_fingerprint(checked), configs, objective)
            checkpoints.begin(known, seed, keep_seed=self.random_state is not None)
        n_rows, n_features = source.X.shape
        callbacks.begin(TrainingStart(configs, n_rows, n_features, _goes_on(checkpoints)))
        shown = progress(enabled=bool(self.verbose), also=callbacks.observer)
        threads = threads_for(shape, objective.n_outputs, config, device)
        with shown as watched, memory_named(), threads as workers:
            model = train_model(
                source,
                configs,
                seed=seed,
                device=device,
                clock=time.perf_counter,
                held_out=hold_out(source.groups(), config.held_out, seed),
                observer=watched,
                start=start,
                workers=workers,
                checkpoints=checkpoints,
                memory=self._memory_limit,
            )
        self._learn(checked.learned)
        self.table_ = checked.table
        self._take_over(model, objective, seen)

    def _fit_source(
        self,
        source: RowSource,
        targets: Summary,
        objective_of: Callable[[Survey], Objective],
        callbacks: Callbacks,
        saving: Saving,
    ) -> None:
        """Train on rows that are not in memory, alone or as one of several ranks.

        ``targets`` collects what ``objective_of`` must know of them.
        """
        started = time.perf_counter()
        self._check_own_parameters()
        given = self._given()
        with_image_shape(self.config(), np.empty((0, source.n_features)))
        if self._goes_on:
            raise ConfigError(
                "A warm start needs rows in memory. These are read a piece at a time. Set "
                "warm_start=False, or give arrays."
            )
        if self.copies is not None:
            raise ConfigError(
                "Copies of images are made of rows in memory. These are read a piece at a time. "
                "Set copies=None, or give arrays."
            )
        framed, source = source, cached(source)
        device = local_device(resolve_device(self.device))
        ranks = join(device)
        checkpoints, seed = self._checkpoints(saving, ranks)
        fast = fast_bfloat16(device)
        # nothing that is asked before the survey depends on the number of classes
        shape = DataShape(
            source.n_rows, source.n_features, 2, fast_bfloat16=fast, on_gpu=device.type == "cuda"
        )
        first = settle(given, shape)
        # files are decoded beside it, which takes a thread of its own
        with one_thread():
            found, objective = surveyed(
                source, targets, objective_of, first, seed=seed, ranks=ranks
            )
        shape = replace(shape, n_groups=objective.n_groups)
        configs = tuple(with_fast_rows(each, shape) for each in candidates(given, shape))
        if checkpoints is not None:
            known = fingerprint(source.fingerprint(), configs, objective)
            checkpoints.begin(known, seed, keep_seed=self.random_state is not None)
        callbacks.begin(
            TrainingStart(configs, source.n_rows, source.n_features, _goes_on(checkpoints))
        )
        shown = progress(enabled=bool(self.verbose), also=callbacks.observer)
        threads = threads_for(shape, objective.n_outputs, configs[0], device)
        with shown as watched, memory_named(), threads, source.pinned(device.type == "cuda"):
            prepared = prepare_stream(
                source, objective, configs[0], device, seed=seed, found=found, ranks=ranks
            )
            training = Training(
                objective,
                seed,
                device,
                lambda: time.perf_counter() - started,
                ranks=ranks,
                checkpoints=checkpoints,
                memory=self._memory_limit,
            )
            model = training(prepared, configs, watched)
        self._learn_names(source)
        self.table_ = framed.table
        seen = np.empty((0, source.n_features)) if found.sample is None else found.sample.X
        if framed.examples is not None:
            seen = framed.examples
        self._take_over(model, objective, seen)

    def _fit_loaded(self, source: RowSource, callbacks: Callbacks, saving: Saving) -> None:
        """Train on rows that are few enough to be read once, as on arrays."""
        self._fit_given(*source.load(), callbacks, saving)
        self._learn_names(source)

    def _learn_names(self, source: RowSource) -> None:
        """Take over what a source knows of its columns."""
        n_columns = source.n_features if source.names is None else len(source.names)
        learned: dict[str, Any] = {"n_features_in_": n_columns}
        if source.names is not None:
            learned["feature_names_in_"] = np.array(source.names, dtype=object)
        self._learn(learned)

    def _checkpoints(self, saving: Saving, ranks: Ranks) -> tuple[Checkpoints | None, int]:
        """Where checkpoints go, if anywhere, and the seed: that of the training to go on with."""
        seed = ranks.gather(self._seed())[0]
        if saving.path is None:
            if saving.resume:
                raise ConfigError(
                    "To resume needs a checkpoint to go on from. Got resume=True without one. Give "
                    "checkpoint=path too."
                )
            return None, seed
        started = time.perf_counter()
        checkpoints = Checkpoints(
            Path(saving.path),
            Every.of(saving.every),
            saving.resume,
            ranks,
            lambda: time.perf_counter() - started,
        )
        known = checkpoints.saved_seed()
        return checkpoints, seed if known is None or self.random_state is not None else known

    def _take_over(self, model: Model, objective: Objective, rows: NDArray[Any]) -> None:
        _warn(model, model.config)
        self.examples_ = few_rows(rows)
        self.objective_ = objective
        self.config_ = model.config
        self.tried_ = model.tried
        self.bank_ = model.bank
        self.front_ = model.front
        self.features_ = model.features
        self.network_ = model.network
        self.sharpness_ = model.sharpness
        self.history_ = model.history
        self.n_iter_ = model.history.n_epochs
        self.memory_ = model.memory
        self.n_frozen_ = 0
        self.is_closed_ = False

    def _prepared(self, X: Any, y: Any, sample_weight: Any) -> tuple[TrainConfig, Checked]:
        """Parameters first, then rows: whichever is wrong, nothing has happened yet."""
        self._check_own_parameters()
        config, X = with_image_shape(self.config(), X)
        if is_frame(X) and config.image_shape is None:
            known = self.table_ if self._goes_on else None
            return config, checked_frame(
                self, X, y, sample_weight, known=known, wanted=self.columns
            )
        refuse_columns(self.columns)
        return config, self._checked(X, y, sample_weight)

    @property
    def _goes_on(self) -> bool:
        """Whether a fit begins where the last one ended."""
        return self.warm_start and hasattr(self, "network_")

    def _outputs(self, X: Any) -> Tensor:
        """Raw outputs; of a frame some rows at a time become numbers."""
        if self.table_ is None or not hasattr(self, "network_"):
            return super()._outputs(X)
        codes = self._coded(X)
        starts = range(0, len(codes), FRAME_ROWS)
        pieces = (self.table_.features(codes[start : start + FRAME_ROWS]) for start in starts)
        return torch.cat([self._answers(piece) for piece in pieces])

    def _valid(self, X: Any) -> Any:
        """Rows to predict as the network takes them."""
        return super()._valid(X) if self.table_ is None else self.table_.features(self._coded(X))

    def _coded(self, X: Any) -> Any:
        """Rows as examples are kept: the codes of a frame, and numbers as they are."""
        return super()._valid(X) if self.table_ is None else rows_of(self, self.table_, X)

    def _check_own_parameters(self) -> None:
        verbose: Any = self.verbose
        if not isinstance(verbose, int | np.integer):
            raise ConfigError(
                f"verbose must be a whole number or a bool. Got {self.verbose!r}. Leave it at 0."
            )
        if not isinstance(self.warm_start, bool | np.bool_):
            raise ConfigError(
                f"warm_start must be True or False. Got {self.warm_start!r}. Leave it at False."
            )
        if not is_auto(self.memory):
            require_number(self, "memory", int, lambda n: n >= 0, "'auto' or a number from 0 on")
        if self.max_prototypes is not None:
            rule = "None or a number from 1 on"
            require_number(self, "max_prototypes", int, lambda n: n >= 1, rule)

    @property
    def _memory_limit(self) -> int | None:
        """Numbers to keep of the rows; None leaves that to the rule."""
        return None if is_auto(self.memory) else int(self.memory)

    def _start(self, source: Source, config: TrainConfig) -> Start | None:
        """What to go on from, if that is asked for and there is anything."""
        if not self._goes_on:
            return None
        bank = self._bank()
        n_features = self.network_.sizes[0] if self.front_ is None else self.front_.n_inputs
        if source.X.shape[1] != n_features:
            raise DataError(
                f"A warm start needs the features of the last fit: {n_features}. X has "
                f"{source.X.shape[1]}. Set warm_start=False."
            )
        if source.objective.describe().keys() != self.objective_.describe().keys() or (
            source.objective.n_outputs != self.objective_.n_outputs
        ):
            raise DataError(
                f"A warm start needs the targets of the last fit: {self.objective_.n_outputs} "
                f"outputs. y asks for {source.objective.n_outputs}. Set warm_start=False."
            )
        asked = {
            "n_prototypes": config.n_prototypes,
            "hidden_sizes": config.widths,
            "n_members": config.n_members,
            "learn_scale": config.learn_scale,
        }
        for name, there in _shape_of(bank).items():
            if not is_auto(getattr(self, name)) and asked[name] != there:
                raise ConfigError(
                    f"A warm start keeps the shape of the last fit, {name}={there!r}. Got "
                    f"{asked[name]!r}. Set warm_start=False."
                )
        return Start(bank, self.front_, self.features_)

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range.

        What is "auto" has a usual value here; ``config_`` has the one that was used.
        """
        return check(self._given())


def _goes_on(checkpoints: Checkpoints | None) -> bool:
    """Whether a checkpoint was there to go on from."""
    return checkpoints is not None and checkpoints.saved_seed() is not None


def few_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Some rows from first to last, to try a network on wherever it goes."""
    n = min(len(X), EXAMPLES, max(1, EXAMPLE_BYTES // max(1, X[:1].nbytes)))
    return X[np.linspace(0, len(X) - 1, n).astype(np.int64)] if n else X[:0]


def array_fingerprint(checked: Checked) -> dict[str, Any]:
    """What tells these rows from others: all of their numbers."""
    parts = [checked.X, checked.y if checked.y.dtype.kind != "O" else checked.y.astype(str)]
    if checked.weight is not None:
        parts.append(checked.weight)
    return {
        "rows": len(checked.X),
        "features": int(checked.X.shape[1]),
        "numbers": digest(*(np.ascontiguousarray(part).tobytes() for part in parts)),
    }


def fingerprint(
    rows: dict[str, Any], configs: Sequence[TrainConfig], objective: Objective
) -> dict[str, Any]:
    """What a checkpoint must agree in with those who go on from it."""
    return {
        "rows": {**rows, "targets of": plain(objective.describe())},
        "configuration": {
            str(number): plain(asdict(config)) for number, config in enumerate(configs)
        },
    }


def _shape_of(bank: Bank) -> dict[str, Any]:
    """The parameters that a bank has been made by."""
    return {
        "n_prototypes": bank.n_prototypes,
        "hidden_sizes": tuple(H.shape[-1] for H in bank.hidden),
        "n_members": bank.n_members,
        "learn_scale": bank.scale is not None,
    }


def going_on(given: dict[str, Any], bank: Bank, last: TrainConfig) -> dict[str, Any]:
    """What a warm start settles: the shape and kind of the banks there are, and no folds."""
    kept = {name: getattr(last, name) for name in KIND if is_auto(given[name])}
    held_out = given["early_stopping"] is True
    return {**given, **kept, **_shape_of(bank), "early_stopping": held_out}


def with_fast_rows(config: TrainConfig, shape: DataShape) -> TrainConfig:
    """Rows in bfloat16 only where the device has instructions for it."""
    if config.row_dtype != "bfloat16" or shape.fast_bfloat16:
        return config
    warnings.warn(
        SlowRowsWarning(
            "row_dtype='bfloat16' needs a device with instructions for it. This one has none, and "
            "would be many times slower than with float32. Went on with row_dtype='same'."
        ),
        stacklevel=4,
    )
    return replace(config, row_dtype="same")


def _warn(model: Model, config: TrainConfig) -> None:
    """What a user should hear of a training that is over."""
    for warning in model.history.warnings():
        warnings.warn(warning, stacklevel=4)
    losses = model.history.loss
    if model.history.ending == "interrupted" or not losses or model.history.kept_epoch is None:
        return
    last = losses[min(model.history.kept_epoch + 1, len(losses) - 1)]
    if not last <= NOTHING_LEARNED * model.constant_loss + 1e-6:
        warnings.warn(
            NotLearnedWarning(
                f"The network should fit its rows better than a constant does. Its loss is "
                f"{last:.4g}, that of a constant {model.constant_loss:.4g}. Lower lr (it was "
                f"{config.lr:g}), or train for more epochs (max_epochs={config.max_epochs})."
            ),
            stacklevel=4,
        )
