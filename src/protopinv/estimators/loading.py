"""Model files to estimators: what a file holds is checked by the code that a fit asks."""

import math
from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from sklearn.utils import check_random_state

from protopinv import model_file
from protopinv.errors import ModelFileError, TrainingError
from protopinv.estimators.base import ProtoPINV
from protopinv.estimators.classifier import ProtoPINVClassifier
from protopinv.estimators.parameters import COPIES, STEM, nested
from protopinv.estimators.regressor import ProtoPINVRegressor
from protopinv.features import Stem
from protopinv.model import Model
from protopinv.model.fitting import range_of_images
from protopinv.model_file import SavedModel
from protopinv.model_file.header import labels_of
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.plain import visible
from protopinv.tables.table import checked_kinds
from protopinv.train.config import FIELDS, TrainConfig, is_auto
from protopinv.train.history import History
from protopinv.train.training import merged_network

# What values of other kinds raise where they are looked at.
ODD = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)


# Values of a configuration that are resolved as "auto".
MAY_BE_AUTO = ("solver", "validation_fraction")
TASKS = {
    "classification": ProtoPINVClassifier,
    "multi-label": ProtoPINVClassifier,
    "regression": ProtoPINVRegressor,
}


def load(path: str | Path) -> ProtoPINVClassifier | ProtoPINVRegressor:
    """The fitted estimator in a model file; it predicts what it did before, bit for bit.

    Its parameters are those that were set; ``config_`` has those that were used.
    """
    saved = model_file.load(path)
    if saved.task not in TASKS:
        raise ModelFileError(
            f"This version loads models for {', '.join(TASKS)}. {path} holds one for "
            f"{visible(repr(saved.task))[:60]}. Upgrade protopinv."
        )
    estimator_class = TASKS[saved.task]
    saved = _without_unheard(saved, estimator_class)
    try:
        estimator: Any = estimator_class(**_parameters(saved.parameters))
        estimator.config()
        config = TrainConfig(**{k: _tupled(v) for k, v in saved.config.items()})
        history = History.from_dict(saved.history)
    except ODD as error:
        raise ModelFileError(
            f"A model file must hold a configuration this version knows. {path} does not "
            f"({visible(str(error))[:300]}). Upgrade protopinv, or train the model again."
        ) from error
    objective = _objective(saved)
    fault = _fault(saved, config, objective)
    if fault is not None:
        raise model_file.unfit(path, fault)
    calibration = _calibration(saved, config, objective, path)
    estimator.model_ = _model(saved, config, history, objective, calibration)
    return estimator


def _parameters(described: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator from those of a file; of some the kind is checked here."""
    arguments = {name: _tupled(value) for name, value in described.items()}
    if isinstance(arguments.get("class_weight"), tuple):
        arguments["class_weight"] = dict(described["class_weight"])
    if arguments.get("device", "auto") not in ("auto", "cpu"):
        raise ValueError(f"device {arguments['device']!r:.20}")
    seed = arguments.get("random_state")
    if seed is not None and type(seed) is not int:
        raise TypeError(f"random_state {seed!r:.20}")
    check_random_state(seed)
    if arguments.get("columns") is not None:
        checked_kinds(arguments["columns"], list(arguments["columns"]))
    return nested(arguments)


def _fault(saved: SavedModel, config: TrainConfig, objective: Objective) -> str | None:
    """What of the configuration does not belong to the network and its banks, or None."""
    bank, memory = saved.bank, saved.memory
    if any(is_auto(v) for name, v in vars(config).items() if name not in MAY_BE_AUTO):
        return "a configuration with a value that is left open"
    if config.activation != saved.network.activation:
        return f"activation {config.activation!r} for a network with {saved.network.activation!r}"
    if bank is not None and config.widths != tuple(H.shape[2] for H in bank.hidden):
        return f"hidden_sizes {config.widths!r:.40} for banks of other layers"
    if memory is not None and memory.n_groups > objective.n_groups:
        return f"a memory of {memory.n_groups} groups for {objective.n_groups}"
    if isinstance(saved.front, Stem) and config.image_shape is None:
        return "a stem for rows that are no images"
    if config.image_shape is not None:
        if math.prod(config.image) != saved.n_features or saved.table is not None:
            return f"images of {math.prod(config.image)} numbers for rows of {saved.n_features}"
        if isinstance(saved.front, Stem) and saved.front.image_shape != config.image:
            return "a stem for other images"
    return None


def _model(
    saved: SavedModel,
    config: TrainConfig,
    history: History,
    objective: Objective,
    calibration: float,
) -> Model:
    continuing, names, targets = saved.continuing, saved.feature_names, saved.target_names
    # made-up rows can be made again; training rows are those of an older file, or were asked for
    examples = saved.examples[:0].numpy() if saved.made_up else saved.examples.numpy()
    left_out = 0 if saved.table is None else len(saved.table.left_out)
    return Model(
        objective=objective,
        network=saved.network,
        features=saved.features,
        config=config,
        history=history,
        n_columns=saved.n_features + left_out,
        feature_names=None if names is None else tuple(names),
        target_names=None if targets is None else tuple(targets),
        table=saved.table,
        front=saved.front,
        bank=saved.bank,
        calibration=calibration,
        memory=saved.memory,
        last_bank=saved.last_bank,
        n_frozen=continuing.get("n_frozen", 0),
        n_calls=continuing.get("n_calls", 0),
        is_closed=continuing.get("is_closed", False),
        image_range=saved.image_range or range_of_images(examples, config),
        examples=examples,
    )


def _calibration(
    saved: SavedModel, config: TrainConfig, objective: Objective, path: str | Path
) -> float:
    """The factor of the network's outputs (temperature scaling), as the file says.

    In a file from before it was stored the size of the last layer tells it. Without banks it is
    never needed.
    """
    if saved.sharpness is not None:
        return saved.sharpness
    if saved.bank is None or not objective.are_odds:
        return 1.0
    # a form of the solve that a file asks for may take any memory
    config = replace(config, solver="auto")
    try:
        plain = merged_network(saved.bank, saved.features, objective, config)
        calibration = float(saved.network.weights[-1].norm() / plain.weights[-1].norm())
    except (TrainingError, RuntimeError, ValueError, MemoryError) as error:
        why = f"banks that make no network ({str(error)[:200]})"
        raise model_file.unfit(path, why) from error
    # any number will do for banks whose outputs are all zero
    return calibration if 0 < calibration < math.inf else 1.0


def _without_unheard(saved: SavedModel, estimator: type[ProtoPINV]) -> SavedModel:
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


def _objective(saved: SavedModel) -> Objective:
    """The objective that was described, and checked."""
    described = saved.objective
    if saved.task == "classification":
        return Classes(labels_of(described))
    if saved.task == "multi-label":
        return Labels(described["n_labels"])
    centre, spread, variance, low, high = (
        None if described.get(name) is None else tuple(map(float, described[name]))
        for name in ("centre", "spread", "variance", "low", "high")
    )
    if centre is None or spread is None or variance is None:
        raise AssertionError("scales were checked")
    is_column, loss = described["is_column"], described["loss"]
    return Numbers(centre, spread, variance, is_column, loss, low, high)


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
