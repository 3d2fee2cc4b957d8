"""Training that starts from the banks and the features of a model: what must agree with it."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from protopinv.errors import ConfigError, DataError
from protopinv.model.model import Model
from protopinv.objective import Classes, Numbers, Objective
from protopinv.train.config import TrainConfig, is_auto
from protopinv.train.targets import numbers_of, require_scale

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


def require_same_targets(objective: Numbers, y: NDArray[Any], *, bounded: bool) -> Numbers:
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
