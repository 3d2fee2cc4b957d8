"""What "auto" means: hyperparameters from the shape of the data, every rule written once.

Where rules cannot know what suits a table, there are candidates: kinds of networks of which a short
look at the data keeps one. The rules were chosen on public tables; docs/accuracy.md tells how.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from protopinv.errors import ConfigError
from protopinv.train.config import AUTO, BENDING, TrainConfig

Values = Mapping[str, Any]


@dataclass(frozen=True)
class DataShape:
    """What the rules look at.

    ``n_groups`` counts the kinds of rows that prototypes must speak for: classes, or 1. The columns
    have ``one_unit`` if there are many and most span the same range, as those of pixels do.
    """

    n_rows: int
    n_features: int
    n_groups: int
    fast_bfloat16: bool = False
    on_gpu: bool = False
    one_unit: bool = False


@dataclass(frozen=True)
class Kind:
    """A kind of network; the ridge grows with the prototypes, and these with the rows.

    ``share`` is the part of the usual number of prototypes that it has, ``smoothing`` that of the
    usual label smoothing.
    """

    activation: str
    depth: int
    ridge_a_prototype: float = 0.1
    lr: float = 0.1
    share: float = 1.0
    smoothing: float = 1.0


# What suits a table differs by more than any one default can average out: a smooth surface wants a
# smooth activation, few noisy rows want a strong ridge, and a rugged one wants depth.
PLAIN = Kind("relu", 2)
CURVED = Kind("gelu", 2)
# Smoothed labels bend the odds of classes that a plane parts, and cost up to 9 % of the log loss on
# normal clouds. The smooth kind is chosen for these, and has none.
SMOOTH = Kind("silu", 2, ridge_a_prototype=1.0, lr=0.02, share=0.6, smoothing=0.0)
DEEP = Kind("relu", 3)


@dataclass(frozen=True)
class Budget:
    """How much a fit may try; the first kind stands for all where nothing can be compared.

    ``epochs``, ``prototypes`` and ``width`` are shares of the usual ones.
    """

    kinds: tuple[Kind, ...]
    n_members: int
    epochs: float = 1.0
    prototypes: float = 1.0
    width: float = 1.0


# Folds that choose epochs and kind; each is a bank of its own, beside one of all rows.
FOLDS = 4
# More kinds than these four did not help on the development half; more banks and more epochs did.
EFFORTS: dict[str, Budget] = {
    "quick": Budget((PLAIN,), FOLDS + 1, epochs=0.4, prototypes=0.8, width=0.75),
    "balanced": Budget((PLAIN, CURVED, SMOOTH, DEEP), FOLDS + 1),
    "best": Budget((PLAIN, CURVED, SMOOTH, DEEP), 2 * FOLDS + 1, epochs=1.6),
}
# Wider rows, and wide ones that are fewer than their columns, are projected before the network.
MOST_COLUMNS, FEW_COLUMNS = 1_000, 300
COMPONENTS = 400
# Images from this many pixels on a side on get a stem.
STEM_SIDE = 16
PROTOTYPES_OF_A_GROUP = 4
# Every system has so many rows and columns: more of them would take minutes a step.
MOST_PROTOTYPES = 1_000
# All rows make one step up to here; then batches of about this size.
FULL_BATCH_ROWS = 4_096
BATCH = 2_048
FULL_EPOCHS, LEAST_EPOCHS = 250, 5
# Steps where batches begin: some more than without, since each sees about half of the rows.
BATCH_STEPS = 300
WARM_UP_SHARE = 0.08
# Folds need rows to say anything: so many in all, and for each group on average. With very many
# rows a hold-out says enough.
FOLDS_LEAST_ROWS = 40
FOLDS_LEAST_OF_A_GROUP = 10
FOLDS_MOST_ROWS = 100_000
# A hold-out of so many rows tells one thousandth from the next.
MOST_VALIDATION_ROWS = 100_000
SMOOTHING = 0.1
# So few rows train in float64: it costs next to nothing, and a handful of rows can be a matter of
# rounding.
EXACT_ROWS = 100


def settle(given: Values, shape: DataShape, kind: Kind = PLAIN) -> TrainConfig:
    """The configuration with a value for every "auto"; what is given otherwise stays as it is."""
    values = dict(given)
    for name, rule in _RULES.items():
        if name in values and is_auto(values[name]):
            values[name] = rule(values, shape, kind)
    return TrainConfig(**values)


def candidates(given: Values, shape: DataShape) -> tuple[TrainConfig, ...]:
    """One configuration, or several of which a look at the data shall keep one.

    They differ only in what is "auto". Without folds nobody could say which is best.
    """
    first = settle(given, shape)
    if first.early_stopping != "cross":
        return (first,)
    found = [settle(given, shape, kind) for kind in EFFORTS[first.effort].kinds]
    return tuple(dict.fromkeys(found))


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


def folds_serve(n_rows: int, n_groups: int) -> bool:
    """Whether folds should choose the epochs of a table like this."""
    least = max(FOLDS_LEAST_ROWS, FOLDS_LEAST_OF_A_GROUP * n_groups)
    return least <= n_rows <= FOLDS_MOST_ROWS


def growing(n: int, *, least: float, most: float, at: int, power: float) -> float:
    """``least`` up to so many rows or columns, then with a power of them up to ``most``."""
    return min(most, least * math.pow(max(1.0, n / at), power))


def _effort(values: Values) -> Budget:
    """What is asked for; a network without prototypes has the usual one."""
    return EFFORTS[values.get("effort", "balanced")]


def _is_table(values: Values, shape: DataShape) -> bool:
    """Whether columns have a meaning of their own, so that the network should see them as such."""
    d = shape.n_features
    if values["image_shape"] is not None or shape.one_unit or d > MOST_COLUMNS:
        return False
    return d <= FEW_COLUMNS or (d <= shape.n_rows and not _is_projected(values, shape))


def _is_projected(values: Values, shape: DataShape) -> bool:
    """Whether a projection is asked for, by name or by how many features it may have."""
    most = values["n_components"]
    fewer = not is_auto(most) and most is not None and most < shape.n_features
    return values["projection"] in ("pca", "pls") or (fewer and values["projection"] != "none")


def _stem(values: Values, _: DataShape, __: Kind) -> str:
    image = values["image_shape"]
    if image is None or min(image[:2]) < STEM_SIDE or values["scaling"] in BENDING:
        return "none"
    return "pca"


def _n_prototypes(values: Values, shape: DataShape, kind: Kind) -> int:
    if shape.n_groups > MOST_PROTOTYPES:
        raise ConfigError(
            f"More than {MOST_PROTOTYPES:,} classes need n_prototypes to be given: each should "
            f"have one at least. There are {shape.n_groups:,}. If the target is a number, use "
            "ProtoPINVRegressor; else set n_prototypes, and expect a step to take long."
        )
    usual = growing(shape.n_rows, least=100, most=150, at=3_000, power=0.3)
    few = max(40, shape.n_rows / 3)
    wanted = min(PROTOTYPES_OF_A_GROUP * shape.n_groups, MOST_PROTOTYPES)
    share = kind.share * _effort(values).prototypes
    return max(10 * round(share * min(usual, few) / 10), wanted)


def _hidden_sizes(values: Values, shape: DataShape, kind: Kind) -> tuple[int, ...]:
    width = growing(shape.n_rows, least=64, most=128, at=3_000, power=0.5)
    width *= _effort(values).width
    if values["image_shape"] is None:  # pixels that came as columns need as much as images
        width *= growing(shape.n_features, least=1, most=2, at=FEW_COLUMNS, power=1)
    else:
        width *= 2
    return (16 * round(width / 16),) * kind.depth


def _ridge(values: Values, _: DataShape, kind: Kind) -> float:
    return kind.ridge_a_prototype * float(values["n_prototypes"])


def _scaling(values: Values, shape: DataShape, _: Kind) -> str:
    if values["image_shape"] is not None or shape.one_unit:
        return "global"
    return "squash" if _is_table(values, shape) else "feature"


def _projection(values: Values, shape: DataShape, _: Kind) -> str:
    return "none" if _is_table(values, shape) and not _is_projected(values, shape) else "pca"


def _batch_size(values: Values, shape: DataShape, _: Kind) -> int | None:
    n = _n_seen(values, shape)
    return None if n <= FULL_BATCH_ROWS else math.ceil(n / round(n / BATCH))


def _n_seen(values: Values, shape: DataShape) -> int:
    """Rows an epoch passes over."""
    return shape.n_rows * (1 + int(values["image_copies"]))


def _max_epochs(values: Values, shape: DataShape, _: Kind) -> int:
    if values["batch_size"] is None:
        usual: float = FULL_EPOCHS
    else:
        # Steps grow with the square root of the rows.
        n = _n_seen(values, shape)
        steps = BATCH_STEPS * math.sqrt(max(1.0, n / FULL_BATCH_ROWS))
        usual = max(LEAST_EPOCHS, min(FULL_EPOCHS, steps * int(values["batch_size"]) / n))
    return math.ceil(usual * _effort(values).epochs)


def _warmup_epochs(values: Values, _: DataShape, __: Kind) -> int:
    return round(WARM_UP_SHARE * int(values["max_epochs"]))


def _early_stopping(values: Values, shape: DataShape, _: Kind) -> bool | str:
    fraction = values["validation_fraction"]
    if not is_auto(fraction) and fraction != 0:
        return True  # a hold-out is asked for
    if folds_serve(shape.n_rows, shape.n_groups):
        return "cross"
    return is_auto(fraction) and shape.n_rows > FOLDS_MOST_ROWS


def _validation_fraction(values: Values, shape: DataShape, _: Kind) -> float | str:
    """A tenth, but not more rows than can tell."""
    few_enough = shape.n_rows <= 10 * MOST_VALIDATION_ROWS or values["early_stopping"] is not True
    return AUTO if few_enough else MOST_VALIDATION_ROWS / shape.n_rows


def _n_members(values: Values, _: DataShape, __: Kind) -> int:
    return _effort(values).n_members if values["early_stopping"] == "cross" else 1


def _label_smoothing(values: Values, shape: DataShape, kind: Kind) -> float:
    # it makes for shy probabilities, which held-out rows can tell
    one_class_a_row = shape.n_groups > 1
    may_smooth = one_class_a_row and values["early_stopping"] is not False
    return SMOOTHING * kind.smoothing if may_smooth else 0.0


def _dtype(_: Values, shape: DataShape, __: Kind) -> str:
    return "float64" if shape.n_rows <= EXACT_ROWS else "float32"


def _row_dtype(values: Values, shape: DataShape, _: Kind) -> str:
    many = shape.n_rows > FULL_BATCH_ROWS and not _is_table(values, shape)
    fast = shape.on_gpu and shape.fast_bfloat16
    return "bfloat16" if many and fast and values["dtype"] == "float32" else "same"


# In this order: a rule may look at what those before it have settled.
_RULES: dict[str, Callable[[Values, DataShape, Kind], Any]] = {
    "stem": _stem,
    "activation": lambda _, __, kind: kind.activation,
    "n_prototypes": _n_prototypes,
    "hidden_sizes": _hidden_sizes,
    "ridge": _ridge,
    "scaling": _scaling,
    "projection": _projection,
    "n_components": lambda _, __, ___: COMPONENTS,
    "learn_scale": lambda values, shape, _: (
        values["projection"] == "none" and _is_table(values, shape)
    ),
    "batch_size": _batch_size,
    "max_epochs": _max_epochs,
    "lr": lambda _, __, kind: kind.lr,
    "warmup_epochs": _warmup_epochs,
    "dtype": _dtype,
    "early_stopping": _early_stopping,
    "validation_fraction": _validation_fraction,
    "n_members": _n_members,
    "label_smoothing": _label_smoothing,
    "row_dtype": _row_dtype,
}
