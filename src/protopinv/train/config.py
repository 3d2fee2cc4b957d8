"""Every hyperparameter, its default and its meaning, written once.

The estimators' signatures and the command line's options are made from these fields. This module
imports nothing heavy, so that ``protopinv --help`` stays quick.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Literal, get_args

from protopinv.errors import ConfigError

Effort = Literal["quick", "balanced", "best"]
Activation = Literal["relu", "silu", "gelu", "tanh", "sigmoid"]
InputInit = Literal["stratified", "normal"]
OutputInit = Literal["balanced", "normal"]
StemKind = Literal["none", "pca", "kmeans", "random"]
Scaling = Literal["none", "global", "feature", "squash", "clip"]
BENDING = ("squash", "clip")
Projection = Literal["none", "pca", "pls"]
OptimizerKind = Literal["adam", "muon"]
Schedule = Literal["cosine", "constant"]
Solver = Literal["auto", "dual", "primal", "svd"]
Dtype = Literal["float32", "float64"]
RowDtype = Literal["same", "bfloat16"]
RegressionLoss = Literal["squared", "huber"]

# Numbers beyond these lose their meaning in float32, where products of a few of them are formed.
LARGEST = 1e30
SMALLEST = 1e-30


def _option(default: Any, text: str, *, auto: bool = False) -> Any:
    """A field; with ``auto`` the estimators and commands leave it to the rules in settle.py."""
    return field(default=default, metadata={"help": text, "auto": auto})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Validated when it is made; a field outside its range raises ConfigError."""

    effort: Effort = _option(
        "balanced",
        "How much a fit may try of what is auto. quick: one kind of small network; balanced: the "
        "best of a few kinds; best: for longer, and a mean of more banks.",
    )
    n_prototypes: int = _option(150, "Prototypes in the bank.", auto=True)
    hidden_sizes: Sequence[int] | int = _option((512,), "Hidden widths, one a layer.", auto=True)
    activation: Activation = _option("relu", "Activation of the hidden layers.", auto=True)
    ridge: Sequence[float] | float = _option(
        10.0, "Ridge of the solves: one, or one a layer.", auto=True
    )
    learn_ridge: Sequence[bool] | bool = _option(False, "Train the ridge: one, or one a layer.")
    weight_penalty: float = _option(0.0, "Penalty on the solved weights, in the loss.")
    condition_penalty: float = _option(0.0, "Penalty on ill-conditioned prototype matrices.")
    temperature: float = _option(0.0, "Prototype labels are softmax(Y / T); 0 leaves Y as it is.")
    input_init: InputInit = _option("stratified", "Prototype inputs start as rows or as noise.")
    output_init: OutputInit = _option("balanced", "Prototype outputs start one-hot or as noise.")
    hidden_scale: float = _option(1.0, "Standard deviation of the initial hidden targets.")
    learn_scale: bool = _option(False, "Train a factor for every projected feature.", auto=True)
    scale_lr_ratio: float = _option(1.0, "Ratio of its learning rate to lr.")
    n_members: int = _option(
        1,
        "Banks whose mean output is predicted; auto: with folds their banks and that of all rows.",
        auto=True,
    )
    stem: StemKind = _option(
        "none", "Filters of a convolutional stem; auto: pca for images large enough.", auto=True
    )
    stem_filters: Sequence[int] | int = _option(25, "Filters of the stem: one number a stage.")
    stem_patch: int = _option(5, "Pixels on a side that a filter of the first stage sees.")
    stem_pool: int = _option(5, "Fields on a side over which the stem averages its maps.")
    image_shape: Sequence[int] | None = _option(
        None, "Height, width and channels of an image, for a stem or copies of flat rows."
    )
    image_copies: int = _option(0, "Distorted copies of every training image, next to itself.")
    copy_shift: float = _option(1.0, "Pixels by which a copy is shifted, standard deviation.")
    copy_bend: float = _option(1.0, "Pixels by which points of a copy are moved, likewise.")
    copy_mirror: bool = _option(False, "Turn every other copy left to right.")
    scaling: Scaling = _option(
        "feature",
        "none; global: one factor for all features; feature: one each; squash: the same once heavy "
        "tails are in; clip: once all columns are within three of their usual widths.",
        auto=True,
    )
    projection: Projection = _option("pca", "Projection before the network.", auto=True)
    n_components: int | None = _option(
        400, "Projected features at most; None keeps all.", auto=True
    )
    max_epochs: int = _option(250, "Passes over the training rows.", auto=True)
    batch_size: int | None = _option(
        None, "Rows a step at most; None takes all of them (full batch).", auto=True
    )
    optimizer: OptimizerKind = _option(
        "adam", "adam; muon: momentum made orthogonal, often better with batch_size and lr x 3."
    )
    lr: float = _option(0.05, "Learning rate at its peak.", auto=True)
    lr_ratios: Sequence[float] = _option((1.0, 1.0, 1.0), "Its ratio for inputs, hidden, outputs.")
    schedule: Schedule = _option("cosine", "Learning rate after the warm-up.")
    warmup_epochs: int = _option(
        20, "Epochs of linear warm-up, at most half of all epochs.", auto=True
    )
    input_decay: float = _option(0.0, "Decoupled weight decay of the prototype inputs.")
    hidden_decay: float = _option(0.0, "Decoupled weight decay of the hidden targets.")
    output_decay: float = _option(0.0, "Decoupled weight decay of the prototype outputs.")
    hidden_dropout: float = _option(0.0, "Dropout on the hidden targets of the bank.")
    input_noise: float = _option(0.0, "Gaussian noise on projected rows while training.")
    mixup: float = _option(0.0, "Largest share of another row mixed into a row while training.")
    label_smoothing: float = _option(
        0.0, "Share of the target spread over all classes; held-out rows undo it.", auto=True
    )
    loss: RegressionLoss = _option("squared", "Loss of numbers; huber: large errors count less.")
    averaging: float = _option(0.0, "Decay of the average over steps that is kept; 0: none.")
    normalize_inputs: bool = _option(False, "Scale every prototype input to unit mean square.")
    validation_fraction: float | Literal["auto"] = _option(
        "auto", "Rows held out; auto: 0.1 with early stopping, else none."
    )
    early_stopping: bool | Literal["cross"] = _option(
        False,
        "Stop when validation stalls and keep the best; cross: choose epochs in four folds.",
        auto=True,
    )
    n_iter_no_change: int = _option(25, "Epochs without improvement before stopping early.")
    solver: Solver = _option("auto", "Form of the solves; auto: the smaller Cholesky system.")
    dtype: Dtype = _option(
        "float32", "Precision of training; models are kept in float64.", auto=True
    )
    row_dtype: RowDtype = _option(
        "same",
        "Precision of rows and of products with them; auto: bfloat16 for many wide rows on a GPU.",
        auto=True,
    )

    def __post_init__(self) -> None:
        for name in FIELDS:
            object.__setattr__(self, name, _plain(getattr(self, name)))
        for name in _CHOICES:
            self._check_choice(name)
        for name in (
            "n_prototypes",
            "n_members",
            "max_epochs",
            "n_iter_no_change",
            "stem_patch",
            "stem_pool",
        ):
            self._check_number(name, Integral, lambda v: v >= 1, "a whole number, 1 or more")
        for name in ("batch_size", "n_components"):
            if getattr(self, name) is not None:
                rule = "a whole number, 1 or more, or None"
                self._check_number(name, Integral, lambda v: v >= 1, rule)
        for name in ("warmup_epochs", "image_copies"):
            self._check_number(name, Integral, lambda v: v >= 0, "a whole number, 0 or more")
        for name in ("lr", "hidden_scale"):
            self._check_number(name, Real, lambda v: v > 0, "a positive number")
        self._check_number(
            "temperature", Real, lambda v: v == 0 or v >= 1e-6, "0, or a number from 1e-6 up"
        )
        for name in (
            "weight_penalty",
            "condition_penalty",
            "input_decay",
            "hidden_decay",
            "output_decay",
            "input_noise",
            "copy_shift",
            "copy_bend",
            "scale_lr_ratio",
        ):
            self._check_number(name, Real, lambda v: v >= 0, "a number, 0 or more")
        for name in ("hidden_dropout", "label_smoothing", "mixup", "averaging"):
            self._check_number(name, Real, lambda v: 0 <= v < 1, "a number from 0 to below 1")
        for name in ("normalize_inputs", "copy_mirror", "learn_scale"):
            self._check(name, lambda v: isinstance(v, bool), "True or False")
        self._check(
            "early_stopping",
            lambda v: isinstance(v, bool) or (isinstance(v, str) and v == "cross"),
            "True, False or 'cross'",
        )
        self._check_layers()
        self._check_images()
        self._check_validation()

    @property
    def takes_images(self) -> bool:
        """Whether rows must be known as images."""
        return self.stem != "none" or self.image_copies > 0

    @property
    def bends_columns(self) -> bool:
        """Whether tails are brought in before the columns are scaled."""
        return self.scaling in BENDING

    @property
    def image(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        height, width, *channels = (int(n) for n in self.image_shape or ())
        return height, width, channels[0] if channels else 1

    @property
    def filters(self) -> tuple[int, ...]:
        """``stem_filters`` as a tuple, one number a stage."""
        return tuple(int(number) for number in _listed(self.stem_filters))

    @property
    def widths(self) -> tuple[int, ...]:
        """``hidden_sizes`` as a tuple."""
        return tuple(int(width) for width in _listed(self.hidden_sizes))

    @property
    def ridges(self) -> tuple[float, ...]:
        """``ridge``, one number a layer."""
        return tuple(float(value) for value in self._one_a_layer("ridge"))

    @property
    def learned_ridges(self) -> tuple[bool, ...]:
        """``learn_ridge``, one flag a layer."""
        return tuple(bool(value) for value in self._one_a_layer("learn_ridge"))

    @property
    def held_out(self) -> float:
        """The share of rows that is held out for validation."""
        if self.validation_fraction == "auto":
            return 0.1 if self.early_stopping is True else 0.0
        return float(self.validation_fraction)

    def _check_layers(self) -> None:
        def widths(v: Any) -> bool:
            return len(_listed(v)) >= 1 and all(_is(Integral, w) and w >= 1 for w in _listed(v))

        def ratios(v: Any) -> bool:
            return len(_listed(v)) == 3 and all(_is(Real, r) and r >= 0 for r in _listed(v))

        self._check("hidden_sizes", widths, "one or more positive whole numbers, one a layer")
        layers = len(self.widths) + 1
        each = f"one, or one for each of the {layers} layers"
        self._check(
            "ridge",
            lambda v: _fits(v, layers) and all(_is(Real, r) and r >= SMALLEST for r in _listed(v)),
            f"from {SMALLEST} to {LARGEST}: {each}",
        )
        self._check(
            "learn_ridge",
            lambda v: _fits(v, layers) and all(isinstance(flag, bool) for flag in _listed(v)),
            f"True or False: {each}",
        )
        self._check("lr_ratios", ratios, "three numbers, 0 or more: inputs, hidden, outputs")

    def _check_images(self) -> None:
        def positive(v: Any) -> bool:
            return len(_listed(v)) >= 1 and all(_is(Integral, n) and n >= 1 for n in _listed(v))

        self._check("stem_filters", positive, "one or more positive whole numbers, one a stage")
        self._check(
            "image_shape",
            lambda v: v is None or (len(_listed(v)) in (2, 3) and positive(v)),
            "height and width, or height, width and channels, or None",
        )

        if self.stem != "none" and self.bends_columns:
            raise ConfigError(
                "Columns are squashed and clipped in tables, not behind a stem. Got "
                f"scaling={self.scaling!r} with stem={self.stem!r}. Set scaling to 'global'."
            )

    def _check_validation(self) -> None:
        def fraction(v: Any) -> bool:
            return (isinstance(v, str) and v == "auto") or (_is(Real, v) and 0 <= v < 1)

        self._check("validation_fraction", fraction, "'auto' or a number from 0 to below 1")
        if self.early_stopping is True and self.held_out == 0:
            raise ConfigError(
                "Early stopping needs rows to validate on. Got early_stopping=True with "
                "validation_fraction=0. Set validation_fraction to 0.1, or leave it 'auto'."
            )
        if self.early_stopping == "cross" and self.held_out > 0:
            raise ConfigError(
                "Epochs are chosen in folds or on a hold-out, not both. Got early_stopping='cross' "
                f"with validation_fraction={self.validation_fraction}. Set early_stopping=True, or "
                "leave validation_fraction 'auto'."
            )

    def _check_choice(self, name: str) -> None:
        choices = get_args(_CHOICES[name])
        rule = "one of " + ", ".join(map(repr, choices))
        self._check(name, lambda v: isinstance(v, str) and v in choices, rule)

    def _check_number(self, name: str, kind: type, test: Any, rule: str) -> None:
        self._check(name, lambda v: _is(kind, v) and test(v), rule)

    def _check(self, name: str, test: Any, rule: str) -> None:
        value = getattr(self, name)
        if not test(value):
            default = offered_default(name)
            raise ConfigError(
                f"{name} must be {rule}. Got {value!r}. Change it, or leave it at {default!r}."
            )

    def _one_a_layer(self, name: str) -> Sequence[Any]:
        values = _listed(getattr(self, name))
        layers = len(self.widths) + 1
        return values if len(values) == layers else list(values) * layers


_CHOICES = {
    "effort": Effort,
    "activation": Activation,
    "input_init": InputInit,
    "output_init": OutputInit,
    "stem": StemKind,
    "scaling": Scaling,
    "projection": Projection,
    "optimizer": OptimizerKind,
    "schedule": Schedule,
    "solver": Solver,
    "dtype": Dtype,
    "row_dtype": RowDtype,
    "loss": RegressionLoss,
}

FIELDS = tuple(item.name for item in fields(TrainConfig))
AUTO = "auto"


def offered_default(name: str) -> Any:
    """What estimators and commands offer for a field: "auto" where the data's shape decides."""
    item = TrainConfig.__dataclass_fields__[name]
    return AUTO if item.metadata["auto"] else item.default


def _listed(value: Any) -> Sequence[Any]:
    """A list of what may be one value or several."""
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return [value]
    return list(value)


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays, and any other sequences and numbers, as Python's own."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    # torch takes no larger whole numbers than these
    if isinstance(value, Integral) and abs(int(value)) < 2**63:
        return int(value)
    return float(value)


def _fits(value: Any, layers: int) -> bool:
    return len(_listed(value)) in (1, layers)


def _is(kind: Any, value: Any) -> bool:
    """A number of this kind that float32 can hold with room to spare; a bool is not one."""
    return isinstance(value, kind) and not isinstance(value, bool) and abs(value) <= LARGEST
