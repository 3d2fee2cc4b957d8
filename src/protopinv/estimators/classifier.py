"""ProtoPINVClassifier: a closed-form prototype network behind scikit-learn's manners."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from protopinv.errors import DataError
from protopinv.estimators.checks import (
    hold_out,
    memory_named,
    plain_labels,
    resolve_device,
    torch_ready,
)
from protopinv.train.config import FIELDS, TrainConfig
from protopinv.train.model import train_classifier
from protopinv.train.prepare import PIECE_NUMBERS, LabelledRows
from protopinv.train.progress import progress

Estimator = TypeVar("Estimator", bound=type)


def _with_parameters(estimator: Estimator) -> Estimator:
    """Fill ``{parameters}`` in the docstring from TrainConfig, where each is explained once."""
    entries = (
        f"{item.name} : {_type_name(item.type)}, default={item.default!r}\n"
        f"        {item.metadata['help']}"
        for item in fields(TrainConfig)
    )
    estimator.__doc__ = (estimator.__doc__ or "").format(parameters="\n    ".join(entries))
    return estimator


def _type_name(kind: Any) -> str:
    """A type as scikit-learn's docstrings write it."""
    if get_origin(kind) is Literal:
        return "{" + ", ".join(map(repr, get_args(kind))) + "}"
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    return text.replace("collections.abc.", "").replace("typing.", "")


@_with_parameters
class ProtoPINVClassifier(ClassifierMixin, BaseEstimator):
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
        The plain network on original features, in float64.
    bank_ : Bank
        The trained prototypes.
    features_ : FeatureMap
        Scaling and projection before the network, already folded into ``network_``.
    history_ : History
        Loss, learning rate, ridges and validation score of every epoch, and what the guard did.
    n_iter_ : int
        Epochs that were run.
    """

    def __init__(
        self,
        n_prototypes: int = TrainConfig.n_prototypes,
        *,
        hidden_sizes: Sequence[int] | int = TrainConfig.hidden_sizes,
        activation: str = TrainConfig.activation,
        ridge: Sequence[float] | float = TrainConfig.ridge,
        learn_ridge: Sequence[bool] | bool = TrainConfig.learn_ridge,
        weight_penalty: float = TrainConfig.weight_penalty,
        temperature: float = TrainConfig.temperature,
        input_init: str = TrainConfig.input_init,
        hidden_scale: float = TrainConfig.hidden_scale,
        scaling: str = TrainConfig.scaling,
        projection: str = TrainConfig.projection,
        n_components: int | None = TrainConfig.n_components,
        max_epochs: int = TrainConfig.max_epochs,
        batch_size: int | None = TrainConfig.batch_size,
        lr: float = TrainConfig.lr,
        lr_ratios: Sequence[float] = TrainConfig.lr_ratios,
        schedule: str = TrainConfig.schedule,
        warmup_epochs: int = TrainConfig.warmup_epochs,
        input_decay: float = TrainConfig.input_decay,
        hidden_decay: float = TrainConfig.hidden_decay,
        output_decay: float = TrainConfig.output_decay,
        hidden_dropout: float = TrainConfig.hidden_dropout,
        input_noise: float = TrainConfig.input_noise,
        label_smoothing: float = TrainConfig.label_smoothing,
        normalize_inputs: bool = TrainConfig.normalize_inputs,
        validation_fraction: float | str = TrainConfig.validation_fraction,
        early_stopping: bool = TrainConfig.early_stopping,
        n_iter_no_change: int = TrainConfig.n_iter_no_change,
        solver: str = TrainConfig.solver,
        device: str = "auto",
        dtype: str = TrainConfig.dtype,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.ridge = ridge
        self.learn_ridge = learn_ridge
        self.weight_penalty = weight_penalty
        self.temperature = temperature
        self.input_init = input_init
        self.hidden_scale = hidden_scale
        self.scaling = scaling
        self.projection = projection
        self.n_components = n_components
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.lr_ratios = lr_ratios
        self.schedule = schedule
        self.warmup_epochs = warmup_epochs
        self.input_decay = input_decay
        self.hidden_decay = hidden_decay
        self.output_decay = output_decay
        self.hidden_dropout = hidden_dropout
        self.input_noise = input_noise
        self.label_smoothing = label_smoothing
        self.normalize_inputs = normalize_inputs
        self.validation_fraction = validation_fraction
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.solver = solver
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows ``X`` and labels ``y``."""
        config = self.config()
        device = resolve_device(self.device)
        X, y = validate_data(self, X, y, dtype="numeric")
        y = plain_labels(y)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise DataError(
                "A classifier needs at least two classes. y holds only one class: "
                f"{classes[0]!r}. Check the target, or use a constant."
            )
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1))
        with (
            progress(config.max_epochs, enabled=bool(self.verbose)) as observer,
            memory_named(),
        ):
            model = train_classifier(
                LabelledRows(torch_ready(X), labels, len(classes)),
                config,
                seed=seed,
                device=device,
                clock=time.perf_counter,
                held_out=hold_out(labels, config.held_out, seed),
                observer=observer,
            )
        for warning in model.history.warnings():
            warnings.warn(warning, stacklevel=2)
        self.classes_ = classes
        self.bank_ = model.bank
        self.features_ = model.features
        self.network_ = model.network
        self.history_ = model.history
        self.n_iter_ = model.history.n_epochs
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        best = self._outputs(X).argmax(dim=1).numpy()
        predicted: NDArray[Any] = self.classes_[best]
        return predicted

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class, in the order of ``classes_``."""
        return torch.softmax(self._outputs(X), dim=1).numpy()

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of ``predict_proba``, without underflow."""
        return torch.log_softmax(self._outputs(X), dim=1).numpy()

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Raw outputs, a column a class; for two classes the second minus the first."""
        outputs = self._outputs(X).numpy()
        return outputs[:, 1] - outputs[:, 0] if len(self.classes_) == 2 else outputs

    def save(self, path: str | Path) -> None:
        """Write the fitted model to a file that ``protopinv.load`` reads."""
        from protopinv.estimators.saving import save

        save(self, path)

    def config(self) -> TrainConfig:
        """The hyperparameters, checked; raises ConfigError for a value outside its range."""
        return TrainConfig(**{name: getattr(self, name) for name in FIELDS})

    def _outputs(self, X: Any) -> torch.Tensor:
        """Raw outputs in float64, on the host, a bounded piece of rows at a time."""
        check_is_fitted(self, "network_")
        X = validate_data(self, X, reset=False, dtype="numeric")
        device = resolve_device(self.device)
        network = self.network_.to(device)
        size = max(1, PIECE_NUMBERS // max(network.sizes))
        pieces = [
            network(torch.from_numpy(np.array(X[start : start + size], np.float64)).to(device))
            for start in range(0, len(X), size)
        ]
        return torch.cat(pieces).cpu()
