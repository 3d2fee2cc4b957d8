"""The parameters of the estimators, written once; ``__init__`` only assigns them."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from protopinv.estimators.images import COPIES, STEM, ConvStem, ImageCopies, flattened
from protopinv.train.config import AUTO, FIELDS, TrainConfig

Estimator = TypeVar("Estimator", bound=type)

# Each class that takes them becomes a dataclass itself: comparison and text stay scikit-learn's.
as_estimator: Any = dataclass(eq=False, repr=False, kw_only=True)


@as_estimator
class TrainingParameters:
    """What every network that is trained on rows takes."""

    hidden_sizes: Sequence[int] | int | str = AUTO
    activation: str = AUTO
    stem: ConvStem | str | None = AUTO
    image_shape: Sequence[int] | None = TrainConfig.image_shape
    copies: ImageCopies | None = None
    scaling: str = AUTO
    projection: str = AUTO
    n_components: int | str | None = AUTO
    max_epochs: int | str = AUTO
    batch_size: int | str | None = AUTO
    optimizer: str = TrainConfig.optimizer
    lr: float | str = AUTO
    schedule: str = TrainConfig.schedule
    warmup_epochs: int | str = AUTO
    input_noise: float = TrainConfig.input_noise
    mixup: float = TrainConfig.mixup
    averaging: float = TrainConfig.averaging
    validation_fraction: float | str = TrainConfig.validation_fraction
    early_stopping: bool | str = AUTO
    n_iter_no_change: int = TrainConfig.n_iter_no_change
    device: str = "auto"
    dtype: str = AUTO
    row_dtype: str = AUTO
    random_state: Any = None
    verbose: int = 0

    def _given(self) -> dict[str, Any]:
        """What the configuration is made from; what this estimator lacks is left out."""
        own = {name: getattr(self, name) for name in FIELDS if hasattr(self, name)}
        return {**own, **flattened(self.stem, self.copies)}


@as_estimator
class BankParameters(TrainingParameters):
    """What a bank of prototypes takes beyond that."""

    effort: str = TrainConfig.effort
    n_prototypes: int | str = AUTO
    ridge: Sequence[float] | float | str = AUTO
    learn_ridge: Sequence[bool] | bool = TrainConfig.learn_ridge
    weight_penalty: float = TrainConfig.weight_penalty
    condition_penalty: float = TrainConfig.condition_penalty
    temperature: float = TrainConfig.temperature
    input_init: str = TrainConfig.input_init
    output_init: str = TrainConfig.output_init
    hidden_scale: float = TrainConfig.hidden_scale
    learn_scale: bool | str = AUTO
    scale_lr_ratio: float = TrainConfig.scale_lr_ratio
    n_members: int | str = AUTO
    lr_ratios: Sequence[float] = TrainConfig.lr_ratios
    input_decay: float = TrainConfig.input_decay
    hidden_decay: float = TrainConfig.hidden_decay
    output_decay: float = TrainConfig.output_decay
    hidden_dropout: float = TrainConfig.hidden_dropout
    normalize_inputs: bool = TrainConfig.normalize_inputs
    solver: str = TrainConfig.solver
    warm_start: bool = False
    memory: int | str = AUTO
    max_prototypes: int | None = None
    columns: Mapping[str, str] | None = None


SHARED_TEXT = {
    "stem": "stem : ConvStem, None or 'auto', default='auto'\n"
    "        A convolutional stem before the network; auto: for images large enough.",
    "copies": "copies : ImageCopies or None, default=None\n"
    "        Distorted copies of every training image, next to itself.",
    "device": 'device : str, default="auto"\n'
    '        Where to train and predict: "cpu", "cuda", "cuda:1"; "auto" takes a GPU where torch '
    "sees one.",
    "random_state": "random_state : int, RandomState or None, default=None\n"
    "        The same value gives the same model on the same machine.",
    "verbose": "verbose : int, default=0\n        1 shows a progress bar on stderr.",
    "bounded": "bounded : bool, default=True\n"
    "        Predictions leave the range of y by no more than a tenth of it.",
    "columns": "columns : dict or None, default=None\n"
    "        What columns of a frame are, where that should not be left to what they look like: "
    "'number', 'category', 'date' or 'drop'.",
    "memory": "memory : int or 'auto', default='auto'\n"
    "        Numbers to keep of the rows at most, in place of them, for ``partial_fit``; 0: none; "
    "auto: a quarter of theirs, 138,500 at most, and one Gaussian of every class at least.",
    "max_prototypes": "max_prototypes : int or None, default=None\n"
    "        Where new classes stop adding prototypes to a bank; those that matter least make "
    "room.",
    "warm_start": "warm_start : bool, default=False\n"
    "        Go on from the banks and the features of the last fit; epochs are not chosen in folds "
    "then.",
}


def documented(estimator: Estimator) -> Estimator:
    """Fill ``{parameters}`` in the docstring from TrainConfig, where each is explained once."""
    signature = inspect.signature(estimator).parameters
    by_name = {item.name: item for item in fields(TrainConfig)}
    entries = []
    for name, parameter in signature.items():
        if name in SHARED_TEXT:
            entries.append(SHARED_TEXT[name])
        elif name in by_name and name not in (*STEM, *COPIES):
            kind, text = type_name(by_name[name]), by_name[name].metadata["help"]
            entries.append(f"{name} : {kind}, default={parameter.default!r}\n        {text}")
    estimator.__doc__ = (estimator.__doc__ or "").replace("{parameters}", "\n    ".join(entries))
    return estimator


def type_name(item: Field[Any]) -> str:
    """A type as scikit-learn's docstrings write it."""
    kind: Any = item.type
    if get_origin(kind) is Literal:
        words = (AUTO, *get_args(kind)) if item.metadata["auto"] else get_args(kind)
        return "{" + ", ".join(map(repr, words)) + "}"
    text = " | ".join(map(_written, get_args(kind) if _is_union(kind) else (kind,)))
    return f"{text} | {AUTO!r}" if item.metadata["auto"] else text


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


def _written(kind: Any) -> str:
    """One of several types, or the words that are allowed besides."""
    if get_origin(kind) is Literal:
        return " | ".join(map(repr, get_args(kind)))
    if kind is NoneType:
        return "None"
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return text.replace("collections.abc.", "").replace("typing.", "")
