"""ProtoPINVClassifier: a closed-form prototype network behind scikit-learn's manners."""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted
from torch import Generator

from protopinv.diagnose import Diagnosis, Perturbation, check_lemma, diagnose
from protopinv.estimators.checks import hold_out, memory_named, resolve_device
from protopinv.estimators.door import ProbabilisticClassifier, with_image_shape, with_parameters
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import AUTO, FIELDS, TrainConfig
from protopinv.train.loop import Observer
from protopinv.train.model import train_classifier
from protopinv.train.progress import progress
from protopinv.train.settle import check, settle


@with_parameters()
class ProtoPINVClassifier(ProbabilisticClassifier):
    """A small network whose weights are solved from a trained bank of prototypes.

    Adam trains prototype inputs, hidden targets and outputs; every weight matrix is the ridge
    regression from one to the next, solved anew at each step.

    Parameters
    ----------
    {parameters}
    device : {{"auto", "cpu", "cuda"}}, default="auto"
        Where to train and predict; "auto" takes a GPU where torch sees one.
    random_state : int, RandomState or None, default=None
        The same value gives the same model on the same machine.
    verbose : int, default=0
        1 shows a progress bar on stderr.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    network_ : Network
        The plain network on original features, behind ``front_`` if there is one, in float64.
    config_ : TrainConfig
        The hyperparameters as they were used: every "auto" settled.
    bank_ : Bank
        The trained prototypes.
    front_ : Stem, Squash or None
        What stands before the network and does not fold into it.
    features_ : FeatureMap
        Scaling and projection before the network, already folded into ``network_``.
    history_ : History
        Loss, learning rate, ridges and validation score of every epoch, and what the guard did.
    n_iter_ : int
        Epochs that were run.
    """

    def __init__(
        self,
        n_prototypes: int | str = AUTO,
        *,
        hidden_sizes: Sequence[int] | int | str = AUTO,
        activation: str = TrainConfig.activation,
        ridge: Sequence[float] | float | str = AUTO,
        learn_ridge: Sequence[bool] | bool = TrainConfig.learn_ridge,
        weight_penalty: float = TrainConfig.weight_penalty,
        condition_penalty: float = TrainConfig.condition_penalty,
        temperature: float = TrainConfig.temperature,
        input_init: str = TrainConfig.input_init,
        output_init: str = TrainConfig.output_init,
        hidden_scale: float = TrainConfig.hidden_scale,
        stem: str = TrainConfig.stem,
        stem_filters: Sequence[int] | int = TrainConfig.stem_filters,
        stem_patch: int = TrainConfig.stem_patch,
        stem_pool: int = TrainConfig.stem_pool,
        image_shape: Sequence[int] | None = TrainConfig.image_shape,
        image_copies: int = TrainConfig.image_copies,
        copy_shift: float = TrainConfig.copy_shift,
        copy_bend: float = TrainConfig.copy_bend,
        copy_mirror: bool = TrainConfig.copy_mirror,
        scaling: str = AUTO,
        projection: str = TrainConfig.projection,
        n_components: int | None = TrainConfig.n_components,
        max_epochs: int | str = AUTO,
        batch_size: int | str | None = AUTO,
        optimizer: str = TrainConfig.optimizer,
        lr: float | str = AUTO,
        lr_ratios: Sequence[float] = TrainConfig.lr_ratios,
        schedule: str = TrainConfig.schedule,
        warmup_epochs: int | str = AUTO,
        input_decay: float = TrainConfig.input_decay,
        hidden_decay: float = TrainConfig.hidden_decay,
        output_decay: float = TrainConfig.output_decay,
        hidden_dropout: float = TrainConfig.hidden_dropout,
        input_noise: float = TrainConfig.input_noise,
        mixup: float = TrainConfig.mixup,
        label_smoothing: float = TrainConfig.label_smoothing,
        averaging: float = TrainConfig.averaging,
        normalize_inputs: bool = TrainConfig.normalize_inputs,
        validation_fraction: float | str = TrainConfig.validation_fraction,
        early_stopping: bool | str = AUTO,
        n_iter_no_change: int = TrainConfig.n_iter_no_change,
        solver: str = TrainConfig.solver,
        device: str = "auto",
        dtype: str = TrainConfig.dtype,
        row_dtype: str = AUTO,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.ridge = ridge
        self.learn_ridge = learn_ridge
        self.weight_penalty = weight_penalty
        self.condition_penalty = condition_penalty
        self.temperature = temperature
        self.input_init = input_init
        self.output_init = output_init
        self.hidden_scale = hidden_scale
        self.stem = stem
        self.stem_filters = stem_filters
        self.stem_patch = stem_patch
        self.stem_pool = stem_pool
        self.image_shape = image_shape
        self.image_copies = image_copies
        self.copy_shift = copy_shift
        self.copy_bend = copy_bend
        self.copy_mirror = copy_mirror
        self.scaling = scaling
        self.projection = projection
        self.n_components = n_components
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.lr = lr
        self.lr_ratios = lr_ratios
        self.schedule = schedule
        self.warmup_epochs = warmup_epochs
        self.input_decay = input_decay
        self.hidden_decay = hidden_decay
        self.output_decay = output_decay
        self.hidden_dropout = hidden_dropout
        self.input_noise = input_noise
        self.mixup = mixup
        self.label_smoothing = label_smoothing
        self.averaging = averaging
        self.normalize_inputs = normalize_inputs
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.solver = solver
        self.device = device
        self.dtype = dtype
        self.row_dtype = row_dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, *, observer: Observer | None = None) -> Self:
        """Train on rows ``X`` and labels ``y``.

        ``observer`` is shown every epoch's report; if it returns True, training ends there.
        """
        checked, X = with_image_shape(self.config(), X)
        device = resolve_device(self.device)
        (rows, classes), seed = self._rows(X, y), self._seed()
        given = {**self._given(), "image_shape": checked.image_shape}
        config = settle(given, rows.shape(device))
        shown = progress(enabled=bool(self.verbose), also=observer)
        with shown as watched, memory_named():
            model = train_classifier(
                rows,
                config,
                seed=seed,
                device=device,
                clock=time.perf_counter,
                held_out=hold_out(rows.labels, config.held_out, seed),
                observer=watched,
            )
        for warning in model.history.warnings():
            warnings.warn(warning, stacklevel=2)
        self.classes_ = classes
        self.config_ = config
        self.bank_ = model.bank
        self.front_ = model.front
        self.features_ = model.features
        self.network_ = model.network
        self.history_ = model.history
        self.n_iter_ = model.history.n_epochs
        return self

    @property
    def n_trained_(self) -> int:
        """Numbers that were trained: those of the bank."""
        return self.bank_.n_trained

    def diagnose(self) -> Diagnosis:
        """Conditioning and sensitivity of every layer's solve."""
        check_is_fitted(self, "bank_")
        return diagnose(self.bank_, architecture_of(self.config()))

    def check_lemma(self, size: float = 1e-4, seed: int = 0) -> tuple[Perturbation, ...]:
        """How far every layer's weights move when its prototypes do, next to Lemma 1's bound.

        They are moved in a random direction, by ``size`` times the norm of the prototype matrix.
        """
        check_is_fitted(self, "bank_")
        generator = Generator().manual_seed(seed)
        architecture = architecture_of(self.config())
        return check_lemma(self.bank_, architecture, size=size, generator=generator)

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file that ``protopinv.load`` reads."""
        from protopinv.estimators.saving import save

        save(self, path)

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range.

        What is "auto" has a usual value here; ``config_`` has the one that was used.
        """
        return check(self._given())

    def _given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in FIELDS}
