"""A model in a foreign format, and how that changes its predictions."""

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import LabelBinarizer
from torch import nn

from protopinv import __version__, model_file
from protopinv import export as formats
from protopinv.errors import ConfigError, DataError, ExportError, ExportWarning
from protopinv.export.writing import Exported, Outputs
from protopinv.model import Model
from protopinv.network import dense, inputs_of, outputs_of
from protopinv.objective import Classes, Labels, Numbers
from protopinv.tables import Table

# Made-up rows for the ranges of int8.
CALIBRATION_ROWS = 1_000
# Numbers of a matrix that blocks may become: those they stand for may be many times as many.
MOST_DENSE = 2**26
# Activations under the names of scikit-learn.
ACTIVATIONS = {"relu": "relu", "tanh": "tanh", "identity": "identity", "sigmoid": "logistic"}


def export(
    model: Model,
    path: str | Path,
    *,
    dtype: str,
    calibration: Any = None,
    X: Any = None,
    y: Any = None,
    examples: bool = False,
) -> Exported:
    """Write a model in the format that the ending names; rows are those of ``Model.outputs``."""
    path, shown = Path(path), model_file.shareable(model, examples=examples).examples
    if calibration is not None and (dtype != "int8" or path.suffix == ".safetensors"):
        raise ConfigError(
            f"Calibration is for int8 in C. Got it for {path.suffix} in {dtype}. Leave it out."
        )
    truth = _targets(model, X, y)
    description = formats.describe(model, shown)
    if path.suffix == ".safetensors":
        model_file.save(model, path, bank=False, dtype=dtype, examples=examples)
        exported = Exported((path,), "safetensors", dtype, description.operations)
        outputs: Outputs = formats.describe(model_file.load(path)).outputs
    else:
        is_made_up = calibration is None and dtype == "int8"
        seen = model_file.made_up(model, CALIBRATION_ROWS).numpy() if is_made_up else calibration
        rows = None if seen is None else description.rows(seen)
        exported, outputs = formats.write(
            description, path, dtype=dtype, rows=rows, version=__version__
        )
        if is_made_up:
            _warn_of_made_up_rows()
    compared = shown if X is None else X
    if compared.shape[0] == 0 or (X is None and dtype in ("float32", "float64")):
        return exported
    after = outputs(description.rows(compared))
    return replace(exported, change=_change(model, compared, after, truth))


def _warn_of_made_up_rows() -> None:
    warnings.warn(
        ExportWarning(
            "Ranges of int8 should come from rows like those to predict. None were passed, and "
            "made-up rows took their place. Give training rows: calibration=rows."
        ),
        stacklevel=4,
    )


def _targets(model: Model, X: Any, y: Any) -> NDArray[Any] | None:
    """The targets of the rows to compare on, checked before anything is written."""
    if y is None:
        return None
    if X is None:
        raise ConfigError("Targets belong to rows. Got y without X. Give X too.")
    n, objective = X.shape[0], model.objective
    truth = np.asarray(y)
    shape = (n,) if isinstance(objective, Classes) else (n, objective.n_outputs)
    if truth.size != math.prod(shape):
        raise DataError(
            f"Targets must have one row per sample, shape {shape}. Got shape {truth.shape}. Check "
            "how the two were split."
        )
    return truth.reshape(shape)


def _change(
    model: Model, X: Any, after: NDArray[np.float64], truth: NDArray[Any] | None
) -> dict[str, float]:
    """How predictions move, and what that costs where the truth is known."""
    before, objective = model.outputs(X).numpy(), model.objective
    found: dict[str, float] = {"rows": X.shape[0]}
    if isinstance(objective, Numbers):
        old, new = (objective.decode(each).reshape(len(after), -1) for each in (before, after))
        spread = np.maximum(old.std(axis=0), np.finfo(np.float64).tiny)
        found["largest_difference"] = float(np.abs(new - old).max())
        # of the target that it hurts most
        found["difference_by_spread"] = float((np.sqrt(((new - old) ** 2).mean(0)) / spread).max())
        if truth is not None:
            scatter = ((truth - truth.mean(0)) ** 2).sum(0)
            for name, numbers in (("r2_before", old), ("r2_after", new)):
                found[name] = float((1 - ((numbers - truth) ** 2).sum(0) / scatter).mean())
        return found
    answers = [objective.decode(outputs) for outputs in (before, after)]
    found["same_labels"] = float((answers[0] == answers[1]).mean())
    if truth is not None:
        for name, labels in zip(("accuracy_before", "accuracy_after"), answers, strict=True):
            found[name] = float((labels == truth).mean())
    return found


def to_torch(model: Model) -> nn.Module:
    """A module from rows to outputs."""
    description = formats.describe(model)
    if description.encode is not None:
        raise ExportError(
            "A torch module takes numbers. This model takes a frame, of which it makes "
            f"{description.encode.n_outputs} numbers. Train on numbers of your own making."
        )
    return formats.to_torch(description)


def to_sklearn(model: Model) -> Any:
    """An MLPClassifier or MLPRegressor with the weights of the network."""
    if model.table is not None and not model.table.is_plain:
        raise ExportError(
            "scikit-learn's networks take numbers. This model takes a frame, of which it makes "
            f"{model.table.n_features} numbers. Train on numbers of your own making."
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
    sizes = [inputs_of(W) * outputs_of(W) for W in model.network.weights]
    if max(sizes) > MOST_DENSE:
        raise ExportError(
            "scikit-learn's networks have whole matrices. The blocks of this mean of banks would "
            f"become one of {max(sizes):,} numbers, more than {MOST_DENSE:,}. Export to ONNX."
        )
    layers = [dense(W).numpy() for W in model.network.weights]
    if model.table is not None:
        layers[0] = _for_all_columns(layers[0], model.table)
    widths = [W.shape[1] for W in layers[:-1]]
    shape: dict[str, Any] = {
        "hidden_layer_sizes": widths,
        "activation": ACTIVATIONS[model.network.activation],
    }
    objective = model.objective
    network: Any
    if isinstance(objective, Numbers):
        network = MLPRegressor(**shape)
        network.out_activation_ = "identity"
    else:
        network = MLPClassifier(**shape)
        binarizer = LabelBinarizer()
        if isinstance(objective, Labels):
            binarizer.fit(np.eye(objective.n_outputs, dtype=int))
            binarizer.sparse_input_ = False
        else:
            binarizer.fit(model.classes)
        network._label_binarizer = binarizer
        network.classes_ = binarizer.classes_
        single = isinstance(objective, Classes) and objective.n_outputs == 2
        if single:
            layers[-1] = layers[-1][:, 1:] - layers[-1][:, :1]
        many = isinstance(objective, Classes) and not single
        network.out_activation_ = "softmax" if many else "logistic"
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


def _for_all_columns(W: NDArray[np.float64], table: Table) -> NDArray[np.float64]:
    """Weights for the columns of a frame, zero for those that were left out."""
    whole = np.zeros((1 + len(table.names), W.shape[1]))
    used = [table.names.index(column.name) + 1 for column in table.columns]
    whole[[0, *used]] = W
    return whole
