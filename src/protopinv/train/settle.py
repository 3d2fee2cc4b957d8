"""What "auto" means: hyperparameters from the shape of the data, every rule written once.

The rules were chosen by cross-validation on public tables; docs/accuracy.md tells how.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from protopinv.errors import ConfigError
from protopinv.train.config import AUTO, TrainConfig

Values = Mapping[str, Any]


@dataclass(frozen=True)
class DataShape:
    """What the rules look at.

    ``n_groups`` counts the kinds of rows that prototypes must speak for: classes, or 1.
    """

    n_rows: int
    n_features: int
    n_groups: int
    fast_bfloat16: bool = False
    on_gpu: bool = False


@dataclass(frozen=True)
class Size:
    """What suits tables of at most so many rows; the ridge grows with the prototypes."""

    most_rows: float
    n_prototypes: int
    hidden_sizes: tuple[int, ...]
    ridge_a_prototype: float
    batch_size: int | None
    chooses_epochs: bool


# Few rows need smooth layers, and folds that say when to stop: small noisy tables overfit, larger
# ones did not gain from it. With many rows more steps are worth more than exact ones.
SIZES = (
    Size(3_000, 60, (128,), 0.5, None, chooses_epochs=True),
    Size(10_000, 100, (128,), 0.1, None, chooses_epochs=False),
    Size(math.inf, 150, (256,), 0.1, 512, chooses_epochs=False),
)
PROTOTYPES_OF_A_GROUP = 4
# Every system has so many rows and columns: more of them would take minutes a step.
MOST_PROTOTYPES = 1_000
# Folds need rows to say anything: so many in all, and for each group on average.
FOLDS_LEAST_ROWS = 40
FOLDS_LEAST_OF_A_GROUP = 10
# Tables have so many columns at most, each with a meaning and a distribution of its own.
TABLE_FEATURES = 200
WARM_UP_SHARE = 0.08
# So few rows train in float64: it costs next to nothing, and a handful of rows can be a matter of
# rounding.
EXACT_ROWS = 100
# Folds that choose the epochs; each is a bank of its own.
FOLDS = 4


@dataclass(frozen=True)
class Pace:
    """How long, and how fast at the peak."""

    epochs: int
    lr: float


FULL = Pace(250, 0.05)
MINI = Pace(60, 0.02)


def settle(given: Values, shape: DataShape) -> TrainConfig:
    """The configuration with a value for every "auto"; what is given otherwise stays as it is."""
    values = dict(given)
    for name, rule in _RULES.items():
        if name in values and is_auto(values[name]):
            values[name] = rule(values, shape)
    return TrainConfig(**values)


def check(given: Values) -> TrainConfig:
    """Raise ConfigError for a value outside its range, before there is any data.

    What is "auto" has the value in TrainConfig.
    """
    return TrainConfig(
        **{name: value for name, value in given.items() if name not in _RULES or not is_auto(value)}
    )


def is_auto(value: Any) -> bool:
    """Whether it was left to the rules."""
    return isinstance(value, str) and value == AUTO


def size_of(shape: DataShape) -> Size:
    """The smallest size that holds so many rows."""
    return next(size for size in SIZES if shape.n_rows <= size.most_rows)


def folds_serve(n_rows: int, n_groups: int) -> bool:
    """Whether folds should choose the epochs of a table like this."""
    enough = max(FOLDS_LEAST_ROWS, FOLDS_LEAST_OF_A_GROUP * n_groups)
    return enough <= n_rows and next(s for s in SIZES if n_rows <= s.most_rows).chooses_epochs


def _n_prototypes(_: Values, shape: DataShape) -> int:
    if shape.n_groups > MOST_PROTOTYPES:
        raise ConfigError(
            f"More than {MOST_PROTOTYPES:,} classes need n_prototypes to be given: each should "
            f"have one at least. There are {shape.n_groups:,}. If the target is a number, use "
            "ProtoPINVRegressor; else set n_prototypes, and expect a step to take long."
        )
    wanted = min(PROTOTYPES_OF_A_GROUP * shape.n_groups, MOST_PROTOTYPES)
    return max(size_of(shape).n_prototypes, wanted)


def _ridge(values: Values, shape: DataShape) -> float:
    return size_of(shape).ridge_a_prototype * float(values["n_prototypes"])


def _scaling(values: Values, shape: DataShape) -> str:
    if values["image_shape"] is not None:
        return "global"  # pixels have one unit
    return "squash" if shape.n_features <= TABLE_FEATURES else "feature"


def _batch_size(values: Values, shape: DataShape) -> int | None:
    copied = shape.n_rows * (1 + values["image_copies"])
    return size_of(replace(shape, n_rows=copied)).batch_size


def _max_epochs(values: Values, _: DataShape) -> int:
    return (FULL if values["batch_size"] is None else MINI).epochs


def _lr(values: Values, _: DataShape) -> float:
    return (FULL if values["batch_size"] is None else MINI).lr


def _warmup_epochs(values: Values, _: DataShape) -> int:
    return round(WARM_UP_SHARE * int(values["max_epochs"]))


def _early_stopping(values: Values, shape: DataShape) -> bool | str:
    fraction = values["validation_fraction"]
    if not is_auto(fraction) and fraction != 0:
        return True  # a hold-out is asked for
    return "cross" if folds_serve(shape.n_rows, shape.n_groups) else False


def _n_members(values: Values, _: DataShape) -> int:
    return FOLDS + 1 if values["early_stopping"] == "cross" else 1


def _dtype(_: Values, shape: DataShape) -> str:
    return "float64" if shape.n_rows <= EXACT_ROWS else "float32"


def _row_dtype(values: Values, shape: DataShape) -> str:
    many = shape.n_rows > SIZES[-2].most_rows and shape.n_features > TABLE_FEATURES
    fast = shape.on_gpu and shape.fast_bfloat16
    return "bfloat16" if many and fast and values["dtype"] == "float32" else "same"


# In this order: a rule may look at what those before it have settled.
_RULES: dict[str, Callable[[Values, DataShape], Any]] = {
    "n_prototypes": _n_prototypes,
    "hidden_sizes": lambda _, shape: size_of(shape).hidden_sizes,
    "ridge": _ridge,
    "scaling": _scaling,
    "batch_size": _batch_size,
    "max_epochs": _max_epochs,
    "lr": _lr,
    "warmup_epochs": _warmup_epochs,
    "dtype": _dtype,
    "early_stopping": _early_stopping,
    "n_members": _n_members,
    "row_dtype": _row_dtype,
}
