"""What "auto" is resolved to: hyperparameters from the shape of the data, every rule written once.

Where rules cannot know what suits a table, there are candidates: architectures of which a short
screening keeps one. The rules were chosen on public tables; docs/accuracy.md tells how.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ConfigError
from protopinv.train.config import (
    TAIL_COMPRESSION,
    TrainConfig,
    is_auto,
    listed,
)

Values = dict[str, Any]


@dataclass(frozen=True)
class DataShape:
    """The facts that the rules look at.

    ``n_groups`` counts the groups of rows that prototypes must represent: classes, or 1. The
    columns have ``one_unit`` if there are many and most span the same range, as those of pixels do.
    """

    n_rows: int
    n_features: int
    n_groups: int
    fast_bfloat16: bool = False
    on_gpu: bool = False
    one_unit: bool = False


@dataclass(frozen=True)
class Recipe:
    """An architecture to try; the ridge grows with the prototypes, and these with the rows.

    ``share`` is its share of the usual number of prototypes, ``smoothing`` that of the usual label
    smoothing. ``encoding`` is how numbers of a table enter it.
    """

    activation: str
    depth: int
    ridge_a_prototype: float = 0.1
    lr: float = 0.1
    share: float = 1.0
    smoothing: float = 1.0
    encoding: str = "raw"


# What suits a table differs by more than any one default can average out: a smooth surface wants a
# smooth activation, few noisy rows want a strong ridge, and a rugged one wants depth.
PLAIN = Recipe("relu", 2)
CURVED = Recipe("gelu", 2)
# Smoothed labels bend the odds of classes that a plane parts, and cost up to 9 % of the log loss on
# normal clouds. The smooth recipe is chosen for these, and has none.
SMOOTH = Recipe("silu", 2, ridge_a_prototype=1.0, lr=0.02, share=0.6, smoothing=0.0)
DEEP = Recipe("relu", 3)
# Numbers of a table may be steps, too, or steps alone.
STEPPED = replace(PLAIN, encoding="both")
SMOOTH_STEPS = replace(SMOOTH, encoding="steps")


@dataclass(frozen=True)
class Budget:
    """How much a fit may try: recipes to screen, for a table and for anything else.

    ``ensemble_size`` candidates are averaged for a table. ``epochs``, ``prototypes`` and ``width``
    are shares of the usual ones.
    """

    recipes: tuple[Recipe, ...]
    of_tables: tuple[Recipe, ...]
    n_members: int
    ensemble_size: int = 1
    epochs: float = 1.0
    prototypes: float = 1.0
    width: float = 1.0


# Folds that choose epochs and candidates; each is a bank of its own, beside one of all rows.
FOLDS = 4
# Chosen by one split of 30 development frames, on the rows that scored them, so these say too much,
# and without a record: the mean of four of the five for tables had .81 times the log loss of the
# best of the four others, better on 22, worse on none; four of all ten .80, in 1.6 times the time.
SCREENED = (PLAIN, CURVED, SMOOTH, DEEP)
OF_TABLES = (PLAIN, DEEP, SMOOTH, STEPPED, SMOOTH_STEPS)
ALL = (
    *OF_TABLES,
    CURVED,
    replace(PLAIN, encoding="steps"),
    replace(CURVED, encoding="both"),
    replace(SMOOTH, encoding="both"),
    replace(DEEP, encoding="both"),
)
EFFORTS: dict[str, Budget] = {
    "quick": Budget((PLAIN,), (PLAIN, STEPPED), FOLDS + 1, epochs=0.22, prototypes=0.8, width=0.75),
    "balanced": Budget(SCREENED, OF_TABLES, FOLDS + 1, ensemble_size=4),
    "best": Budget(SCREENED, ALL, 2 * FOLDS + 1, ensemble_size=6, epochs=1.6),
}
# Wider rows, and wide ones that are fewer than their columns, are projected before the network.
MOST_COLUMNS, FEW_COLUMNS = 1_000, 300
# Columns have one unit if half of those that vary span nearly the range of all together.
UNIT_ROWS, UNIT_COLUMNS, UNIT_RANGE = 1_000, 0.5, 0.9
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


def resolve(config: TrainConfig, shape: DataShape) -> tuple[TrainConfig, ...]:
    """Candidates with a value for every "auto": one, or several that are screened.

    They differ only in what is "auto". Without cross-validation nothing says which is best.
    """
    first = resolved(config, shape)
    if first.early_stopping != "cross":
        return (first,)
    budget = EFFORTS[first.effort]
    recipes = budget.of_tables if _is_table(first) else budget.recipes
    return tuple(dict.fromkeys(resolved(config, shape, recipe) for recipe in recipes))


def _is_table(config: TrainConfig) -> bool:
    """Whether columns have a meaning of their own, and enter the network as they are."""
    return config.projection == "none" and config.image_shape is None


def resolved(config: TrainConfig, shape: DataShape, recipe: Recipe = PLAIN) -> TrainConfig:
    """The configuration of one candidate; what is not "auto" stays as it is."""
    budget = EFFORTS[config.effort]
    values = {
        name: value
        for name, value in vars(config).items()
        if not (is_auto(value) and TrainConfig.__dataclass_fields__[name].metadata["auto"])
    }
    _resolve_network(values, shape, recipe, budget)
    _resolve_features(values, shape, recipe, budget)
    _resolve_schedule(values, shape, recipe, budget)
    _resolve_validation(values, shape, recipe, budget)
    # the rules give values that are valid, so nothing is validated twice
    result = object.__new__(TrainConfig)
    result.__dict__.update({name: values[name] for name in vars(config)})
    return result


def _resolve_network(values: Values, shape: DataShape, recipe: Recipe, budget: Budget) -> None:
    """Stem, activation, prototypes, widths and ridge."""
    image = values["image_shape"]
    has_stem = image is not None and min(image[:2]) >= STEM_SIDE
    has_stem = has_stem and values.get("scaling") not in TAIL_COMPRESSION
    values.setdefault("stem", "pca" if has_stem else "none")
    values.setdefault("activation", recipe.activation)
    if "n_prototypes" not in values:
        values["n_prototypes"] = _n_prototypes(shape, recipe.share * budget.prototypes)
    if "hidden_sizes" not in values:
        width = growing(shape.n_rows, least=64, most=128, at=3_000, power=0.5) * budget.width
        if image is None:  # pixels that came as columns need as much as images
            width *= growing(shape.n_features, least=1, most=2, at=FEW_COLUMNS, power=1)
        else:
            width *= 2
        n_listed = max(len(listed(values.get(name))) for name in ("ridge", "learn_ridge"))
        depth = max(recipe.depth, n_listed - 1)
        values["hidden_sizes"] = (16 * round(width / 16),) * depth
    values.setdefault("ridge", recipe.ridge_a_prototype * float(values["n_prototypes"]))


def _n_prototypes(shape: DataShape, share: float) -> int:
    if shape.n_groups > MOST_PROTOTYPES:
        raise ConfigError(
            f"More than {MOST_PROTOTYPES:,} classes need n_prototypes to be set: each should "
            f"have one at least. There are {shape.n_groups:,}. If the target is a number, use "
            "ProtoPINVRegressor; else set n_prototypes, and expect a step to take long."
        )
    usual = growing(shape.n_rows, least=100, most=150, at=3_000, power=0.3)
    few = max(40, shape.n_rows / 3)
    of_groups = min(PROTOTYPES_OF_A_GROUP * shape.n_groups, MOST_PROTOTYPES)
    return max(10 * round(share * min(usual, few) / 10), of_groups)


def _resolve_features(values: Values, shape: DataShape, recipe: Recipe, budget: Budget) -> None:
    """Scaling, projection, encoding. Columns of a table have a meaning, and are not mixed."""
    d, image, most = shape.n_features, values["image_shape"], values.get("n_components")
    is_projected = values.get("projection") in ("pca", "pls")
    if "projection" not in values:
        is_projected = most is not None and most < d
    is_table = image is None and not shape.one_unit and d <= MOST_COLUMNS
    is_table = is_table and (d <= FEW_COLUMNS or (d <= shape.n_rows and not is_projected))
    usual = "squash" if is_table else "feature"
    values.setdefault("scaling", "global" if image is not None or shape.one_unit else usual)
    values.setdefault("projection", "none" if is_table and not is_projected else "pca")
    values.setdefault("n_components", COMPONENTS)
    is_table = is_table and values["projection"] == "none"
    values.setdefault("learn_scale", is_table)
    values.setdefault("number_encoding", recipe.encoding if is_table else "raw")
    values.setdefault("ensemble_size", budget.ensemble_size if is_table else 1)
    values.setdefault("dtype", "float64" if shape.n_rows <= EXACT_ROWS else "float32")
    fast = shape.on_gpu and shape.fast_bfloat16 and values["dtype"] == "float32"
    many = shape.n_rows > FULL_BATCH_ROWS and not is_table
    values.setdefault("row_dtype", "bfloat16" if many and fast else "same")


def _resolve_schedule(values: Values, shape: DataShape, recipe: Recipe, budget: Budget) -> None:
    """Batches, epochs and learning rate; steps grow with the square root of the rows."""
    n = shape.n_rows * (1 + int(values["image_copies"]))  # rows an epoch passes over
    values.setdefault(
        "batch_size", None if n <= FULL_BATCH_ROWS else math.ceil(n / round(n / BATCH))
    )
    usual: float = FULL_EPOCHS
    if values["batch_size"] is not None:
        steps = BATCH_STEPS * math.sqrt(max(1.0, n / FULL_BATCH_ROWS))
        usual = max(LEAST_EPOCHS, min(FULL_EPOCHS, steps * int(values["batch_size"]) / n))
    values.setdefault("max_epochs", math.ceil(usual * budget.epochs))
    values.setdefault("lr", recipe.lr)
    values.setdefault("warmup_epochs", round(WARM_UP_SHARE * int(values["max_epochs"])))


def _resolve_validation(values: Values, shape: DataShape, recipe: Recipe, budget: Budget) -> None:
    """Early stopping by folds or a hold-out, members, and label smoothing."""
    fraction = values["validation_fraction"]
    if "early_stopping" not in values:
        if not is_auto(fraction) and fraction != 0:
            values["early_stopping"] = True  # a hold-out is asked for
        elif folds_serve(shape.n_rows, shape.n_groups):
            values["early_stopping"] = "cross"
        else:
            values["early_stopping"] = is_auto(fraction) and shape.n_rows > FOLDS_MOST_ROWS
    stopping = values["early_stopping"]
    # a tenth, but not more rows than can tell
    if is_auto(fraction) and stopping is True and shape.n_rows > 10 * MOST_VALIDATION_ROWS:
        values["validation_fraction"] = MOST_VALIDATION_ROWS / shape.n_rows
    values.setdefault("n_members", budget.n_members if stopping == "cross" else 1)
    # it makes for timid probabilities, which held-out rows can calibrate
    may_smooth = shape.n_groups > 1 and stopping is not False
    values.setdefault("label_smoothing", SMOOTHING * recipe.smoothing if may_smooth else 0.0)


def folds_serve(n_rows: int, n_groups: int) -> bool:
    """Whether cross-validation should choose the epochs of a table like this."""
    least = max(FOLDS_LEAST_ROWS, FOLDS_LEAST_OF_A_GROUP * n_groups)
    return least <= n_rows <= FOLDS_MOST_ROWS


def growing(n: int, *, least: float, most: float, at: int, power: float) -> float:
    """``least`` up to so many rows or columns, then with a power of them up to ``most``."""
    return min(most, least * math.pow(max(1.0, n / at), power))


def have_one_unit(X: NDArray[Any]) -> bool:
    """Whether columns are many and most span one range, as pixels do, by some of the rows.

    Then one scale for all of them keeps what varies little small: pixels at the edge are mostly
    noise. Columns of 0 and 1 alone are answers to different questions, and have no unit.
    """
    if X.shape[1] <= FEW_COLUMNS:
        return False
    some = np.ascontiguousarray(X[:: max(1, len(X) // UNIT_ROWS)])
    first, last = some.min(0), some.max(0)
    low, high = first.astype(np.float64), last.astype(np.float64)
    least, most = low.min(), high.max()
    near = (1 - UNIT_RANGE) * (most - least)
    spans = (low <= least + near) & (high >= most - near)
    if spans.sum() < UNIT_COLUMNS * max(1, (high > low).sum()):
        return False
    has_more = ((some > first) & (some < last)).any(0)
    return bool((spans & has_more).sum() >= UNIT_COLUMNS * max(1, (high > low).sum()))
