"""Estimators to model files and back."""

import math
import re
from dataclasses import asdict, replace
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from protopinv import __version__, model_file
from protopinv.errors import ConfigError, ModelFileError, TrainingError
from protopinv.estimators.checks import torch_ready
from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.fitting import ProtoPINV, range_of_images
from protopinv.estimators.images import COPIES, STEM, flattened, nested
from protopinv.estimators.regressor import ProtoPINVRegressor
from protopinv.files import require_ending
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.train.config import FIELDS, TrainConfig
from protopinv.train.history import History
from protopinv.train.model import fold

# The task that a file names, its objective, and the estimator that it makes.
TASKS: dict[str, tuple[type[Objective], type[ProtoPINV]]] = {
    "classification": (Classes, ProtoPINVClassifier),
    "multi-label": (Labels, ProtoPINVClassifier),
    "regression": (Numbers, ProtoPINVRegressor),
}


# Types of labels, as NumPy writes them.
TYPE = re.compile(r"[<>|=]?[biufU]\d{1,9}")


def task_of(estimator: ProtoPINV) -> str:
    """What a fitted estimator predicts."""
    kind = type(estimator.objective_)
    return next(task for task, (objective, _) in TASKS.items() if objective is kind)


def save(
    estimator: ProtoPINV,
    path: str | Path,
    *,
    bank: bool,
    dtype: str,
    examples: bool,
    memory: bool = True,
) -> None:
    """Write a fitted estimator to ``path``."""
    require_ending(Path(path), "a model file")
    if dtype not in model_file.DTYPES:
        raise ConfigError(
            f"The numbers of a model file must be {', '.join(model_file.DTYPES)}. Got {dtype!r}. "
            "Choose one of these."
        )
    saved = replace(saved_model(estimator, examples=examples), dtype=dtype)
    if not bank:
        saved = replace(saved, bank=None)
    if not (bank and memory):
        saved = replace(saved, memory=None, last_bank=None)
        saved = saved if examples else with_made_up_rows(saved)
    model_file.save(saved, path, written_by=f"protopinv {__version__}")


def saved_model(estimator: ProtoPINV, *, examples: bool = False) -> model_file.SavedModel:
    """All that may leave the process of a fitted estimator; training rows only as ``examples``."""
    check_is_fitted(estimator, "network_")
    names = getattr(estimator, "feature_names_in_", None)
    rows = estimator.examples_
    if examples and not len(rows):
        raise ConfigError(
            "examples=True takes training rows along. This model has none: its file or pickle had "
            "none, or a class was forgotten. Leave it out, or fit again."
        )
    saved = model_file.SavedModel(
        task=task_of(estimator),
        objective=estimator.objective_.describe(),
        feature_names=None if names is None else [str(name) for name in names],
        parameters=_parameters(estimator),
        config=asdict(estimator.config_),
        history=estimator.history_.to_dict(),
        bank=getattr(estimator, "bank_", None),
        features=estimator.features_,
        network=estimator.network_,
        front=estimator.front_,
        table=estimator.table_,
        sharpness=estimator.sharpness_,
        memory=estimator.memory_,
        last_bank=estimator.last_bank_,
        continuing={
            "n_frozen": estimator.n_frozen_,
            "n_calls": estimator.n_calls_,
            "is_closed": estimator.is_closed_,
        },
        examples=torch.from_numpy(np.ascontiguousarray(torch_ready(rows))),
        target_names=estimator.target_names_,
        image_range=estimator.image_range_,
    )
    return saved if examples else with_made_up_rows(saved)


def with_made_up_rows(saved: model_file.SavedModel) -> model_file.SavedModel:
    """Drop training rows; rows that are made up take their place."""
    return replace(saved, examples=model_file.made_up(saved), made_up=True)


def _parameters(estimator: ProtoPINV) -> dict[str, Any]:
    """The parameters as they were given, "auto" and all, as plain JSON values."""
    given = {
        name: value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in estimator.get_params(deep=False).items()
        if name not in ("stem", "copies")
    }
    given |= flattened(estimator.stem, estimator.copies)
    seed = estimator.random_state
    given["random_state"] = int(seed) if isinstance(seed, Integral) else None
    # What was trained on a GPU must load where there is none.
    given["device"] = "auto" if estimator.device.startswith("cuda") else estimator.device
    if isinstance(given.get("class_weight"), dict):
        # Keys of a JSON object are strings, and classes need not be.
        given["class_weight"] = [[key, value] for key, value in given["class_weight"].items()]
    return given


def load(path: str | Path) -> ProtoPINVClassifier | ProtoPINVRegressor:
    """The fitted estimator in a model file; it predicts what it did before, bit for bit.

    Its parameters are those that were given; ``config_`` has those that were used.
    """
    saved = model_file.load(path)
    if saved.task not in TASKS:
        raise ModelFileError(
            f"This version loads models for {', '.join(TASKS)}. {path} holds one for "
            f"{saved.task!r}. Upgrade protopinv."
        )
    kind, estimator_class = TASKS[saved.task]
    try:
        saved = _known(saved, estimator_class)
        given = {name: _tupled(value) for name, value in saved.parameters.items()}
        if isinstance(given.get("class_weight"), tuple):
            given["class_weight"] = dict(saved.parameters["class_weight"])
        if given.get("device", "auto") not in ("auto", "cpu"):
            raise ValueError(f"device {given['device']!r:.20}")
        estimator: Any = estimator_class(**nested(given))
        estimator.config()
        estimator.config_ = TrainConfig(**{k: _tupled(v) for k, v in saved.config.items()})
        estimator.objective_ = _objective(kind, saved.objective)
        estimator.history_ = History.from_dict(saved.history)
    except (
        TypeError,
        ValueError,
        KeyError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise ModelFileError(
            f"A model file must hold a configuration this version knows. {path} does not "
            f"({error}). Upgrade protopinv, or train the model again."
        ) from error
    if estimator.objective_.n_outputs != saved.network.sizes[-1]:
        raise ModelFileError(
            f"A model file must fit together. In {path}: {saved.network.sizes[-1]} outputs for "
            f"{estimator.objective_.n_outputs} targets. Write the model again."
        )
    if saved.memory is not None and saved.memory.n_groups > estimator.objective_.n_groups:
        raise ModelFileError(
            f"A model file must fit together. In {path}: a memory of {saved.memory.n_groups} "
            f"groups for {estimator.objective_.n_groups}. Write the model again."
        )
    if isinstance(estimator, ProtoPINVClassifier):
        objective = estimator.objective_
        known = objective.labels if isinstance(objective, Classes) else None
        estimator.classes_ = np.arange(objective.n_outputs) if known is None else known
    if saved.bank is not None:
        estimator.bank_ = saved.bank
    estimator.features_ = saved.features
    estimator.network_ = saved.network
    estimator.sharpness_ = _sharpness(saved, estimator, path)
    estimator.front_ = saved.front
    estimator.tried_ = ()
    # made-up rows can be made again; training rows are those of an older file, or were asked for
    estimator.examples_ = saved.examples[:0].numpy() if saved.made_up else saved.examples.numpy()
    estimator.target_names_ = saved.target_names
    estimator.image_range_ = saved.image_range or range_of_images(
        estimator.examples_, estimator.config_
    )
    estimator.n_iter_ = estimator.history_.n_epochs
    estimator.table_ = saved.table
    estimator.memory_ = saved.memory
    estimator.last_bank_ = saved.last_bank
    estimator.n_frozen_ = int(saved.continuing.get("n_frozen", 0))
    estimator.n_calls_ = int(saved.continuing.get("n_calls", 0))
    estimator.is_closed_ = bool(saved.continuing.get("is_closed", False))
    left_out = 0 if saved.table is None else len(saved.table.left_out)
    estimator.n_features_in_ = saved.n_features + left_out
    if saved.feature_names is not None:
        estimator.feature_names_in_ = np.array(saved.feature_names, dtype=object)
    loaded: ProtoPINVClassifier | ProtoPINVRegressor = estimator
    return loaded


def _sharpness(saved: model_file.SavedModel, estimator: ProtoPINV, path: str | Path) -> float:
    """How much surer the network is than its banks, as the file says.

    In a file from before this was stored the size of the last layer tells it. Without banks it is
    never needed.
    """
    if saved.sharpness is not None:
        return saved.sharpness
    if saved.bank is None or not estimator.objective_.are_odds:
        return 1.0
    # a form of the solve that a file asks for may take any memory
    config = replace(estimator.config_, solver="auto")
    try:
        plain = fold(saved.bank, saved.features, estimator.objective_, config)
        sharpness = float(saved.network.weights[-1].norm() / plain.weights[-1].norm())
    except (TrainingError, RuntimeError, ValueError, MemoryError) as error:
        raise ModelFileError(
            f"A model file must fit together. In {path}: banks that make no network "
            f"({str(error)[:200]}). Write the model again."
        ) from error
    # any number will do for banks whose outputs are all zero
    return sharpness if 0 < sharpness < math.inf else 1.0


def _known(saved: model_file.SavedModel, estimator: type[ProtoPINV]) -> model_file.SavedModel:
    """A newer file without the hyperparameters and facts that this version has never heard of."""
    if not saved.is_newer:
        return saved
    names = {*signature(estimator).parameters, *STEM, *COPIES}
    return replace(
        saved,
        parameters={name: v for name, v in saved.parameters.items() if name in names},
        config={name: v for name, v in saved.config.items() if name in FIELDS},
        history={name: v for name, v in saved.history.items() if name in vars(History())},
    )


def _objective(kind: type[Objective], described: dict[str, Any]) -> Objective:
    """The objective that was described."""
    if kind is Classes:
        labels = described["classes"]
        kinds = (bool, int, float, str)
        if not isinstance(labels, list) or not all(isinstance(each, kinds) for each in labels):
            raise TypeError("'classes', which are not all numbers or strings")
        if len(set(labels)) != len(labels):
            raise ValueError("a class appears twice")
        return Classes(_typed(labels, described["classes_dtype"]))
    if kind is Labels:
        return Labels(int(described["n_labels"]))
    centre, spread, variance = (
        tuple(map(float, described[name])) for name in ("centre", "spread", "variance")
    )
    low, high = (
        None if described.get(name) is None else tuple(map(float, described[name]))
        for name in ("low", "high")
    )
    if any(bound is not None and len(bound) != len(centre) for bound in (low, high)):
        raise ValueError("bounds for other targets")
    is_column, loss = bool(described["is_column"]), str(described["loss"])
    return Numbers(centre, spread, variance, is_column, loss, low, high)


def _typed(labels: list[Any], dtype: Any) -> NDArray[Any]:
    """Labels as the array they were, whose type is no wider than they are."""
    found = np.array(labels, dtype=object)
    if dtype != "|O":
        if not isinstance(dtype, str) or not TYPE.fullmatch(dtype):
            raise ValueError(f"labels of type {dtype!r:.20}")
        kind = np.dtype(dtype)
        widest = np.array(labels).dtype if kind.kind == "U" else kind
        if kind.kind not in "biufU" or kind.itemsize > widest.itemsize:
            raise ValueError(f"labels of type {dtype!r:.20}")
        found = found.astype(kind)
    if found.tolist() != labels:
        raise ValueError("labels that are not of their type")
    return found


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
