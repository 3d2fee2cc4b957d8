"""What "auto" means: hyperparameters from the shape of the data, every rule written once.

The rules were chosen by cross-validation on public tables, see docs/defaults.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protopinv.train.config import AUTO, TrainConfig

# Up to so many rows the number of epochs is chosen in folds: small noisy tables overfit, larger
# ones did not gain from it.
CROSS_ROWS = 3_000
# Up to so many rows a step takes all of them; beyond, more steps are worth more than exact ones.
FULL_BATCH_ROWS = 10_000
BATCH_ROWS = 512
WARM_UP_SHARE = 0.08


@dataclass(frozen=True)
class DataShape:
    """What the rules look at."""

    n_rows: int
    n_features: int
    n_classes: int


def settle(given: Mapping[str, Any], shape: DataShape) -> TrainConfig:
    """The configuration with a value for every "auto"; what is given otherwise stays as it is."""
    values = dict(given)
    for name, rule in _RULES.items():
        if name in values and is_auto(values[name]):
            values[name] = rule(values, shape)
    return TrainConfig(**values)


def check(given: Mapping[str, Any]) -> TrainConfig:
    """Raise ConfigError for a value outside its range, before there is any data.

    What is "auto" has the value in TrainConfig.
    """
    fixed = {
        name: value for name, value in given.items() if not (name in _RULES and is_auto(value))
    }
    return TrainConfig(**fixed)


def is_auto(value: Any) -> bool:
    """Whether it was left to the rules."""
    return isinstance(value, str) and value == AUTO


def _n_prototypes(_: Mapping[str, Any], shape: DataShape) -> int:
    """100, more for large tables; at least four for each class."""
    p = 100 if shape.n_rows <= FULL_BATCH_ROWS else 150
    return max(p, 4 * shape.n_classes)


def _hidden_sizes(_: Mapping[str, Any], shape: DataShape) -> tuple[int, ...]:
    return (128,) if shape.n_rows <= FULL_BATCH_ROWS else (256,)


def _batch_size(_: Mapping[str, Any], shape: DataShape) -> int | None:
    return None if shape.n_rows <= FULL_BATCH_ROWS else BATCH_ROWS


def _max_epochs(values: Mapping[str, Any], _: DataShape) -> int:
    return 250 if values["batch_size"] is None else 60


def _lr(values: Mapping[str, Any], _: DataShape) -> float:
    return 0.05 if values["batch_size"] is None else 0.02


def _warmup_epochs(values: Mapping[str, Any], _: DataShape) -> int:
    return round(WARM_UP_SHARE * int(values["max_epochs"]))


def _early_stopping(_: Mapping[str, Any], shape: DataShape) -> bool | str:
    return "cross" if shape.n_rows <= CROSS_ROWS else False


# In this order: a rule may look at what those before it have settled.
_RULES: dict[str, Any] = {
    "n_prototypes": _n_prototypes,
    "hidden_sizes": _hidden_sizes,
    "batch_size": _batch_size,
    "max_epochs": _max_epochs,
    "lr": _lr,
    "warmup_epochs": _warmup_epochs,
    "early_stopping": _early_stopping,
}
