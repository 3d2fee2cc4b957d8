"""A fit of rows that are read a piece at a time, alone or as one of several ranks."""

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from protopinv.callbacks import Callbacks, TrainingStart
from protopinv.errors import ConfigError
from protopinv.estimators.checks import memory_named, resolve_device
from protopinv.estimators.door import with_image_shape
from protopinv.estimators.fitting import ProtoPINV, with_fast_rows
from protopinv.estimators.parameters import as_estimator
from protopinv.estimators.resuming import Saving, alike, fingerprint, is_resumed, rows_fingerprint
from protopinv.estimators.streams import as_source, matched
from protopinv.kernels.bfloat16 import fast_bfloat16
from protopinv.objective import Objective
from protopinv.rows import RowSource, cached
from protopinv.rows.source import Wanted
from protopinv.train.model import Training
from protopinv.train.prepare_stream import prepare_stream, surveyed
from protopinv.train.progress import progress
from protopinv.train.ranks import join, local_device
from protopinv.train.settle import FEW_COLUMNS, DataShape, candidates, settle
from protopinv.train.source import UNIT_ROWS, have_one_unit
from protopinv.train.summary import Summary
from protopinv.train.survey import Survey
from protopinv.train.threads import one_thread, threads_for

# Blocks of a source that show what its columns are like.
SHOWN_BLOCKS = 8


@as_estimator
class Streaming(ProtoPINV):
    """Learns from sources of rows, whether or not they fit in memory."""

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
        if ranks.size > 1:
            ranks.require_alike({**alike(self, saving), "rows": rows_fingerprint(source)})
        checkpoints, seed = saving.checkpoints(
            ranks, self._seed(), is_given=self.random_state is not None
        )
        fast = fast_bfloat16(device)
        # nothing that is asked before the survey depends on the number of classes
        shape = DataShape(
            source.n_rows,
            source.n_features,
            2,
            fast_bfloat16=fast,
            on_gpu=device.type == "cuda",
            one_unit=source.n_features > FEW_COLUMNS and have_one_unit(_some_rows(source)),
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
            TrainingStart(configs, source.n_rows, source.n_features, is_resumed(checkpoints))
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
        with self._taking(source) as model:
            model._fit_given(*source.load(), callbacks, saving)
        self._learn_names(source)

    def _source_given(
        self, X: Any, y: Any, sample_weight: Any, *, is_more: bool
    ) -> RowSource | None:
        """A source where X is one or should be read as one, with the columns that are known.

        ``is_more`` says that the model goes on from what it has learned.
        """
        source = as_source(X, y, sample_weight, self.columns)
        names = getattr(self, "feature_names_in_", None) if is_more else None
        if source is None or source.names is None or names is None:
            return source
        return matched(source, names.tolist(), framed=self.table_ is not None)

    @contextmanager
    def _taking(self, source: RowSource) -> Iterator[Self]:
        """A copy that learns from rows whose columns were matched; at the end all is taken over.

        Numbers are read as arrays, which have no names: it does not ask for any.
        """
        scratch = copy.copy(self)
        if source.names is not None and not getattr(source, "is_framed", False):
            scratch.__dict__.pop("feature_names_in_", None)
        yield scratch
        self.__dict__.update(scratch.__dict__)

    def _learn_names(self, source: RowSource) -> None:
        """Take over what a source knows of its columns."""
        n_columns = source.n_features if source.names is None else len(source.names)
        learned: dict[str, Any] = {"n_features_in_": n_columns}
        if source.names is not None:
            learned["feature_names_in_"] = np.array(source.names, dtype=object)
        self._learn(learned)


def _some_rows(source: RowSource) -> NDArray[Any]:
    """Rows from all over a source, as files may be sorted."""
    blocks = source.blocks[:: max(1, len(source.blocks) // SHOWN_BLOCKS)]
    wanted = Wanted(max(1, UNIT_ROWS // len(blocks)))
    starts = (islice(source.read(block, wanted), 1) for block in blocks)
    return np.concatenate([piece.X for start in starts for piece in start])
