"""A model as an object of another library: a torch module, or a network of scikit-learn."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import skip_init

from protopinv.errors import ExportError
from protopinv.export.description import describe
from protopinv.export.steps import Affine, Step, Sum
from protopinv.model import Model
from protopinv.network import dense, inputs_of, outputs_of
from protopinv.objective import Labels, Numbers
from protopinv.tables import Table

# Numbers of a matrix that blocks may become: those they stand for may be many times as many.
MOST_DENSE = 2**26
# Activations under the names of scikit-learn.
ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "identity": "identity", "sigmoid": "logistic"}
# Tensors of steps that are trained further.
TRAINABLE = ("weight", "bias", "filters")


def to_torch(model: Model) -> nn.Module:
    """From rows in float32 to outputs: logits of classes and labels, or numbers within bounds."""
    _require_numbers(model, "A torch module takes")
    description = describe(model)
    steps: list[Step] = list(description.steps)
    if description.bounds is not None:
        steps.append(_Clamp(*torch.from_numpy(description.bounds)))
    return nn.Sequential(*(_module(step.to(torch.float32)) for step in steps))


class _Sum(nn.Module):
    """Branches of an ensemble, whose outputs are added up."""

    def __init__(self, branches: Sequence[nn.Module]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, X: Tensor) -> Tensor:
        """The sum of what the branches make of rows."""
        return torch.stack([branch(X) for branch in self.branches]).sum(0)


def _module(step: Step) -> nn.Module:
    if isinstance(step, Sum):
        return _Sum([nn.Sequential(*map(_module, branch)) for branch in step.branches])
    if not isinstance(step, Affine) or len(step.weight) > 1:
        return _Module(step)
    # torch's own layer; its first weights are not drawn, so the generator stays as it is
    _, n_in, n_out = step.weight.shape
    layer: nn.Linear = skip_init(nn.Linear, n_in, n_out, bias=step.has_bias)
    with torch.no_grad():
        layer.weight.copy_(step.weight[0].T)
        if step.has_bias:
            layer.bias.copy_(step.bias)
    return layer


class _Module(nn.Module):
    """A step with its weights as parameters, and its other tensors as buffers."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step = step
        tensors = {name: value for name, value in vars(step).items() if isinstance(value, Tensor)}
        self.names = tuple(tensors)
        for name, value in tensors.items():
            if name in TRAINABLE:
                self.register_parameter(name, nn.Parameter(value))
            else:
                self.register_buffer(name, value)

    def extra_repr(self) -> str:
        """The name of the step."""
        return type(self.step).__name__

    def forward(self, X: Tensor) -> Tensor:
        """What the step makes of rows."""
        if not self.names:
            return self.step(X)
        return replace(self.step, **{name: getattr(self, name) for name in self.names})(X)


@dataclass(frozen=True, eq=False)
class _Clamp(Step):
    """Numbers within bounds."""

    low: Tensor
    high: Tensor

    def __call__(self, X: Tensor) -> Tensor:
        return X.clamp(self.low, self.high)


def to_sklearn(model: Model) -> Any:
    """An MLPClassifier or MLPRegressor with the weights of the network."""
    _require_plain_layers(model)
    layers = [dense(W).numpy() for W in model.network.weights]
    if model.table is not None:
        layers[0] = _for_all_columns(layers[0], model.table)
    network, layers = _with_outputs(model, layers)
    network.coefs_ = [W[1:].copy() for W in layers]
    network.intercepts_ = [W[0].copy() for W in layers]
    network.n_layers_ = len(layers) + 1
    network.n_outputs_ = layers[-1].shape[1]
    network.n_features_in_ = model.n_columns
    if model.feature_names is not None:
        network.feature_names_in_ = np.array(model.feature_names, dtype=object)
    network.n_iter_ = model.history.n_epochs
    network.loss_curve_ = list(model.history.loss)
    network.loss_ = network.loss_curve_[-1] if network.loss_curve_ else np.nan
    network.best_loss_ = network.loss_
    network.t_, network._no_improvement_count = 0, 0  # for partial_fit
    network.validation_scores_ = network.best_validation_score_ = None
    return network


def _require_numbers(model: Model, takes: str) -> None:
    """Raise ExportError for a model that encodes the columns of a frame."""
    if model.table is not None and not model.table.is_plain:
        raise ExportError(
            f"{takes} numbers. This model takes a frame, of which it makes "
            f"{model.table.n_features} numbers. Train on numbers of your own making."
        )


def _require_plain_layers(model: Model) -> None:
    """Raise ExportError for a model that scikit-learn's networks cannot hold."""
    _require_numbers(model, "scikit-learn's networks take")
    if model.others or model.steps is not None:
        raise ExportError(
            "scikit-learn's networks have layers of one activation. This model is an ensemble, or "
            "sees numbers as steps. Export to ONNX, or train with ensemble_size=1 and "
            "number_encoding='raw'."
        )
    if model.front is not None:
        raise ExportError(
            "scikit-learn's networks have layers only. This model has a "
            f"{type(model.front).__name__.lower()} before them. Export to ONNX, or train with "
            "scaling='feature' and stem=None."
        )
    if model.network.activation not in ACTIVATIONS:
        raise ExportError(
            f"scikit-learn's networks have {', '.join(ACTIVATIONS)}. This model has the activation "
            f"{model.network.activation!r}. Train with activation='relu', or export to ONNX."
        )
    largest = max(inputs_of(W) * outputs_of(W) for W in model.network.weights)
    if largest > MOST_DENSE:
        raise ExportError(
            "scikit-learn's networks have whole matrices. The blocks of this ensemble would become "
            f"one of {largest:,} numbers, more than {MOST_DENSE:,}. Export to ONNX."
        )


def _for_all_columns(W: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
    """Weights for the columns of a frame, zero for those that were left out."""
    weights = np.zeros((1 + len(table.names), W.shape[1]))
    used = [table.names.index(column.name) + 1 for column in table.columns]
    weights[[0, *used]] = W
    return weights


def _with_outputs(
    model: Model, layers: list[NDArray[np.float64]]
) -> tuple[Any, list[NDArray[np.float64]]]:
    """A network for these targets, and the layers as its outputs need them."""
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import LabelBinarizer

    objective, (*inner, last) = model.objective, layers
    shape: dict[str, Any] = {
        "hidden_layer_sizes": [W.shape[1] for W in inner],
        "activation": ACTIVATIONS[model.network.activation],
    }
    if isinstance(objective, Numbers):
        network: Any = MLPRegressor(**shape)
        network.out_activation_ = "identity"
        return network, layers
    network, binarizer = MLPClassifier(**shape), LabelBinarizer()
    network.out_activation_ = "logistic"
    if isinstance(objective, Labels):
        binarizer.fit(np.eye(objective.n_outputs, dtype=int))
        binarizer.sparse_input_ = False
    else:
        binarizer.fit(model.classes)
        if objective.n_outputs == 2:
            last = last[:, 1:] - last[:, :1]
        else:
            network.out_activation_ = "softmax"
    network._label_binarizer = binarizer
    network.classes_ = binarizer.classes_
    return network, [*inner, last]
