"""Estimators to model files."""

from dataclasses import asdict, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from protopinv import __version__, model_file
from protopinv.errors import ConfigError
from protopinv.estimators.checks import torch_ready
from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.fitting import ProtoPINV
from protopinv.estimators.images import flattened
from protopinv.estimators.regressor import ProtoPINVRegressor
from protopinv.files import require_ending
from protopinv.objective import Classes, Labels, Numbers, Objective

# The task that a file names, its objective, and the estimator that it makes.
TASKS: dict[str, tuple[type[Objective], type[ProtoPINV]]] = {
    "classification": (Classes, ProtoPINVClassifier),
    "multi-label": (Labels, ProtoPINVClassifier),
    "regression": (Numbers, ProtoPINVRegressor),
}


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
