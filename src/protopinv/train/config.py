"""Every hyperparameter: its default, its range and its meaning, written once.

The estimators' signatures and the command line's options are made from these fields. "auto" is
resolved from the data by the rules in ``resolve.py``. This module imports nothing heavy, so that
``protopinv --help`` stays quick.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, get_args

from protopinv.errors import ConfigError
from protopinv.plain import Rule, one_of

if TYPE_CHECKING:
    from protopinv.network import Architecture

AUTO = "auto"
# How often the state of a training goes to its checkpoint: epochs, or a time.
CHECKPOINT_EVERY = "5min"
Effort = Literal["quick", "balanced", "best"]
Activation = Literal["relu", "silu", "gelu", "tanh", "sigmoid"]
InputInit = Literal["stratified", "normal"]
OutputInit = Literal["balanced", "normal"]
StemKind = Literal["none", "pca", "kmeans", "random"]
Scaling = Literal["none", "global", "feature", "squash", "clip"]
TAIL_COMPRESSION = ("squash", "clip")
Projection = Literal["none", "pca", "pls"]
NumberEncoding = Literal["raw", "steps", "both"]
OptimizerKind = Literal["adam", "muon"]
Schedule = Literal["cosine", "constant"]
Solver = Literal["auto", "dual", "primal", "svd"]
Dtype = Literal["float32", "float64"]
RowDtype = Literal["same", "bfloat16"]
RegressionLoss = Literal["squared", "huber"]

# Numbers beyond these lose their meaning in float32, where products of a few of them are formed.
LARGEST = 1e30
SMALLEST = 1e-30


def _is(kind: Any, value: Any) -> bool:
    """Whether this is a number of this kind that float32 holds with room to spare, and no bool."""
    return isinstance(value, kind) and not isinstance(value, bool) and abs(value) <= LARGEST


def listed(value: Any) -> list[Any]:
    """A list of what may be one value or several."""
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        return [value]
    return list(value)


def _each(test: Callable[[Any], bool], *lengths: int) -> Callable[[Any], bool]:
    """Whether all of one or more values, in number one of ``lengths``, pass."""

    def passes(value: Any) -> bool:
        values = listed(value)
        return (len(values) in lengths if lengths else bool(values)) and all(map(test, values))

    return passes


def _size(value: Any) -> bool:
    return _is(Integral, value) and value >= 1


COUNT = Rule(_size, "a whole number, 1 or more")
COUNT_OR_NONE = Rule(lambda v: v is None or _size(v), "a whole number, 1 or more, or None")
NATURAL = Rule(lambda v: _is(Integral, v) and v >= 0, "a whole number, 0 or more")
POSITIVE = Rule(lambda v: _is(Real, v) and v > 0, "a positive number")
AMOUNT = Rule(lambda v: _is(Real, v) and v >= 0, "a number, 0 or more")
SHARE = Rule(lambda v: _is(Real, v) and 0 <= v < 1, "a number from 0 to below 1")
FLAG = Rule(lambda v: isinstance(v, bool), "True or False")
SIZES = Rule(_each(_size), "one or more positive whole numbers, one a layer")
STAGES = Rule(_each(_size), "one or more positive whole numbers, one a stage")
RIDGES = Rule(
    _each(lambda v: _is(Real, v) and v >= SMALLEST),
    f"from {SMALLEST} to {LARGEST}: one, or one for each layer",
)
FLAGS = Rule(_each(FLAG.test), "True or False: one, or one for each layer")
RATIOS = Rule(_each(AMOUNT.test, 3), "three numbers, 0 or more: inputs, hidden, outputs")
IMAGE = Rule(
    lambda v: v is None or _each(_size, 2, 3)(v),
    "height and width, or height, width and channels, or None",
)
TEMPERATURE = Rule(lambda v: _is(Real, v) and (v == 0 or v >= 1e-6), "0, or a number from 1e-6 up")
FRACTION = Rule(
    lambda v: (isinstance(v, str) and v == AUTO) or SHARE.test(v),
    "'auto' or a number from 0 to below 1",
)
STOPPING = Rule(
    lambda v: isinstance(v, bool) or (isinstance(v, str) and v == "cross"), "True, False or 'cross'"
)


def _option(default: Any, help_: str, rule: Rule | None = None, *, auto: bool = False) -> Any:
    """A field; one without a rule is a choice of words. ``auto`` may be left to ``resolve.py``."""
    return field(default=default, metadata={"help": help_, "auto": auto, "rule": rule})


def _auto(help_: str, rule: Rule | None = None) -> Any:
    return _option(AUTO, help_, rule, auto=True)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Validated when it is made; a field outside its range raises ConfigError."""

    effort: Effort = _option(
        "balanced",
        "How much a fit may try where parameters are auto. quick: one small architecture; "
        "balanced: the best of a few; best: longer training and a larger ensemble.",
    )
    n_prototypes: int = _auto("Prototypes in the bank.", COUNT)
    hidden_sizes: Sequence[int] | int = _auto("Hidden widths, one a layer.", SIZES)
    activation: Activation = _auto("Activation of the hidden layers.")
    ridge: Sequence[float] | float = _auto(
        "Ridge of the solves: one, or one a layer; the last one holds for all layers after it.",
        RIDGES,
    )
    learn_ridge: Sequence[bool] | bool = _option(
        False, "Train the ridge: one, or one a layer, as for ridge.", FLAGS
    )
    weight_penalty: float = _option(0.0, "Penalty on the solved weights, in the loss.", AMOUNT)
    condition_penalty: float = _option(
        0.0, "Penalty on ill-conditioned prototype matrices.", AMOUNT
    )
    temperature: float = _option(
        0.0, "Prototype labels are softmax(Y / T); 0 leaves Y as it is.", TEMPERATURE
    )
    input_init: InputInit = _option("stratified", "Prototype inputs start as rows or as noise.")
    output_init: OutputInit = _option("balanced", "Prototype outputs start one-hot or as noise.")
    hidden_scale: float = _option(
        1.0, "Standard deviation of the initial hidden targets.", POSITIVE
    )
    learn_scale: bool = _auto("Train a factor for every projected feature.", FLAG)
    scale_lr_ratio: float = _option(
        1.0, "Learning rate of these factors, as a ratio to lr.", AMOUNT
    )
    n_members: int = _auto(
        "Members of the ensemble: banks whose mean output is predicted; auto: with "
        "cross-validation one bank for each fold and one of all rows.",
        COUNT,
    )
    ensemble_size: int = _auto(
        "Candidates that are trained to the end and averaged, at most, weighted by their "
        "out-of-fold predictions; auto: some for a table, else the best one alone.",
        COUNT,
    )
    stem: StemKind = _auto("Filters of a convolutional stem; auto: pca for images large enough.")
    stem_filters: Sequence[int] | int = _option(
        25, "Filters of the stem: one number a stage.", STAGES
    )
    stem_patch: int = _option(5, "Pixels on a side that a filter of the first stage sees.", COUNT)
    stem_pool: int = _option(5, "Fields on a side over which the stem averages its maps.", COUNT)
    image_shape: Sequence[int] | None = _option(
        None, "Height, width and channels of an image, for a stem or copies of flat rows.", IMAGE
    )
    image_copies: int = _option(
        0, "Distorted copies of every training image (data augmentation).", NATURAL
    )
    copy_shift: float = _option(
        1.0, "Pixels by which a copy is shifted, standard deviation.", AMOUNT
    )
    copy_bend: float = _option(
        1.0, "Pixels by which points of a copy are moved, standard deviation.", AMOUNT
    )
    copy_mirror: bool = _option(False, "Mirror every other copy left to right.", FLAG)
    scaling: Scaling = _auto(
        "Scaling of the features. none; global: one factor for all; feature: unit variance for "
        "each; squash: heavy tails are compressed first; clip: all columns are limited to three "
        "of their usual widths first."
    )
    projection: Projection = _auto("Projection before the network.")
    n_components: int | None = _auto("Projected features at most; None keeps all.", COUNT_OR_NONE)
    number_encoding: NumberEncoding = _auto(
        "How numbers enter the network. raw: as they are; steps: as a row of steps between "
        "quantiles (piecewise-linear encoding), for targets that jump; both. auto: candidates of "
        "each for a table."
    )
    max_epochs: int = _auto("Passes over the training rows.", COUNT)
    batch_size: int | None = _auto(
        "Rows a step at most; None takes all of them (full batch).", COUNT_OR_NONE
    )
    optimizer: OptimizerKind = _option(
        "adam", "adam; muon: orthogonalised momentum, often better with batch_size and lr x 3."
    )
    lr: float = _auto("Learning rate at its peak.", POSITIVE)
    lr_ratios: Sequence[float] = _option(
        (1.0, 1.0, 1.0), "Learning rates of inputs, hidden targets and outputs, to lr.", RATIOS
    )
    schedule: Schedule = _option("cosine", "Learning rate after the warm-up.")
    warmup_epochs: int = _auto("Epochs of linear warm-up, at most half of all epochs.", NATURAL)
    input_decay: float = _option(0.0, "Decoupled weight decay of the prototype inputs.", AMOUNT)
    hidden_decay: float = _option(0.0, "Decoupled weight decay of the hidden targets.", AMOUNT)
    output_decay: float = _option(0.0, "Decoupled weight decay of the prototype outputs.", AMOUNT)
    hidden_dropout: float = _option(0.0, "Dropout on the hidden targets of the bank.", SHARE)
    input_noise: float = _option(0.0, "Gaussian noise on projected rows while training.", AMOUNT)
    mixup: float = _option(
        0.0, "Largest share of another row mixed into a row while training.", SHARE
    )
    label_smoothing: float = _auto(
        "Share of the target spread over all classes; calibration undoes its effect on "
        "probabilities.",
        SHARE,
    )
    loss: RegressionLoss = _option(
        "squared", "Loss of a regression. huber: large errors count less."
    )
    averaging: float = _option(
        0.0, "Decay of an exponential average over steps that is kept; 0: none.", SHARE
    )
    normalize_inputs: bool = _option(
        False, "Scale every prototype input to unit mean square.", FLAG
    )
    validation_fraction: float | Literal["auto"] = _option(
        AUTO,
        "Share of rows held out for validation; auto: 0.1 with early_stopping=True, else none.",
        FRACTION,
    )
    early_stopping: bool | Literal["cross"] = _auto(
        "Early stopping. True: stop when the validation loss stalls, and keep the best epoch; "
        "cross: pick the number of epochs by 4-fold cross-validation.",
        STOPPING,
    )
    n_iter_no_change: int = _option(25, "Epochs without improvement before stopping early.", COUNT)
    solver: Solver = _option("auto", "Form of the solves; auto: the smaller Cholesky system.")
    dtype: Dtype = _auto("Precision of training; models are kept in float64.")
    row_dtype: RowDtype = _auto(
        "Precision of rows and of products with them; auto: bfloat16 for many wide rows on a GPU."
    )

    def __post_init__(self) -> None:
        for item in fields(self):
            value, rule = _plain(getattr(self, item.name)), RULES[item.name]
            object.__setattr__(self, item.name, value)
            if not (item.metadata["auto"] and is_auto(value)) and not rule.test(value):
                raise self._error(item.name, rule.text)
        for name in () if is_auto(self.hidden_sizes) else ("ridge", "learn_ridge"):
            layers = len(self.widths) + 1
            if len(listed(getattr(self, name))) > layers:
                raise self._error(name, f"one, or at most one for each of the {layers} layers")
        self._check_validation()
        if self.stem not in ("none", AUTO) and self.compresses_tails:
            raise ConfigError(
                "Columns are squashed and clipped in tables, not behind a stem. Got "
                f"scaling={self.scaling!r} with stem={self.stem!r}. Set scaling to 'global'."
            )

    @property
    def takes_images(self) -> bool:
        """Whether rows must be known as images."""
        return self.stem not in ("none", AUTO) or self.image_copies > 0

    @property
    def compresses_tails(self) -> bool:
        """Whether tails are compressed before the columns are scaled."""
        return self.scaling in TAIL_COMPRESSION

    @property
    def architecture(self) -> "Architecture":
        """What a bank needs to become weights."""
        from protopinv.network import Architecture

        return Architecture(self.activation, self.temperature, self.normalize_inputs)

    @property
    def image(self) -> tuple[int, int, int]:
        """Height, width and channels."""
        height, width, *channels = (int(n) for n in self.image_shape or ())
        return height, width, channels[0] if channels else 1

    @property
    def filters(self) -> tuple[int, ...]:
        """``stem_filters`` as a tuple, one number a stage."""
        return tuple(map(int, listed(self.stem_filters)))

    @property
    def widths(self) -> tuple[int, ...]:
        """``hidden_sizes`` as a tuple."""
        return tuple(map(int, listed(self.hidden_sizes)))

    @property
    def ridges(self) -> tuple[float, ...]:
        """``ridge``, one number a layer."""
        return tuple(map(float, self._per_layer(self.ridge)))

    @property
    def learned_ridges(self) -> tuple[bool, ...]:
        """``learn_ridge``, one flag a layer."""
        return tuple(map(bool, self._per_layer(self.learn_ridge)))

    @property
    def held_out(self) -> float:
        """The share of rows that is held out for validation."""
        if self.validation_fraction == AUTO:
            return 0.1 if self.early_stopping is True else 0.0
        return float(self.validation_fraction)

    def _per_layer(self, setting: Any) -> list[Any]:
        values, layers = listed(setting), len(self.widths) + 1
        return (values + [values[-1]] * layers)[:layers]

    def _check_validation(self) -> None:
        if self.early_stopping is True and self.held_out == 0:
            raise ConfigError(
                "Early stopping needs rows to validate on. Got early_stopping=True with "
                "validation_fraction=0. Set validation_fraction to 0.1, or leave it 'auto'."
            )
        if self.early_stopping == "cross" and self.held_out > 0:
            raise ConfigError(
                "Epochs are chosen by cross-validation or on a hold-out, not both. Got "
                f"early_stopping='cross' with validation_fraction={self.validation_fraction}. Set "
                "early_stopping=True, or leave validation_fraction 'auto'."
            )

    def _error(self, name: str, rule: str) -> ConfigError:
        value, default = getattr(self, name), TrainConfig.__dataclass_fields__[name].default
        return ConfigError(
            f"{name} must be {rule}. Got {value!r}. Change it, or leave it at {default!r}."
        )


def is_auto(value: Any) -> bool:
    """Whether a value is left to the rules."""
    return isinstance(value, str) and value == AUTO


RULES: dict[str, Rule] = {
    item.name: item.metadata["rule"] or one_of(*get_args(item.type)) for item in fields(TrainConfig)
}
FIELDS = tuple(RULES)


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
