"""Search hyperparameters with Optuna: pruned trials, resumable, and a model at the end."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing

from protopinv.errors import ConfigError, DataFileError, TrainingError
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.journal import Journal, no_study
from protopinv.optional import require
from protopinv.rows import digest, frame_columns, is_frame
from protopinv.train.config import is_auto
from protopinv.train.history import EpochReport
from protopinv.train.machine import control_c
from protopinv.train.resolve import FOLDS, FULL_BATCH_ROWS, folds_serve

# The number changes with the default space: an old study cannot go on in a new one.
STUDY = "protopinv-4"
Estimator = ProtoPINVClassifier | ProtoPINVRegressor
# Larger tables are scored on this share of their rows, small ones in folds.
HELD_OUT = 0.2
# Reports to the pruner in a training; on a GPU a report waits for the device. They are counted in
# shares of its length, so that long and short trainings are compared at the same height.
REPORTS = 25
REPORTS_BEFORE_PRUNING = 5
# The parts of a fingerprint, and what a study of others has.
_PARTS = {
    "rows": "other rows",
    "target": "another target",
    "task": "another task",
    "space": "another space",
    "parameters": "other parameters that are not searched",
}


@dataclass(frozen=True)
class Tuned:
    """The winner trained on all rows, its score on held-out rows, and the trials there were.

    The score is accuracy for classes, the share of labels that are right for several labels a row,
    and R2 for numbers. ``interrupted`` says that Ctrl-C ended the search, or the training of the
    winner.
    """

    model: Estimator
    score: float
    parameters: dict[str, Any]
    n_trials: int
    n_pruned: int
    interrupted: bool = False


def default_space(trial: Any, n_rows: int) -> dict[str, Any]:
    """One configuration; every range is given here, wide enough for images and for small tables.

    The number of epochs is searched like the rest; where folds choose, it is how many at most.
    """
    small = n_rows <= FULL_BATCH_ROWS
    depth = trial.suggest_int("depth", 1, 2)
    first = trial.suggest_float("ridge_first", 0.1, 300, log=True)
    last = trial.suggest_float("ridge_last", 0.01, 30, log=True)
    inner = trial.suggest_float("ridge_inner", 0.1, 10, log=True) if depth > 1 else None
    noise = trial.suggest_categorical("noisy", [False, True])
    width = trial.suggest_int("width", 32, 512, log=True)
    return {
        "n_prototypes": trial.suggest_int("n_prototypes", 10, max(11, min(300, n_rows)), log=True),
        "hidden_sizes": (width,) * depth,
        "ridge": (first, last) if inner is None else (first, inner, last),
        "max_epochs": trial.suggest_int(
            "max_epochs", *((25, 250) if small else (10, 60)), log=True
        ),
        "batch_size": None if small else trial.suggest_categorical("batch", [512, 1024, 2048]),
        "lr": trial.suggest_float("lr", 0.01, 0.15, log=True),
        "activation": trial.suggest_categorical("activation", ["relu", "silu", "gelu"]),
        "hidden_scale": trial.suggest_float("hidden_scale", 0.3, 1.5, log=True),
        "hidden_decay": trial.suggest_categorical("hidden_decay", [0.0, 0.1, 1.0]),
        "label_smoothing": trial.suggest_categorical("label_smoothing", [0.0, 0.05, 0.1]),
        "scaling": trial.suggest_categorical("scaling", ["auto", "global"]),
        "input_noise": trial.suggest_float("input_noise", 0.05, 1.0, log=True) if noise else 0.0,
    }


Space = Callable[[Any, int], dict[str, Any]]


def tune(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    n_trials: int = 50,
    timeout: float | None = None,
    study_file: str | Path | None = None,
    estimator: Estimator | None = None,
    space: Space = default_space,
    fixed: Sequence[str] = (),
    random_state: int | None = 0,
    verbose: int = 0,
) -> Tuned:
    """Find hyperparameters for these rows, and train a model with them on all rows.

    ``estimator`` gives what the space leaves alone (device, projection, a stem), and its type says
    what is searched for; by default it is a ProtoPINVClassifier. Parameters in ``fixed`` stay as
    the estimator has them, also where the space has them. ``sample_weight`` counts in training and
    in scores. With a ``study_file`` a search that was stopped goes on: ``n_trials`` counts those of
    earlier calls. It goes on with the same rows, target, task and space only.
    ``random_state`` is the seed of trials, splits and models. Ctrl-C ends the search and trains the
    best so far.

    On tables that are small enough for it, folds train beside every trial in one batch, choose its
    epochs and score it. On larger ones, and where ``early_stopping`` is given, a fifth of the rows
    is held out, and nothing stops early unless the estimator or the space asks for it.
    """
    if n_trials < 1:
        raise ConfigError(f"n_trials must be 1 or more. Got {n_trials}. Raise it.")
    optuna = require("optuna", extra="tune", why="Tuning")
    base = ProtoPINVClassifier() if estimator is None else clone(estimator)
    defaults = base.get_params()
    unknown = [name for name in fixed if name not in defaults]
    if unknown:
        raise ConfigError(
            f"fixed must name parameters of the estimator. Got {unknown[0]!r}. Remove it."
        )
    # Trials take rows apart; the winner is given X as it came, and learns its column names.
    rows = X if is_frame(X) else np.asarray(X)
    weights = None if sample_weight is None else np.asarray(sample_weight)
    stays = {name: defaults[name] for name in sorted(fixed)}
    search = _Search(optuna, base, rows, np.asarray(y), weights, space, stays, random_state)
    if is_auto(base.early_stopping):
        base.set_params(early_stopping="cross" if search.has_folds else False)
    journal = None if study_file is None else Journal(Path(study_file))
    try:
        with _quiet(optuna):
            study = _study(search, journal)
            interrupted = _run(study, search, n_trials, timeout, verbose)
    except Exception as error:
        if journal is None or journal.error is None:
            raise
        raise journal.error from error  # Optuna ends with an error of its own
    done = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if not done:
        raise TrainingError(
            "A search needs a trial that was finished. None was. Give it more trials or time."
        )
    parameters = study.best_trial.user_attrs["parameters"]
    model = search.model(parameters).fit(X, y, sample_weight)
    n_pruned = sum(t.state == optuna.trial.TrialState.PRUNED for t in study.trials)
    interrupted = interrupted or model.history_.ending == "interrupted"
    best = float(study.best_value)
    return Tuned(model, best, parameters, len(study.trials), n_pruned, interrupted)


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Without Optuna's line for every trial; afterwards it logs as it did before."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _study(search: "_Search", journal: Journal | None) -> Any:
    """A new study, or that in the journal; DataFileError for one of another search."""
    if journal is None:
        return _opened(search, None)
    try:
        study = _opened(search, search.optuna.storages.JournalStorage(journal))
    except (LookupError, TypeError, ValueError, AssertionError) as error:
        raise no_study(journal.path, f"Optuna cannot read it: {error!r}") from error
    before, fingerprint = study.user_attrs.get("fingerprint", {}), search.fingerprint()
    if not before and not study.trials:
        study.set_user_attr("fingerprint", fingerprint)
    elif before != fingerprint:
        parts = (_PARTS[name] for name in _PARTS if before.get(name) != fingerprint[name])
        raise DataFileError(
            "A study goes on with the rows, the target, the task and the space that it was begun "
            f"with. {journal.path} has {', '.join(parts)}. Name another file for this search, or "
            "give what that one was begun with."
        )
    return study


def _opened(search: "_Search", storage: Any) -> Any:
    optuna = search.optuna
    settings = {
        "study_name": STUDY,
        "storage": storage,
        "sampler": optuna.samplers.TPESampler(seed=search.seed, n_startup_trials=10),
        "pruner": optuna.pruners.MedianPruner(
            n_startup_trials=5, n_warmup_steps=REPORTS_BEFORE_PRUNING
        ),
    }
    if storage is not None and STUDY in optuna.get_all_study_names(storage):
        return optuna.load_study(**settings)
    return optuna.create_study(**settings, direction="maximize")


def _run(study: Any, search: "_Search", n_trials: int, timeout: float | None, verbose: int) -> bool:
    """Run the trials that are left; True if Ctrl-C ended them."""
    left = n_trials - len(study.trials)
    if left <= 0:
        return False

    def after_trial(study: Any, _trial: Any) -> None:
        if pressed.is_set():
            study.stop()

    with control_c() as pressed, suppress(KeyboardInterrupt):
        try:
            study.optimize(
                search,
                n_trials=left,
                timeout=timeout,
                callbacks=[after_trial],
                catch=(TrainingError,),
                show_progress_bar=bool(verbose),
            )
        except Exception:
            # Optuna fails when Ctrl-C comes while it takes down a trial
            if not pressed.is_set():
                raise
        if not pressed.is_set():
            return False
    warnings.warn("The search was interrupted; going on with its best.", stacklevel=3)
    return True


@dataclass(frozen=True)
class _Search:
    """Rows, and what is searched for on them; called with a trial, it returns its score.

    Parameters in ``fixed`` are taken out of the space, and the others fit to these.
    """

    optuna: Any
    base: Estimator
    X: Any
    y: NDArray[Any]
    weights: NDArray[Any] | None
    space: Space
    fixed: Mapping[str, Any]
    seed: int | None

    @property
    def is_regression(self) -> bool:
        """Whether numbers are predicted."""
        return isinstance(self.base, ProtoPINVRegressor)

    @property
    def has_classes(self) -> bool:
        """Whether there is one class a row, by which rows can be dealt evenly."""
        return not self.is_regression and self.y.ndim == 1

    @property
    def has_folds(self) -> bool:
        """Whether folds choose the epochs of such a table."""
        return folds_serve(len(self.y), len(np.unique(self.y)) if self.has_classes else 1)

    def fingerprint(self) -> dict[str, str]:
        """What tells this search from others: its scores mean nothing for those."""
        columns = frame_columns(self.X) if is_frame(self.X) else {"": self.X}
        if self.weights is not None:
            columns = {**columns, "sample_weight of rows": self.weights}
        parts = (
            part for name, column in columns.items() for part in (name.encode(), _bytes(column))
        )
        parameters = [
            (name, repr(value))
            for name, value in sorted(self.base.get_params().items())
            if name not in ("device", "random_state", "verbose")
        ]
        kind = "classes" if self.has_classes else "labels"
        space = self.space
        defined = f"{space.__module__}.{getattr(space, '__qualname__', type(space).__name__)}"
        return {
            "rows": digest(*parts),
            "target": digest(_bytes(self.y)),
            "task": "numbers" if self.is_regression else kind,
            "space": " without ".join([defined, *self.fixed]),
            "parameters": digest(repr(parameters).encode()),
        }

    def model(self, parameters: Mapping[str, Any]) -> Estimator:
        """An unfitted estimator with these parameters."""
        model: Estimator = clone(self.base).set_params(**parameters)
        model.set_params(random_state=self.seed, verbose=0)
        return model

    def __call__(self, trial: Any) -> float:
        parameters = self._parameters(trial)
        trial.set_user_attr("parameters", parameters)
        model = self.model(parameters)
        if model.early_stopping == "cross":
            return self._score_of_folds(trial, model)
        return self._score_of_hold_out(trial, model)

    def _parameters(self, trial: Any) -> dict[str, Any]:
        values, fixed = self.space(trial, len(self.y)), self.fixed
        widths, ridge = fixed.get("hidden_sizes", ()), fixed.get("ridge", ())
        if np.size(widths) and "ridge" in values:
            values["ridge"] = _one_a_layer(values["ridge"], 1 + np.size(widths))
        if np.size(ridge) > 1 and "hidden_sizes" in values:
            values["hidden_sizes"] = _one_a_layer(values["hidden_sizes"], np.size(ridge) - 1)
        # the default space is one for all tasks
        absent = {*fixed, "label_smoothing"} if self.is_regression else {*fixed}
        return {name: value for name, value in values.items() if name not in absent}

    def _score_of_folds(self, trial: Any, model: Estimator) -> float:
        """The mean score of the folds at the epoch that they chose."""
        self._fit(trial, model, slice(None), slice(-FOLDS, None))
        score = model.history_.kept_score
        if score is None:
            raise TrainingError("A trial needs an epoch at its end. This one has none.")
        return float(score)

    def _score_of_hold_out(self, trial: Any, model: Estimator) -> float:
        """What the validation score of a training is too, on rows it was not trained on."""
        # of every class there are rows on both sides, where there are two at least
        counts = np.unique(self.y, return_counts=True)[1] if self.has_classes else (0,)
        stratify = self.y if min(counts) > 1 else None
        train, test = train_test_split(
            np.arange(len(self.y)), test_size=HELD_OUT, random_state=self.seed, stratify=stratify
        )
        if model.early_stopping is False:  # otherwise it holds out rows of its own
            model.set_params(validation_fraction=0.1)
        self._fit(trial, model, train, slice(None))
        X, y, weights = self._rows(test)
        if self.is_regression or self.has_classes:
            return float(model.score(X, y, weights))
        right = (model.predict(X) == y).mean(axis=1)  # the share of labels, not of whole rows
        return float(np.average(right, weights=weights))

    def _rows(self, chosen: Any) -> tuple[Any, Any, Any]:
        weights = None if self.weights is None else self.weights[chosen]
        return _safe_indexing(self.X, chosen), self.y[chosen], weights

    def _fit(self, trial: Any, model: Estimator, chosen: Any, judges: slice) -> None:
        """Fit on some rows; the scores of members that judge go to the pruner."""

        def observe(report: EpochReport) -> None:
            if report.candidate is not None:
                return
            now, before = (REPORTS * (report.epoch + n) // report.n_epochs for n in (1, 0))
            if now == before or report.validation_score is None:
                return
            trial.report(float(report.validation_score[judges].mean()), now)
            if trial.should_prune():
                raise self.optuna.TrialPruned

        model.fit(*self._rows(chosen), observer=observe)
        if model.history_.ending == "interrupted":
            raise KeyboardInterrupt


def _one_a_layer(values: Any, layers: int) -> Any:
    """Values for so many layers: the first and the last stay, the second is repeated between."""
    if np.ndim(values) == 0:
        return values
    inner = values[min(1, len(values) - 1)]
    return (values[0], *[inner] * (layers - 2), values[-1])[:layers]


def _bytes(values: Any) -> bytes:
    array = np.ascontiguousarray(values)
    plain = array.astype(str) if array.dtype.kind == "O" else array
    return f"{plain.dtype}{plain.shape}".encode() + plain.tobytes()
