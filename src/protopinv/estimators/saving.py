"""Models to and from what a model file holds."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from protopinv import __version__, model_file
from protopinv.errors import ConfigError
from protopinv.files import require_ending
from protopinv.model import Model, torch_ready


def save(
    model: Model,
    path: str | Path,
    *,
    bank: bool = True,
    dtype: str = "float64",
    examples: bool = False,
    memory: bool = True,
) -> None:
    """Write a model to ``path``."""
    require_ending(Path(path), "a model file")
    if dtype not in model_file.DTYPES:
        raise ConfigError(
            f"The numbers of a model file must be {', '.join(model_file.DTYPES)}. Got {dtype!r}. "
            "Choose one of these."
        )
    saved = replace(saved_model(model, examples=examples), dtype=dtype)
    if not bank:
        saved = replace(saved, bank=None)
    if not (bank and memory):
        saved = replace(saved, memory=None, last_bank=None)
        saved = saved if examples else with_made_up_rows(saved)
    model_file.save(saved, path, written_by=f"protopinv {__version__}")


def saved_model(model: Model, *, examples: bool = False) -> model_file.SavedModel:
    """All that may leave the process of a model; training rows only as ``examples``."""
    rows: Any = model.examples
    if examples and not len(rows):
        raise ConfigError(
            "examples=True takes training rows along. This model has none: its file or pickle had "
            "none, or a class was forgotten. Leave it out, or fit again."
        )
    saved = model_file.SavedModel(
        task=model.task,
        objective=model.objective.describe(),
        feature_names=None if model.feature_names is None else list(model.feature_names),
        parameters=dict(model.parameters),
        config=asdict(model.config),
        history=model.history.to_dict(),
        bank=model.bank,
        features=model.features,
        network=model.network,
        front=model.front,
        table=model.table,
        sharpness=model.calibration,
        memory=model.memory,
        last_bank=model.last_bank,
        continuing={
            "n_frozen": model.n_frozen,
            "n_calls": model.n_calls,
            "is_closed": model.is_closed,
        },
        examples=torch.from_numpy(np.ascontiguousarray(torch_ready(rows))),
        target_names=None if model.target_names is None else list(model.target_names),
        image_range=model.image_range,
    )
    return saved if examples else with_made_up_rows(saved)


def with_made_up_rows(saved: model_file.SavedModel) -> model_file.SavedModel:
    """Drop training rows; rows that are made up take their place."""
    return replace(saved, examples=model_file.made_up(saved), made_up=True)
