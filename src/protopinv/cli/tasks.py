"""Which task a target asks for, and the estimator and the measures that go with it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from protopinv.cli.output import say
from protopinv.errors import ConfigError, DataError
from protopinv.words import MOST_WHOLE_CLASSES

if TYPE_CHECKING:
    from protopinv.data import Dataset
    from protopinv.estimators.base import ProtoPINV

RULE = (
    "auto: classification for a named set and for a column of text, Booleans or at most "
    f"{MOST_WHOLE_CLASSES} different whole numbers, regression for other numbers; of several "
    "columns multi-label if all are 0 and 1, else regression."
)
Task = Annotated[
    Literal["auto", "classification", "regression", "multi-label"],
    typer.Option(help=f"What to predict. {RULE}"),
]
# What a validation score is, by task.
MEASURES = {"classification": "accuracy", "multi-label": "label_accuracy", "regression": "r2"}
# Hyperparameters that some tasks do not have.
ABSENT = {"classification": "loss", "multi-label": "loss", "regression": "label_smoothing"}


def chosen_task(wanted: str, rows: "Dataset") -> str:
    """The task, said on stderr where the target decided."""
    several = len(rows.targets) > 1
    if wanted == "auto":
        task = _of_several(rows.y) if several else _of_one(rows.y)
        say(f"task: {task} (by the target; --task says otherwise)")
        return task
    if wanted == "multi-label" and not several:
        raise ConfigError(
            "Several labels a row have a column of 0 and 1 each. Got one target. Name all of them "
            "with commas, as in --target a,b, or use --task classification."
        )
    if wanted == "classification" and several:
        raise ConfigError(
            f"Classification has one target. Got {len(rows.targets)}. Use --task multi-label for "
            "columns of 0 and 1, or train a model for each."
        )
    return wanted


def _of_one(y: Any) -> str:
    import numpy as np

    if y.dtype.kind not in "iuf":
        return "classification"
    different = np.unique(y)
    whole = bool(np.isfinite(different).all()) and bool((different == np.round(different)).all())
    few = len(different) <= MOST_WHOLE_CLASSES
    return "classification" if whole and few else "regression"


def _of_several(y: Any) -> str:
    import numpy as np

    return "multi-label" if bool(np.isin(y, (0, 1)).all()) else "regression"


def estimator_for(task: str, flat: dict[str, Any], **others: Any) -> "ProtoPINV":
    """The estimator of a task, with hyperparameters named as in TrainConfig."""
    from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
    from protopinv.estimators.parameters import nested
    from protopinv.train.config import TrainConfig

    absent = ABSENT[task]
    if absent in flat and flat[absent] != getattr(TrainConfig, absent):
        raise ConfigError(
            f"--{absent.replace('_', '-')} does not go with {task}. Got {flat[absent]!r}. Leave it "
            "out."
        )
    chosen = nested({name: value for name, value in flat.items() if name != absent})
    build = ProtoPINVRegressor if task == "regression" else ProtoPINVClassifier
    estimator: ProtoPINV = build(**chosen, **others)
    return estimator


def sizes_of(estimator: Any) -> dict[str, Any]:
    """How many classes, labels or targets a fitted model has."""
    task, n = estimator.model_.task, estimator.objective_.n_outputs
    names = {"classification": "classes", "multi-label": "labels", "regression": "targets"}
    return {"task": task, names[task]: n}


def validation(task: str, score: float | None) -> dict[str, float | None]:
    """A validation score under the name of what it is."""
    return {f"validation_{MEASURES[task]}": score}


def require_targets(estimator: Any, rows: "Dataset") -> None:
    """Raise DataError unless there are as many target columns as the model predicts."""
    wanted = 1 if estimator.model_.task == "classification" else estimator.objective_.n_outputs
    given = max(1, len(rows.targets))
    if wanted != given:
        raise DataError(
            f"Targets must be those of the model: {wanted}. There are {given}. Name them all with "
            "--target and commas, in the order of training."
        )
