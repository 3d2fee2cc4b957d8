"""Read a model file: whatever is in it, a sound model comes out, or ModelFileError."""

import math
import warnings
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from protopinv import tables
from protopinv.bank import Bank
from protopinv.errors import DriftWarning, ModelFileError, TrainingError
from protopinv.features import FeatureMap, Stem, Steps
from protopinv.memory import Memory
from protopinv.model import Model, merged_network, range_of_images
from protopinv.model_file.consistency import (
    FRONTS,
    PartTensors,
    faults_of_model,
    faults_of_parts,
    refuse,
)
from protopinv.model_file.header import (
    MINOR,
    broken,
    by_part,
    fitting_together,
    read_header,
)
from protopinv.model_file.packing import entry_of, unpack
from protopinv.model_file.rules import PARAMETERS, labels_of
from protopinv.model_file.saving import example_outputs
from protopinv.objective import Classes, Labels, Numbers, Objective
from protopinv.plain import UnfitError, visible
from protopinv.train.config import FIELDS, TrainConfig
from protopinv.train.history import History

# Outputs of examples may differ by this share of the largest of them; stems work in float32.
DRIFT = 1e-6
DRIFT_OF_STEMS = 1e-3
# What files have for their configuration that were written before it was there.
BEFORE = {"number_encoding": "raw", "ensemble_size": 1}
# Tensors that each model of an ensemble has for its own.
OWN = ("network", "bank", "last_bank", "steps", "history")
# What values of other kinds raise where they are used.
ODD = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)


def load_model(path: str | Path) -> Model:
    """The model in a file that ``save`` wrote; anything else raises ModelFileError.

    It predicts as before, bit for bit; with DriftWarning if its examples say otherwise.
    """
    path = Path(path)
    header = _without_unheard(read_header(path))
    parts = _parts(path)
    with fitting_together(path):
        model = _model(header, parts, path)
        drift = _drift(model, parts["examples"]["outputs"])
        if "sharpness" not in header:
            model = replace(model, calibration=_calibration(model))
    if not drift <= (DRIFT_OF_STEMS if isinstance(model.front, Stem) else DRIFT):
        warnings.warn(
            DriftWarning(
                "A model should answer the examples in its file as it did when it was saved. That "
                f"in {path} is off by {drift:.1e} of its largest answer. Compare versions of torch "
                "and the processors; train again if this matters."
            ),
            stacklevel=3,
        )
    # made-up rows can be made again; training rows are those of an older file, or were asked for
    examples = model.examples[:0] if model.made_up else model.examples
    pixels = model.image_range or range_of_images(examples, model.config)
    return replace(model, examples=examples, made_up=False, image_range=pixels)


def _parts(path: Path) -> PartTensors:
    """Tensors of a file, by the part they belong to and their name in it."""
    try:
        # all at once: tensors that are windows into a file would change when it does
        return by_part(load_tensors(path.read_bytes()))
    except (SafetensorError, ValueError, OSError) as error:
        raise broken(path, error) from error


def _without_unheard(header: dict[str, Any]) -> dict[str, Any]:
    """The header; of a newer file without hyperparameters and facts that are unknown here."""
    if int(header["format"].partition(".")[2]) <= MINOR:
        return header
    names_of = {
        "parameters": {*FIELDS, *PARAMETERS},
        "config": {*FIELDS},
        "history": {*vars(History())},
    }

    def heard(described: Mapping[str, Any]) -> dict[str, Any]:
        settings = {
            part: {name: value for name, value in described[part].items() if name in names}
            for part, names in names_of.items()
            if part in described
        }
        return {**described, **settings}

    return {**heard(header), "ensemble": [heard(other) for other in header.get("ensemble", ())]}


def _model(header: Mapping[str, Any], parts: PartTensors, path: Path) -> Model:
    """The model, or the ensemble; UnfitError for parts that do not belong together."""
    described = header.get("ensemble", [])
    numbers = {str(number) for number in range(1, len(described) + 1)}
    if {name for name in parts if name.isdigit()} != numbers:
        raise UnfitError("further models that are not described, or have no tensors")
    common = {name: part for name, part in parts.items() if name not in numbers}
    first, others = _part(header, defaultdict(dict, common), path), []
    shared = {name: part for name, part in common.items() if name not in OWN}
    for number, other in enumerate(described, start=1):
        memory = header.get("memory") and {**header["memory"], **other}
        own = defaultdict(dict, {**shared, **by_part(parts[str(number)])})
        others.append(_part({**header, **other, "memory": memory}, own, path))
    return first.joined(others)


def _part(header: Mapping[str, Any], parts: PartTensors, path: Path) -> Model:
    """One model of a file, which may be an ensemble."""
    refuse(faults_of_parts(header, parts))
    features = FeatureMap.from_tensors(parts["features"])
    bank, last_bank = (
        Bank.from_tensors(parts[name]) if parts[name] else None for name in ("bank", "last_bank")
    )
    steps = None
    if parts["steps"]:
        steps = Steps.from_tensors(parts["steps"], features.n_components)
    entry = entry_of(features, steps)
    network = unpack(parts["network"], entry, header["activation"], header["network_dtype"])
    if bank is not None:
        network = replace(network, rank=bank.n_members * bank.n_prototypes)
    epochs = {name: tensor.tolist() for name, tensor in parts["history"].items()}
    try:
        config = TrainConfig(**{k: tupled(v) for k, v in {**BEFORE, **header["config"]}.items()})
        history = History.from_dict({**header["history"], **epochs})
    except ODD as error:
        raise unknown_settings(path, error) from error
    table, memory = header.get("table"), header.get("memory") or {}
    if table is not None:
        arrays = {name: tensor.numpy() for name, tensor in parts["table"].items()}
        table = tables.restored(table, arrays)
    fronts = (kind.from_tensors(parts[name]) for name, kind in FRONTS.items() if parts[name])
    model = Model(
        objective=_objective(header["task"], header["objective"]),
        network=network,
        features=features,
        config=config,
        history=history,
        n_columns=0,
        feature_names=tupled(header["feature_names"]),
        target_names=tupled(header.get("target_names")),
        table=table,
        front=next(fronts, None),
        bank=bank,
        memory=_memory(memory, parts["memory"]) if memory else None,
        last_bank=last_bank,
        steps=steps,
        weight=float(header.get("weight", 1.0)),
        calibration=float(header.get("sharpness") or 1.0),
        n_frozen=memory.get("n_frozen", 0),
        n_calls=memory.get("n_calls", 0),
        is_closed=memory.get("is_closed", False),
        image_range=tupled(header.get("image_range")),
        examples=parts["examples"]["rows"].numpy(),
        # those of an older file, which does not say, are training rows
        made_up=header.get("examples") == "made-up",
        parameters=header["parameters"],
    )
    n_columns = len(table.names) if table else model.n_features
    model = replace(model, n_columns=n_columns)
    refuse(faults_of_model(model, parts))
    return model


def tupled(value: Any) -> Any:
    """A list of JSON as the tuple it was."""
    return tuple(value) if isinstance(value, list) else value


def unknown_settings(path: str | Path, error: Exception) -> ModelFileError:
    """The error for hyperparameters, or facts of a training, that cannot be."""
    return ModelFileError(
        f"A model file must hold a configuration this version knows. {path} does not "
        f"({visible(str(error))[:300]}). Upgrade protopinv, or train the model again."
    )


def _objective(task: str, described: Mapping[str, Any]) -> Objective:
    """The objective that is described, and was checked."""
    if task == "classification":
        return Classes(labels_of(described))
    if task == "multi-label":
        return Labels(described["n_labels"])
    scales = {
        name: tuple(map(float, described[name]))
        for name in ("centre", "spread", "variance", "low", "high")
        if described.get(name) is not None
    }
    return Numbers(is_column=described["is_column"], loss=described["loss"], **scales)


def _memory(described: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Memory:
    # files of earlier versions do not tell rows of the fit from later ones
    fitted = float(described.get("fitted", tensors["mass"].sum()))
    limit, is_cut = described["limit"], described["is_cut"]
    return Memory.from_tensors(tensors, limit=limit, is_cut=is_cut, fitted=fitted)


def _drift(model: Model, stored: Tensor) -> float:
    """How far answers to the examples are from those in the file, by the largest of these."""
    if not len(stored):
        return 0.0
    outputs = example_outputs(model)
    if not bool(torch.isfinite(outputs).all()):
        raise UnfitError("a network whose answers to its examples are not finite")
    return float((outputs - stored).abs().max() / stored.abs().max().clamp_min(1e-12))


def _calibration(model: Model) -> float:
    """The factor of the network's outputs (temperature scaling), in a file that does not say it.

    It follows from the size of the last layer. Without banks it is never needed.
    """
    if model.bank is None or not model.objective.are_odds:
        return 1.0
    # a form of the solve that a file asks for may take any memory
    config = replace(model.config, solver="auto")
    try:
        plain = merged_network(model.bank, model.features, model.objective, config)
        calibration = float(model.network.weights[-1].norm() / plain.weights[-1].norm())
    except (TrainingError, RuntimeError, ValueError, MemoryError) as error:
        raise UnfitError(f"banks that make no network ({str(error)[:200]})") from error
    # any number will do for banks whose outputs are all zero
    return calibration if 0 < calibration < math.inf else 1.0
