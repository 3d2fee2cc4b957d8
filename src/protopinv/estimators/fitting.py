"""What the classifier and the regressor share: from checked rows to a fitted model."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import Tags
from torch import Tensor

from protopinv.callbacks import Callback, Callbacks, TrainingStart
from protopinv.errors import ConfigError, NotLearnedWarning, SlowRowsWarning
from protopinv.estimators.checks import hold_out, memory_named, require_number, resolve_device
from protopinv.estimators.door import Checked, all_or_nothing, flat_images, with_image_shape
from protopinv.estimators.frames import checked_frame, encoded, refuse_columns, rows_of
from protopinv.estimators.parameters import BankParameters, as_estimator
from protopinv.estimators.resuming import Saving, array_fingerprint, fingerprint, is_resumed
from protopinv.estimators.trained import BankEstimator
from protopinv.estimators.warm_start import going_on, start_of
from protopinv.objective import Objective
from protopinv.rows import RowSource
from protopinv.tables import is_frame
from protopinv.train.config import TrainConfig
from protopinv.train.loop import Observer
from protopinv.train.model import Model, train_model
from protopinv.train.progress import progress
from protopinv.train.ranks import Ranks, own_number
from protopinv.train.settle import DataShape, candidates, check, is_auto
from protopinv.train.threads import threads_for

# So many rows are kept with a model, if they are not longer than this.
EXAMPLES = 32
EXAMPLE_BYTES = 2**16
# Nobody has more numbers to keep; a file holds no larger limit.
MOST_MEMORY = 2**53
# A loss this many times that of the best constant has learned nothing.
NOTHING_LEARNED = 1.05
# Rows of a frame that become numbers at once.
FRAME_ROWS = 2**16


@as_estimator
class ProtoPINV(BankParameters, BankEstimator):
    """A small network whose weights are solved from trained banks of prototypes."""

    def __sklearn_tags__(self) -> Tags:
        """Sparse rows are fine: they are written out a piece at a time."""
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @all_or_nothing
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
            self.target_names_ = target_names(X, y)
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
        checkpoints, seed = saving.checkpoints(
            Ranks(own_number(), 1), self._seed(), is_given=self.random_state is not None
        )
        start = start_of(self, source, config) if self._goes_on else None
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
        callbacks.begin(TrainingStart(configs, n_rows, n_features, is_resumed(checkpoints)))
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

    def _take_over(self, model: Model, objective: Objective, rows: NDArray[Any]) -> None:
        _warn(model, model.config)
        self.examples_ = few_rows(rows)
        self.image_range_ = range_of_images(self.examples_, model.config)
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
        self.last_bank_, self.n_calls_ = None, 0
        self.is_closed_ = False

    def _prepared(self, X: Any, y: Any, sample_weight: Any) -> tuple[TrainConfig, Checked]:
        """Parameters first, then rows: whichever is wrong, nothing has happened yet."""
        self._check_own_parameters()
        config, X = with_image_shape(self.config(), X)
        if self._goes_on:
            return config, self._more(X, y, sample_weight, grows=False)
        if is_frame(X) and config.image_shape is None:
            return config, checked_frame(self, X, y, sample_weight, known=None, wanted=self.columns)
        refuse_columns(self.columns)
        return config, self._checked(X, y, sample_weight)

    def _more(self, X: Any, y: Any, sample_weight: Any, *, grows: bool) -> Checked:
        """More rows like those of the fit; with a table, which may grow, they are coded."""
        X = flat_images(X)
        if self.table_ is None:
            return self._checked(X, y, sample_weight, reset=False)
        X = X if is_frame(X) else np.asarray(X)
        return checked_frame(self, X, y, sample_weight, known=self.table_, grows=grows)

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
        return None if is_auto(self.memory) else min(int(self.memory), MOST_MEMORY)

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range.

        What is "auto" has a usual value here; ``config_`` has the one that was used.
        """
        return check(self._given())


def target_names(X: Any, y: Any) -> list[str] | None:
    """What the columns to predict are called, by the source of rows or the type of y."""
    names = X.target_names if isinstance(X, RowSource) else getattr(y, "columns", None)
    names = [getattr(y, "name", None)] if names is None else list(names)
    # polars calls a series without a name ""
    return names if all(isinstance(name, str) and name for name in names) else None


def few_rows(X: NDArray[Any]) -> NDArray[Any]:
    """Some rows from first to last, which ``save(examples=True)`` stores."""
    n = min(len(X), EXAMPLES, max(1, EXAMPLE_BYTES // max(1, X[:1].nbytes)))
    return X[np.linspace(0, len(X) - 1, n).astype(np.int64)] if n else X[:0]


def range_of_images(rows: NDArray[Any], config: TrainConfig) -> tuple[float, float] | None:
    """The least and the largest pixel; None for rows that are no images, and for none at all."""
    if config.image_shape is None or not len(rows):
        return None
    return float(rows.min()), float(rows.max())


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
