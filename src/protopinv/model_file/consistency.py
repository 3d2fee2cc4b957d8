"""Whether the parts of a file belong together; asked once, when it is loaded.

Whoever works with a model later relies on it: shapes and types agree, numbers are finite, and
nothing grows in memory beyond the size of its file.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from protopinv.bank import Bank
from protopinv.features import Clip, Front, Squash, Stem
from protopinv.model import Model
from protopinv.model_file.packing import types_of
from protopinv.network import ACTIVATIONS, inputs_of, outputs_of
from protopinv.plain import UnfitError, visible
from protopinv.train.config import is_auto

MOST_EXAMPLES = 256
# Values of a configuration that are resolved as "auto".
MAY_BE_AUTO = ("solver", "validation_fraction")
# Before the network there is one of these at most.
FRONTS: dict[str, type[Front]] = {"stem": Stem, "squash": Squash, "clip": Clip}
# What a bank has besides its hidden layers.
BANK = {"inputs", "outputs", "raw_ridge", "learnable_ridge", "scale"}
PartTensors = Mapping[str, Mapping[str, Tensor]]


def refuse(faults: Iterator[str]) -> None:
    """Raise UnfitError for the first fault, if there is one."""
    for fault in faults:
        raise UnfitError(fault)


def faults_of_parts(header: Mapping[str, Any], parts: PartTensors) -> Iterator[str]:
    """What must be known before anything is made of the tensors."""
    for name in ("table", "memory"):
        if (header.get(name) is None) == bool(parts[name]):
            yield f"half a {name}: its description or its tensors are missing"
    if sum(bool(parts[name]) for name in FRONTS) > 1:
        yield "more than one kind of thing before the network"
    for bank in (parts["bank"], parts["last_bank"]):
        n_hidden = bank["raw_ridge"].shape[1] - 1 if bank else 0
        if set(bank) - BANK != {f"hidden.{layer}" for layer in range(n_hidden)}:
            yield "the layers of the bank are not one after another"
    yield from _faults_of_history(parts["history"])
    dtype, activation = header["network_dtype"], header["activation"]
    types = {name: tensor.dtype for name, tensor in parts["network"].items()}
    if types != types_of(types, dtype):
        yield f"the network has not all its layers in {dtype}, one after another"
    if activation not in ACTIVATIONS:
        yield f"unknown activation {visible(repr(activation))[:40]}"
    if memory := parts["memory"]:
        q, r = memory["mean"].shape
        if not q or memory["scatter"].shape != (q, r * (r + 1) // 2):
            yield "the scatter of the memory is of another size than its means"


def _faults_of_history(history: Mapping[str, Tensor]) -> Iterator[str]:
    """One entry an epoch in each; validation may be left out, and what is of banks and folds."""
    n = len(history["loss"])
    for name, tensor in history.items():
        may_lack = name not in ("loss", "lr", "ridge")
        if len(tensor) != n and not (may_lack and not len(tensor)):
            yield f"a history with {len(tensor)} epochs in {name}, and {n} in loss"
        if name in ("ridge", "member_loss", "fold_loss") and len(tensor) and tensor.ndim != 2:
            yield f"a history whose {name} has no list an epoch"


def faults_of_model(model: Model, parts: PartTensors) -> Iterator[str]:
    """Parts of a model that do not belong together."""
    yield from _faults_of_network(model)
    for bank in (model.bank, model.last_bank):
        if bank is not None:
            yield from _faults_of_bank(model, bank)
    if model.front is not None:
        if model.front.n_outputs != len(model.features.mean):
            yield "what stands before the network and the network differ in features"
        if (fault := model.front.fault()) is not None:
            yield fault
    yield from _faults_of_names(model)
    yield from _faults_of_memory(model)
    yield from _faults_of_config(model)
    yield from _faults_of_examples(model, parts["examples"]["outputs"])
    for part, named in parts.items():
        for name, tensor in named.items():
            # a loss may be infinite, and a frame may have gaps
            may_be_nan = part == "history" or (part == "examples" and name == "rows")
            if tensor.is_floating_point() and not may_be_nan and not bool(tensor.isfinite().all()):
                yield f"numbers that are not finite in {part}.{name}"


def _faults_of_network(model: Model) -> Iterator[str]:
    weights, features = model.network.weights, model.features
    if not weights:
        yield "the network has no layers"
    if any(W.ndim != 2 for W in (weights[0], weights[-1])) or any(
        W.ndim not in (2, 3) or 0 in W.shape or W.shape[-2] < 2 for W in weights
    ):
        yield "the layers of the network are neither matrices nor blocks within"
    if any(outputs_of(a) != inputs_of(b) for a, b in pairwise(weights)):
        yield "the layers of the network do not follow each other"
    if not all(bool(W.isfinite().all()) for W in weights):
        yield "weights that are not finite"
    n, basis, steps = model.network.sizes[0], features.basis, model.steps
    if steps is not None:
        if (fault := steps.fault()) is not None:
            yield fault
        if steps.n_outputs != n:
            yield "the steps and the network differ in features"
        n = len(features.mean)
    if features.mean.shape != (n,) or features.scale.shape != (n,):
        yield "the feature map and the network differ in features"
    if not bool((features.scale > 0).all()):
        yield "features without a scale"
    if basis is not None and (basis.ndim != 2 or len(basis) != n):
        yield "the projection and the network differ in features"


def _faults_of_bank(model: Model, bank: Bank) -> Iterator[str]:
    tensors = (bank.inputs, *bank.hidden, bank.outputs)
    if any(0 in tensor.shape for tensor in tensors):
        yield "a bank without members"
    if len({tensor.dtype for tensor in bank.trained}) != 1:
        yield "the parts of the bank are not of one type of number"
    if len({tensor.shape[:2] for tensor in tensors}) != 1:
        yield "the parts of the bank differ in members or prototypes"
    if model.network.sizes[-1] != bank.outputs.shape[2]:
        yield f"{model.network.sizes[-1]} outputs for prototypes of {bank.outputs.shape[2]}"
    ridges = (len(bank.inputs), len(bank.hidden) + 1)
    if bank.raw_ridge.shape != ridges or bank.learnable_ridge.shape != ridges:
        yield "the ridges of the bank are not one a layer and member"
    if not bool((bank.ridge > 0).all()):
        yield "a ridge of the bank is rounded to zero"
    width = model.features.n_components if model.steps is None else model.steps.n_outputs
    if bank.inputs.shape[2] != width:
        yield "the bank and the feature map differ in features"
    if bank.scale is not None and bank.scale.shape != bank.inputs.shape[::2]:
        yield "the scales of the bank are not one a feature"


def _faults_of_names(model: Model) -> Iterator[str]:
    """Features, columns and targets that are not as many as the network has."""
    table, names, targets = model.table, model.feature_names, model.target_names
    if table is not None and table.n_features != model.n_inputs:
        yield f"a table of {table.n_features} features for {model.n_inputs}"
    if names is not None and len(names) != model.n_columns:
        yield f"{len(names)} feature names for {model.n_columns} features"
    if table is not None and names is not None and names != table.names:
        yield "feature names that are not those of the table"
    k = model.objective.n_outputs
    if k != model.network.sizes[-1]:
        yield f"{model.network.sizes[-1]} outputs for {k} targets"
    if targets is not None and len(targets) != (1 if model.task == "classification" else k):
        yield f"{len(targets)} names of targets for {k} outputs"


def _faults_of_memory(model: Model) -> Iterator[str]:
    memory, bank, last = model.memory, model.bank, model.last_bank
    if memory is None:
        if last is not None:
            yield "a last bank without a memory"
        return
    if bank is None:
        yield "a memory without a bank"
        return
    if model.n_frozen > bank.n_prototypes:
        yield "more frozen prototypes than there are"
    if last is not None and [t.shape for t in last.trained] != [t.shape for t in bank.trained]:
        yield "the last bank has another shape than the mean"
    fault = memory.fault(model.features.n_components, model.network.sizes[-1])
    if fault is not None:
        yield fault
    if memory.n_groups > model.objective.n_groups:
        yield f"a memory of {memory.n_groups} groups for {model.objective.n_groups}"


def _faults_of_config(model: Model) -> Iterator[str]:
    """What of the configuration does not belong to the network and its banks."""
    config, activation = model.config, model.network.activation
    if any(is_auto(v) for name, v in vars(config).items() if name not in MAY_BE_AUTO):
        yield "a configuration with a value that is left open"
    if (config.number_encoding == "raw") and model.steps is not None:
        yield "steps of numbers that are raw"
    if config.activation != activation:
        yield f"activation {config.activation!r} for a network with {activation!r}"
    if model.bank is not None and config.widths != tuple(H.shape[2] for H in model.bank.hidden):
        yield f"hidden_sizes {config.widths!r:.40} for banks of other layers"
    stem = model.front if isinstance(model.front, Stem) else None
    if config.image_shape is None:
        if stem is not None:
            yield "a stem for rows that are no images"
        return
    if math.prod(config.image) != model.n_features or model.table is not None:
        yield f"images of {math.prod(config.image)} numbers for rows of {model.n_features}"
    if stem is not None and stem.image_shape != config.image:
        yield "a stem for other images"


def _faults_of_examples(model: Model, outputs: Tensor) -> Iterator[str]:
    rows = torch.from_numpy(model.examples)
    if len(rows) > MOST_EXAMPLES:
        yield f"{len(rows)} examples, more than {MOST_EXAMPLES}"
    if outputs.shape != (len(rows), model.network.sizes[-1]):
        yield "the examples have no outputs of their own"
    usable = rows.isfinite() if model.table is None else ~rows.isinf()
    if not bool(usable.all()):
        yield "examples that are not finite"
    if rows.shape[1] != model.n_features:
        yield "the examples differ in features"
