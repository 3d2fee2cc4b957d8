"""The parameters of the estimators; ``__init__`` only assigns them.

Defaults, ranges and meanings of hyperparameters are those of TrainConfig. Estimators nest what
belongs together: ``stem=ConvStem(...)`` and ``copies=ImageCopies(...)``.
"""

import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, make_dataclass
from numbers import Integral
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np
from sklearn.base import BaseEstimator

from protopinv.model import Model
from protopinv.model_file.loading import tupled
from protopinv.plain import Rule
from protopinv.tables.table import checked_kinds
from protopinv.train.config import AUTO, FIELDS, TrainConfig

Estimator = TypeVar("Estimator", bound=type)


def parameter(
    default: Any, type_: str, help_: str, rule: Rule | None = None, *, kw_only: bool = True
) -> Any:
    """A parameter that is no field of TrainConfig, or not of the same type."""
    meaning = {"type": type_, "help": help_, "rule": rule}
    return field(default=default, kw_only=kw_only, metadata=meaning)


def hyperparameter(name: str) -> Any:
    """A field of TrainConfig, which checks it."""
    item = TrainConfig.__dataclass_fields__[name]
    return parameter(item.default, type_name(item), item.metadata["help"])


def type_name(item: Field[Any]) -> str:
    """The type of a field of TrainConfig as scikit-learn's docstrings write it."""
    words = [AUTO] * item.metadata["auto"]
    if get_origin(item.type) is Literal:
        return "{" + ", ".join(map(repr, [*words, *get_args(item.type)])) + "}"
    return " | ".join([written(item.type), *map(repr, words)])


def written(kind: Any) -> str:
    """A type without the names of modules; words that are allowed as they are."""
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(map(written, get_args(kind)))
    if get_origin(kind) is Literal:
        return " | ".join(map(repr, get_args(kind)))
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"[a-z_][a-z_.]*\.", "", text).replace("NoneType", "None")


def as_estimator(estimator: Estimator) -> Estimator:
    """Make a dataclass, with its ``{parameters}`` and ``{attributes}`` in the docstring.

    Comparison and text stay scikit-learn's.
    """
    made: Any = dataclass(eq=False, repr=False, kw_only=True)(estimator)
    parameters = [
        f"{item.name} : {item.metadata['type']}, default={item.default!r}\n"
        f"        {item.metadata['help']}"
        for item in fields(made)
        if item.metadata
    ]
    attributes = ["model_ : Model\n        All that was fitted, as one frozen value."]
    attributes += [
        f"{name} : {(value.__doc__ or '').strip()}"
        for kind in estimator.__mro__
        for name, value in vars(kind).items()
        if isinstance(value, property) and name.endswith("_") and name[0] != "_"
    ]
    filled = (estimator.__doc__ or "").replace("{parameters}", "\n    ".join(parameters))
    estimator.__doc__ = filled.replace("{attributes}", "\n    ".join(attributes))
    return estimator


def fitted(path: str, text: str, type_: str = "", *, may_lack: bool = True) -> Any:
    """A fitted attribute: what is at a path in ``model_``, absent before ``fit``.

    Unless it ``may_lack``, None is absence too.
    """

    def attribute(self: Any) -> Any:
        value = attrgetter(path)(self._model())
        if value is None and not may_lack:
            raise AttributeError(f"This {type(self).__name__} has none: {text}")
        return value

    type_ = type_ or written(Model.__dataclass_fields__[path].type)
    return property(attribute, doc=f"{type_}\n        {text}")


@as_estimator
class ConvStem(BaseEstimator):
    """A convolutional stem before the network: filters made from patches, never trained.

    Parameters
    ----------
    {parameters}
    """

    kind: str = parameter(
        "kmeans",
        "{'pca', 'kmeans', 'random'}",
        "What the filters are made from: principal patches, cluster centres, or random patches.",
        kw_only=False,
    )
    filters: Any = hyperparameter("stem_filters")
    patch: int = hyperparameter("stem_patch")
    pool: int = hyperparameter("stem_pool")


@as_estimator
class ImageCopies(BaseEstimator):
    """Distorted copies of every training image (data augmentation).

    Parameters
    ----------
    {parameters}
    """

    n: int = parameter(1, "int", "Copies of each image.", kw_only=False)
    shift: float = hyperparameter("copy_shift")
    bend: float = hyperparameter("copy_bend")
    mirror: bool = hyperparameter("copy_mirror")


# Fields of TrainConfig, and the parameters of a stem and of copies that they come from.
STEM = {"stem": "kind", "stem_filters": "filters", "stem_patch": "patch", "stem_pool": "pool"}
COPIES = {
    "image_copies": "n",
    "copy_shift": "shift",
    "copy_bend": "bend",
    "copy_mirror": "mirror",
}


# Both estimators take the fields of TrainConfig but those of images, and what only one has.
Hyperparameters: Any = make_dataclass(
    "Hyperparameters",
    [
        (name, item.type | str if item.metadata["auto"] else item.type, hyperparameter(name))
        for name, item in TrainConfig.__dataclass_fields__.items()
        if name not in (*STEM, *COPIES, "loss", "label_smoothing")
    ],
    bases=(BaseEstimator,),
    eq=False,
    repr=False,
    kw_only=True,
)


def flat(estimator: Any) -> dict[str, Any]:
    """The parameters of an estimator that are fields of TrainConfig, of stem and copies too."""
    values = {name: getattr(estimator, name) for name in FIELDS if hasattr(estimator, name)}
    if estimator.stem is None:
        values["stem"] = "none"
    elif isinstance(estimator.stem, ConvStem):
        values |= {name: getattr(estimator.stem, part) for name, part in STEM.items()}
    if estimator.copies is not None:
        values |= {name: getattr(estimator.copies, part) for name, part in COPIES.items()}
    return values


def stored(estimator: Any) -> dict[str, Any]:
    """The parameters of an estimator as plain values for a file, those of stem and copies flat."""
    config, seed = estimator.config(), estimator.random_state
    values: dict[str, Any] = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in estimator.get_params(deep=False).items()
        if name != "copies"
    }
    values |= {name: getattr(config, name) for name in (*STEM, *COPIES)}
    values["random_state"] = int(seed) if isinstance(seed, Integral) else None
    # What was trained on a GPU must load where there is none.
    values["device"] = AUTO if estimator.device.startswith("cuda") else estimator.device
    if isinstance(values.get("class_weight"), dict):
        # Keys of a JSON object are strings, and classes need not be.
        values["class_weight"] = [list(item) for item in values["class_weight"].items()]
    return values


def arguments_from(values: Mapping[str, Any]) -> dict[str, Any]:
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
    stem, copies = (
        {part: values[name] for name, part in names.items() if name in values}
        for names in (STEM, COPIES)
    )
    if "kind" in stem:
        without = {"none": None, AUTO: AUTO}
        kind = stem["kind"]
        rest["stem"] = without[kind] if kind in without else ConvStem(**stem)
    if "n" in copies:
        rest["copies"] = None if copies["n"] == 0 else ImageCopies(**copies)
    return rest
