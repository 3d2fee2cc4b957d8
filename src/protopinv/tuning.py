"""Search hyperparameters with Optuna: pruned trials, resumable, and a model at the end."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing

from protopinv.errors import ConfigError, DataFileError, TrainingError
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.journal import Journal, no_study
from protopinv.optional import require
from protopinv.rows import digest
from protopinv.tables import frame_columns, is_frame
from protopinv.train.config import is_auto
from protopinv.train.history import EpochReport, Observer
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
EVERY_MEMBER, THE_FOLDS = slice(None), slice(-FOLDS, None)
REPORTS_BEFORE_PRUNING = 5
# The parts of a fingerprint, and how a study is told to be another.
PARTS = {
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
    # Trials take rows apart; the winner is given X as it came, and learns its column names.
    rows, targets = X if is_frame(X) else np.asarray(X), np.asarray(y)
    by_folds = is_auto(base.early_stopping) and _folds_serve(base, targets)
    if is_auto(base.early_stopping):
        base.set_params(early_stopping="cross" if by_folds else False)
    weights = None if sample_weight is None else np.asarray(sample_weight)
    searched = _Searched(space, base, fixed)
    objective = _Objective(optuna, base, rows, targets, weights, searched, random_state)
    journal = None if study_file is None else Journal(Path(study_file))
    fingerprint = _fingerprint(base, rows, targets, weights, searched)
    with _quiet(optuna), _told_by(journal):
        study = _study(optuna, journal, random_state, fingerprint)
        with _shown(n_trials, enabled=bool(verbose)) as show:
            interrupted = _search(study, objective, n_trials, timeout, show)
    done = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
    if not done:
        raise TrainingError(
            "A search needs a trial that was finished. None was. Give it more trials or time."
        )
    parameters = study.best_trial.user_attrs["parameters"]
    model = _with(base, parameters, random_state).fit(X, y, sample_weight)
    pruned = sum(t.state == optuna.trial.TrialState.PRUNED for t in study.trials)
    interrupted = interrupted or model.history_.ending == "interrupted"
    best = float(study.best_value)
    return Tuned(model, best, parameters, len(study.trials), pruned, interrupted)


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Without Optuna's line for every trial; it talks again afterwards as it did before."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _told_by(journal: Journal | None) -> Iterator[None]:
    """A journal that could not be written says so; Optuna ends with an error of its own."""
    try:
        yield
    except Exception as error:
        if journal is None or journal.error is None:
            raise
        raise journal.error from error


def _study(
    optuna: Any, journal: Journal | None, seed: int | None, fingerprint: dict[str, str]
) -> Any:
    if journal is None:
        return _opened(optuna, None, seed)
    try:
        study = _opened(optuna, optuna.storages.JournalStorage(journal), seed)
    except (LookupError, TypeError, ValueError, AssertionError) as error:
        raise no_study(journal.path, f"Optuna cannot read it: {error!r}") from error
    known = study.user_attrs.get("fingerprint", {})
    if not known and not study.trials:
        study.set_user_attr("fingerprint", fingerprint)
    elif known != fingerprint:
        parts = (PARTS[name] for name in PARTS if known.get(name) != fingerprint[name])
        raise DataFileError(
            "A study goes on with the rows, the target, the task and the space that it was begun "
            f"with. {journal.path} has {', '.join(parts)}. Name another file for this search, or "
            "give what that one was begun with."
        )
    return study


def _fingerprint(
    base: Estimator, X: Any, y: Any, weights: Any, searched: "_Searched"
) -> dict[str, str]:
    """What tells this search from others: its scores mean nothing for those."""
    columns = frame_columns(X) if is_frame(X) else {"": X}
    if weights is not None:
        columns = {**columns, "sample_weight of rows": weights}
    parts = (part for name, column in columns.items() for part in (name.encode(), _bytes(column)))
    parameters = {
        name: repr(value)
        for name, value in base.get_params().items()
        if name not in ("device", "random_state", "verbose")
    }
    kind = "classes" if _has_classes(base, y) else "labels"
    return {
        "rows": digest(*parts),
        "target": digest(_bytes(y)),
        "task": kind if isinstance(base, ProtoPINVClassifier) else "numbers",
        "space": searched.name,
        "parameters": digest(repr(sorted(parameters.items())).encode()),
    }


def _bytes(values: Any) -> bytes:
    array = np.ascontiguousarray(values)
    plain = array.astype(str) if array.dtype.kind == "O" else array
    return f"{plain.dtype}{plain.shape}".encode() + plain.tobytes()


def _opened(optuna: Any, storage: Any, seed: int | None) -> Any:
    chosen = {
        "study_name": STUDY,
        "storage": storage,
        "sampler": optuna.samplers.TPESampler(seed=seed, n_startup_trials=10),
        "pruner": optuna.pruners.MedianPruner(
            n_startup_trials=5, n_warmup_steps=REPORTS_BEFORE_PRUNING
        ),
    }
    if storage is not None and STUDY in optuna.get_all_study_names(storage):
        return optuna.load_study(**chosen)
    return optuna.create_study(**chosen, direction="maximize")


def _search(
    study: Any,
    objective: "_Objective",
    n_trials: int,
    timeout: float | None,
    show: Callable[[Any], None],
) -> bool:
    """Run the trials that are left; True if Ctrl-C ended them."""
    left = n_trials - len(study.trials)
    for trial in study.trials:
        show(trial)
    if left <= 0:
        return False

    def after_trial(study: Any, trial: Any) -> None:
        show(trial)
        if pressed.is_set():
            study.stop()

    with control_c() as pressed, suppress(KeyboardInterrupt):
        try:
            study.optimize(
                objective,
                n_trials=left,
                timeout=timeout,
                callbacks=[after_trial],
                catch=(TrainingError,),
            )
        except Exception:
            # Optuna fails when Ctrl-C comes while it takes down a trial
            if not pressed.is_set():
                raise
        if not pressed.is_set():
            return False
    warnings.warn("The search was interrupted; going on with its best.", stacklevel=3)
    return True


class _Searched:
    """A space without the parameters that are fixed; the others fit to these."""

    def __init__(self, space: Space, base: Estimator, fixed: Sequence[str]) -> None:
        unknown = [name for name in fixed if name not in base.get_params()]
        if unknown:
            raise ConfigError(
                f"fixed must name parameters of the estimator. Got {unknown[0]!r}. Remove it."
            )
        self._space = space
        self._fixed = {name: base.get_params()[name] for name in sorted(fixed)}

    @property
    def name(self) -> str:
        """The space by where it is defined, and what it leaves out."""
        space = self._space
        defined = f"{space.__module__}.{getattr(space, '__qualname__', type(space).__name__)}"
        return " without ".join([defined, *self._fixed])

    def __call__(self, trial: Any, n_rows: int) -> dict[str, Any]:
        """The parameters of one trial."""
        chosen, fixed = self._space(trial, n_rows), self._fixed
        widths, ridge = fixed.get("hidden_sizes", ()), fixed.get("ridge", ())
        if np.size(widths) and "ridge" in chosen:
            chosen["ridge"] = _one_a_layer(chosen["ridge"], 1 + np.size(widths))
        if np.size(ridge) > 1 and "hidden_sizes" in chosen:
            chosen["hidden_sizes"] = _one_a_layer(chosen["hidden_sizes"], np.size(ridge) - 1)
        return {name: value for name, value in chosen.items() if name not in fixed}


def _one_a_layer(values: Any, layers: int) -> Any:
    """Values for so many layers: the first and the last stay, the second is repeated between."""
    if np.ndim(values) == 0:
        return values
    inner = values[min(1, len(values) - 1)]
    return (values[0], *[inner] * (layers - 2), values[-1])[:layers]


class _Objective:
    """The score of a trial on rows it was not trained on."""

    def __init__(
        self,
        optuna: Any,
        base: Estimator,
        X: Any,
        y: Any,
        weights: Any,
        space: Space,
        seed: int | None,
    ) -> None:
        self._optuna = optuna
        self._base = base
        self._X, self._y, self._weights = X, y, weights
        self._space = space
        self._seed = seed
        self._has_classes = _has_classes(base, y)

    def __call__(self, trial: Any) -> float:
        parameters = self._space(trial, len(self._y))
        if isinstance(self._base, ProtoPINVRegressor):  # the default space has it for all tasks
            parameters = {k: v for k, v in parameters.items() if k != "label_smoothing"}
        trial.set_user_attr("parameters", parameters)
        model = _with(self._base, parameters, self._seed)
        if model.early_stopping == "cross":
            return self._score_of_folds(trial, model)
        return self._score_of_hold_out(trial, model)

    def _score_of_folds(self, trial: Any, model: Estimator) -> float:
        """What the folds say on average at the epoch that they chose."""
        self._fit(model, slice(None), self._watch(trial, THE_FOLDS))
        score: float | None = model.history_.kept_score
        if score is None:
            raise TrainingError("A trial needs an epoch at its end. This one has none.")
        return score

    def _score_of_hold_out(self, trial: Any, model: Estimator) -> float:
        train, test = _split(self._y, self._seed, is_classes=self._has_classes)
        if model.early_stopping is False:  # otherwise it holds out rows of its own
            model.set_params(validation_fraction=0.1)
        self._fit(model, train, self._watch(trial))
        return _score(model, *self._rows(test))

    def _rows(self, chosen: Any) -> tuple[Any, Any, Any]:
        weights = None if self._weights is None else self._weights[chosen]
        return _safe_indexing(self._X, chosen), self._y[chosen], weights

    def _fit(self, model: Estimator, chosen: Any, observer: Observer) -> None:
        model.fit(*self._rows(chosen), observer=observer)
        if model.history_.ending == "interrupted":
            raise KeyboardInterrupt

    def _watch(self, trial: Any, judges: slice = EVERY_MEMBER) -> Observer:
        """Tells the pruner how it goes, by the members that hold rows out."""

        def observe(report: EpochReport) -> None:
            if report.candidate is not None:
                return
            now, before = (REPORTS * (report.epoch + n) // report.n_epochs for n in (1, 0))
            if now == before or report.validation_score is None:
                return
            trial.report(float(report.validation_score[judges].mean()), now)
            if trial.should_prune():
                raise self._optuna.TrialPruned

        return observe


def _has_classes(base: Estimator, y: Any) -> bool:
    """Whether there is one class a row, by which rows can be dealt evenly."""
    return isinstance(base, ProtoPINVClassifier) and y.ndim == 1


def _score(model: Estimator, X: Any, y: Any, weights: Any) -> float:
    """What the validation score of a training is too."""
    if isinstance(model, ProtoPINVClassifier) and y.ndim == 2:
        right = (model.predict(X) == y).mean(axis=1)  # the share of labels, not of whole rows
        return float(np.average(right, weights=weights))
    return float(model.score(X, y, weights))


def _folds_serve(base: Estimator, y: Any) -> bool:
    return folds_serve(len(y), len(np.unique(y)) if _has_classes(base, y) else 1)


def _split(y: Any, seed: int | None, *, is_classes: bool) -> tuple[Any, Any]:
    """Row numbers to train on and to be scored on, of every class where there are two at least."""
    stratify = y if is_classes and np.unique(y, return_counts=True)[1].min() > 1 else None
    train, test = train_test_split(
        np.arange(len(y)), test_size=HELD_OUT, random_state=seed, stratify=stratify
    )
    return train, test


def _with(base: Estimator, parameters: dict[str, Any], seed: int | None) -> Estimator:
    model: Estimator = clone(base).set_params(**parameters, random_state=seed, verbose=0)
    return model


@contextmanager
def _shown(total: int, *, enabled: bool) -> Iterator[Callable[[Any], None]]:
    """A bar on stderr that shows the best so far."""
    if not enabled:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    best = [-np.inf]
    columns = (
        TextColumn("tuning"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("best {task.fields[best]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("tuning", total=total, best="none yet")

        def show(trial: Any) -> None:
            if trial.state.name == "COMPLETE":
                best[0] = max(best[0], trial.value)
            text = "none yet" if best[0] == -np.inf else f"{best[0]:.4f}"
            bar.update(task, advance=1, best=text)

        yield show
