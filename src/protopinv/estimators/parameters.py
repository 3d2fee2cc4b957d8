"""The parameters of the estimators; ``__init__`` only assigns them.

Defaults, ranges and meanings of hyperparameters are those of TrainConfig. Estimators nest what
belongs together: ``stem=ConvStem(...)`` and ``copies=ImageCopies(...)``.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
from sklearn.base import BaseEstimator

from protopinv.errors import ConfigError
from protopinv.model_file.loading import tupled
from protopinv.tables.table import checked_kinds
from protopinv.train.config import AUTO, FIELDS, LARGEST, TrainConfig, is_auto

Estimator = TypeVar("Estimator", bound=type)

# Each class that takes them becomes a dataclass itself: comparison and text stay scikit-learn's.
as_estimator: Any = dataclass(eq=False, repr=False, kw_only=True)


class ConvStem(BaseEstimator):
    """A convolutional stem before the network: filters made from patches, never trained.

    Parameters
    ----------
    kind : {"pca", "kmeans", "random"}, default="kmeans"
        What the filters are made from: principal patches, cluster centres, or random patches.
    filters : int or sequence of int, default=25
        Filters of the stem: one number a stage.
    patch : int, default=5
        Pixels on a side that a filter of the first stage sees.
    pool : int, default=5
        Fields on a side over which the stem averages its maps.
    """

    def __init__(
        self,
        kind: Literal["pca", "kmeans", "random"] = "kmeans",
        *,
        filters: Any = TrainConfig.stem_filters,
        patch: int = TrainConfig.stem_patch,
        pool: int = TrainConfig.stem_pool,
    ) -> None:
        self.kind, self.filters, self.patch, self.pool = kind, filters, patch, pool


class ImageCopies(BaseEstimator):
    """Distorted copies of every training image (data augmentation).

    Parameters
    ----------
    n : int, default=1
        Copies of each image.
    shift : float, default=1.0
        Pixels by which a copy is shifted, standard deviation.
    bend : float, default=1.0
        Pixels by which points of a copy are moved, standard deviation.
    mirror : bool, default=False
        Mirror every other copy left to right.
    """

    def __init__(
        self,
        n: int = 1,
        *,
        shift: float = TrainConfig.copy_shift,
        bend: float = TrainConfig.copy_bend,
        mirror: bool = TrainConfig.copy_mirror,
    ) -> None:
        self.n, self.shift, self.bend, self.mirror = n, shift, bend, mirror


# Fields of TrainConfig, and the parameters of a stem and of copies that they come from.
STEM = {"stem": "kind", "stem_filters": "filters", "stem_patch": "patch", "stem_pool": "pool"}
COPIES = {
    "image_copies": "n",
    "copy_shift": "shift",
    "copy_bend": "bend",
    "copy_mirror": "mirror",
}


@as_estimator
class Parameters(BaseEstimator):
    """The parameters of both estimators."""

    effort: str = TrainConfig.effort
    n_prototypes: int | str = TrainConfig.n_prototypes
    hidden_sizes: Sequence[int] | int | str = TrainConfig.hidden_sizes
    activation: str = TrainConfig.activation
    ridge: Sequence[float] | float | str = TrainConfig.ridge
    learn_ridge: Sequence[bool] | bool = TrainConfig.learn_ridge
    n_members: int | str = TrainConfig.n_members
    columns: Mapping[str, str] | None = None
    scaling: str = TrainConfig.scaling
    projection: str = TrainConfig.projection
    n_components: int | str | None = TrainConfig.n_components
    learn_scale: bool | str = TrainConfig.learn_scale
    scale_lr_ratio: float = TrainConfig.scale_lr_ratio
    stem: ConvStem | str | None = AUTO
    image_shape: Sequence[int] | None = TrainConfig.image_shape
    copies: ImageCopies | None = None
    max_epochs: int | str = TrainConfig.max_epochs
    batch_size: int | str | None = TrainConfig.batch_size
    optimizer: str = TrainConfig.optimizer
    lr: float | str = TrainConfig.lr
    lr_ratios: Sequence[float] = TrainConfig.lr_ratios
    schedule: str = TrainConfig.schedule
    warmup_epochs: int | str = TrainConfig.warmup_epochs
    early_stopping: bool | str = TrainConfig.early_stopping
    validation_fraction: float | str = TrainConfig.validation_fraction
    n_iter_no_change: int = TrainConfig.n_iter_no_change
    input_noise: float = TrainConfig.input_noise
    mixup: float = TrainConfig.mixup
    averaging: float = TrainConfig.averaging
    weight_penalty: float = TrainConfig.weight_penalty
    condition_penalty: float = TrainConfig.condition_penalty
    input_decay: float = TrainConfig.input_decay
    hidden_decay: float = TrainConfig.hidden_decay
    output_decay: float = TrainConfig.output_decay
    hidden_dropout: float = TrainConfig.hidden_dropout
    temperature: float = TrainConfig.temperature
    input_init: str = TrainConfig.input_init
    output_init: str = TrainConfig.output_init
    hidden_scale: float = TrainConfig.hidden_scale
    normalize_inputs: bool = TrainConfig.normalize_inputs
    solver: str = TrainConfig.solver
    dtype: str = TrainConfig.dtype
    row_dtype: str = TrainConfig.row_dtype
    memory: int | str = AUTO
    max_prototypes: int | None = None
    warm_start: Any = False
    device: str = AUTO
    random_state: Any = None
    verbose: Any = 0

    def config(self) -> TrainConfig:
        """The hyperparameters, validated: ConfigError for one outside its range.

        What is "auto" is resolved in ``fit``; ``config_`` has the values that were used.
        """
        own = {name: getattr(self, name) for name in FIELDS if hasattr(self, name)}
        self._check_other_parameters()
        return TrainConfig(**{**own, **flattened(self.stem, self.copies)})

    def _check_other_parameters(self) -> None:
        """Raise ConfigError for a parameter that is no hyperparameter and outside its range."""
        if not isinstance(self.verbose, int | np.integer):
            _refuse(self, "verbose", "a whole number or a bool")
        if not isinstance(self.warm_start, bool | np.bool_):
            _refuse(self, "warm_start", "True or False")
        if not is_auto(self.memory) and not _is_count(self.memory, 0):
            _refuse(self, "memory", "'auto' or a number from 0 on")
        if self.max_prototypes is not None and not _is_count(self.max_prototypes, 1):
            _refuse(self, "max_prototypes", "None or a number from 1 on")


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST


def _refuse(estimator: Any, name: str, rule: str) -> None:
    default = inspect.signature(type(estimator)).parameters[name].default
    raise ConfigError(
        f"{name} must be {rule}. Got {getattr(estimator, name)!r}. Change it, or leave it at "
        f"{default!r}."
    )


def flattened(stem: Any, copies: Any) -> dict[str, Any]:
    """The fields of TrainConfig for a stem and copies, each of which may be None.

    A stem that is "auto" is left to the rules.
    """
    values: dict[str, Any] = {}
    nested_parameters = (
        (None if is_auto(stem) else stem, "stem", ConvStem, STEM, "'auto', None"),
        (copies, "copies", ImageCopies, COPIES, "None"),
    )
    for value, name, kind, names, others in nested_parameters:
        if value is not None and not isinstance(value, kind):
            raise ConfigError(
                f"{name} must be {others} or {kind.__name__}(...). Got {value!r}. Change it, for "
                f"example to {kind.__name__}()."
            )
        for field, parameter in names.items():
            default = getattr(TrainConfig, field)
            values[field] = default if value is None else getattr(value, parameter)
    return values if is_auto(stem) or stem is not None else {**values, "stem": "none"}


def stored(estimator: Parameters) -> dict[str, Any]:
    """The parameters of an estimator as plain values for a file."""
    values: dict[str, Any] = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("stem", "copies")
    }
    seed = estimator.random_state
    values["random_state"] = int(seed) if isinstance(seed, Integral) else None
    # What was trained on a GPU must load where there is none.
    values["device"] = "auto" if estimator.device.startswith("cuda") else estimator.device
    if isinstance(values.get("class_weight"), dict):
        # Keys of a JSON object are strings, and classes need not be.
        values["class_weight"] = [list(item) for item in values["class_weight"].items()]
    return values | flattened(estimator.stem, estimator.copies)


def restored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an estimator from what ``stored`` made of them."""
    arguments = {name: tupled(value) for name, value in values.items()}
    if isinstance(arguments.get("class_weight"), tuple):
        arguments["class_weight"] = dict(values["class_weight"])
    if arguments.get("columns") is not None:
        checked_kinds(arguments["columns"], list(arguments["columns"]))
    return nested(arguments)


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator from fields of TrainConfig, with ``stem`` and ``copies`` made."""
    rest = {name: value for name, value in values.items() if name not in (*STEM, *COPIES)}
    stem = {name: values[field] for field, name in STEM.items() if field in values}
    copies = {name: values[field] for field, name in COPIES.items() if field in values}
    if "kind" in stem:
        without = {"none": None, AUTO: AUTO}
        kind = stem["kind"]
        rest["stem"] = without[kind] if kind in without else ConvStem(**stem)
    if "n" in copies:
        rest["copies"] = None if copies["n"] == 0 else ImageCopies(**copies)
    return rest


# Parameters that are no fields of TrainConfig, or not of the same type: type and help.
OTHER_PARAMETERS = {
    "columns": (
        "dict or None",
        "How columns of a frame are used, by name: 'number', 'category', 'date' or 'drop'; other "
        "columns are inferred.",
    ),
    "stem": (
        "ConvStem, None or 'auto'",
        "A convolutional stem before the network; auto: for images large enough.",
    ),
    "copies": ("ImageCopies or None", "Distorted copies of every training image."),
    "memory": (
        "int or 'auto'",
        "Limit of the replay memory for ``partial_fit``, in numbers; 0: none; auto: a quarter of "
        "those of the rows, 138,500 at most, and one Gaussian for every class at least.",
    ),
    "max_prototypes": (
        "int or None",
        "Upper limit of prototypes per bank in ``partial_fit``. When new classes need more, the "
        "least important prototypes are removed.",
    ),
    "warm_start": (
        "bool",
        "Start ``fit`` from the banks and the features of the last fit, without folds.",
    ),
    "device": (
        "str",
        "Where to train and predict: 'cpu', 'cuda', 'cuda:1'; 'auto' takes a GPU where torch "
        "sees one.",
    ),
    "random_state": (
        "int, RandomState or None",
        "Seed; equal values give equal models on one machine.",
    ),
    "verbose": ("int", "1 shows a progress bar on stderr."),
    "bounded": ("bool", "Predictions leave the range of y by no more than a tenth of it."),
}


def documented(estimator: Estimator) -> Estimator:
    """Fill ``{parameters}`` and ``{attributes}`` in the docstring from where each is explained."""
    by_name = {item.name: item for item in fields(TrainConfig)}
    entries = []
    for name, parameter in inspect.signature(estimator).parameters.items():
        if name in OTHER_PARAMETERS:
            kind, text = OTHER_PARAMETERS[name]
        elif name in by_name and name not in (*STEM, *COPIES):
            kind, text = type_name(by_name[name]), by_name[name].metadata["help"]
        else:
            continue
        entries.append(f"{name} : {kind}, default={parameter.default!r}\n        {text}")
    properties = [
        (name, value)
        for kind in estimator.__mro__
        for name, value in vars(kind).items()
        if isinstance(value, property) and name.endswith("_") and name[0] != "_"
    ]
    attributes = ["model_ : Model\n        All that was fitted, as one frozen value."]
    attributes += [f"{name} : {value.__doc__}" for name, value in properties]
    filled = (estimator.__doc__ or "").replace("{parameters}", "\n    ".join(entries))
    estimator.__doc__ = filled.replace("{attributes}", "\n    ".join(attributes))
    return estimator


def type_name(item: Field[Any]) -> str:
    """A type as scikit-learn's docstrings write it."""
    kind: Any = item.type
    if get_origin(kind) is Literal:
        words = (AUTO, *get_args(kind)) if item.metadata["auto"] else get_args(kind)
        return "{" + ", ".join(map(repr, words)) + "}"
    is_union = get_origin(kind) in (Union, UnionType)
    text = " | ".join(map(_written, get_args(kind) if is_union else (kind,)))
    return f"{text} | {AUTO!r}" if item.metadata["auto"] else text


def _written(kind: Any) -> str:
    """One of several types, or the words that are allowed besides."""
    if get_origin(kind) is Literal:
        return " | ".join(map(repr, get_args(kind)))
    if kind is NoneType:
        return "None"
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return text.replace("collections.abc.", "").replace("typing.", "")
