"""Whether the parts of a file belong together; asked once, when it is loaded.

Whoever works with a model later relies on it: shapes and types agree, numbers are finite, and
nothing grows in memory beyond the size of its file.
"""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from protopinv.bank import Bank
from protopinv.features import Stem
from protopinv.model import Model
from protopinv.model_file.packing import types_of
from protopinv.network import ACTIVATIONS, inputs_of, outputs_of
from protopinv.plain import UnfitError, visible
from protopinv.train.config import is_auto

MOST_EXAMPLES = 256
# Values of a configuration that are resolved as "auto".
MAY_BE_AUTO = ("solver", "validation_fraction")
# Before the network there is one of these at most.
FRONTS = ("stem", "squash", "clip")
Parts = Mapping[str, Mapping[str, Tensor]]


def check_shapes(header: Mapping[str, Any], parts: Parts) -> None:
    """Raise UnfitError for what must be known before anything is made of the tensors."""
    _check_parts(header, parts)
    _check_history(parts["history"])
    dtype, network = header["network_dtype"], parts["network"]
    if {name: tensor.dtype for name, tensor in network.items()} != types_of(network, dtype):
        raise UnfitError(f"the network has not all its layers in {dtype}, one after another")
    if header["activation"] not in ACTIVATIONS:
        raise UnfitError(f"unknown activation {visible(repr(header['activation']))[:40]}")
    memory = parts["memory"]
    if memory:
        q, r = memory["mean"].shape
        if not q or memory["scatter"].shape != (q, r * (r + 1) // 2):
            raise UnfitError("the scatter of the memory is of another size than its means")


def _check_parts(header: Mapping[str, Any], parts: Parts) -> None:
    """What is described is there, and what is there is described."""
    for name in ("table", "memory"):
        if (header.get(name) is None) == bool(parts[name]):
            raise UnfitError(f"half a {name}: its description or its tensors are missing")
    if sum(bool(parts[name]) for name in FRONTS) > 1:
        raise UnfitError("more than one kind of thing before the network")
    for name in ("bank", "last_bank"):
        bank = parts[name]
        hidden = (
            {f"hidden.{layer}" for layer in range(bank["raw_ridge"].shape[1] - 1)}
            if bank
            else set()
        )
        if set(bank) - {"inputs", "outputs", "raw_ridge", "learnable_ridge", "scale"} != hidden:
            raise UnfitError("the layers of the bank are not one after another")


def _check_history(history: Mapping[str, Tensor]) -> None:
    """One entry an epoch in each; validation may be left out, and what is of banks and folds."""
    n = len(history["loss"])
    for name, tensor in history.items():
        may_lack = name not in ("loss", "lr", "ridge")
        if len(tensor) != n and not (may_lack and not len(tensor)):
            raise UnfitError(f"a history with {len(tensor)} epochs in {name}, and {n} in loss")
        if name in ("ridge", "member_loss", "fold_loss") and len(tensor) and tensor.ndim != 2:
            raise UnfitError(f"a history whose {name} has no list an epoch")


def check_model(model: Model, parts: Parts) -> None:
    """Raise UnfitError for a model whose parts do not belong together."""
    fault = (
        _network_fault(model)
        or _bank_fault(model, model.bank)
        or _bank_fault(model, model.last_bank)
        or _front_fault(model)
        or _names_fault(model)
        or _memory_fault(model)
        or _config_fault(model)
        or _examples_fault(model, parts["examples"]["outputs"])
        or _number_fault(parts)
    )
    if fault is not None:
        raise UnfitError(fault)


def _network_fault(model: Model) -> str | None:
    weights = model.network.weights
    if not weights:
        return "the network has no layers"
    if any(W.ndim != 2 for W in (weights[0], weights[-1])) or any(
        W.ndim not in (2, 3) or 0 in W.shape or W.shape[-2] < 2 for W in weights
    ):
        return "the layers of the network are neither matrices nor blocks within"
    if any(outputs_of(a) != inputs_of(b) for a, b in pairwise(weights)):
        return "the layers of the network do not follow each other"
    if not all(bool(W.isfinite().all()) for W in weights):
        return "weights that are not finite"
    features, n = model.features, model.network.sizes[0]
    if features.mean.shape != (n,) or features.scale.shape != (n,):
        return "the feature map and the network differ in features"
    if not bool((features.scale > 0).all()):
        return "features without a scale"
    if features.basis is not None and (features.basis.ndim != 2 or len(features.basis) != n):
        return "the projection and the network differ in features"
    return None


def _names_fault(model: Model) -> str | None:
    """Features, columns and targets that are not as many as the network has."""
    table, names, targets = model.table, model.feature_names, model.target_names
    if table is not None and table.n_features != model.n_inputs:
        return f"a table of {table.n_features} features for {model.n_inputs}"
    if names is not None and len(names) != model.n_columns:
        return f"{len(names)} feature names for {model.n_columns} features"
    if table is not None and names is not None and names != table.names:
        return "feature names that are not those of the table"
    k = model.objective.n_outputs
    if k != model.network.sizes[-1]:
        return f"{model.network.sizes[-1]} outputs for {k} targets"
    if targets is not None and len(targets) != (1 if model.task == "classification" else k):
        return f"{len(targets)} names of targets for {k} outputs"
    return None


def _bank_fault(model: Model, bank: Bank | None) -> str | None:
    if bank is None:
        return None
    parts = (bank.inputs, *bank.hidden, bank.outputs)
    if any(0 in tensor.shape for tensor in parts):
        return "a bank without members"
    if len({tensor.dtype for tensor in bank.trained}) != 1:
        return "the parts of the bank are not of one type of number"
    if len({tensor.shape[:2] for tensor in parts}) != 1:
        return "the parts of the bank differ in members or prototypes"
    if model.network.sizes[-1] != bank.outputs.shape[2]:
        return f"{model.network.sizes[-1]} outputs for prototypes of {bank.outputs.shape[2]}"
    ridges = (len(bank.inputs), len(bank.hidden) + 1)
    if bank.raw_ridge.shape != ridges or bank.learnable_ridge.shape != ridges:
        return "the ridges of the bank are not one a layer and member"
    if not bool((bank.ridge > 0).all()):
        return "a ridge of the bank is rounded to zero"
    if bank.inputs.shape[2] != model.features.n_components:
        return "the bank and the feature map differ in features"
    if bank.scale is not None and bank.scale.shape != bank.inputs.shape[::2]:
        return "the scales of the bank are not one a feature"
    return None


def _front_fault(model: Model) -> str | None:
    front = model.front
    if front is None:
        return None
    if front.n_outputs != model.network.sizes[0]:
        return "what stands before the network and the network differ in features"
    return front.fault()


def _memory_fault(model: Model) -> str | None:
    if model.memory is None:
        return None if model.last_bank is None else "a last bank without a memory"
    if model.bank is None:
        return "a memory without a bank"
    if model.n_frozen > model.bank.n_prototypes:
        return "more frozen prototypes than there are"
    last = model.last_bank
    if last is not None and not _alike(last, model.bank):
        return "the last bank has another shape than the mean"
    fault = model.memory.fault(model.features.n_components, model.network.sizes[-1])
    if fault is None and model.memory.n_groups > model.objective.n_groups:
        return f"a memory of {model.memory.n_groups} groups for {model.objective.n_groups}"
    return fault


def _config_fault(model: Model) -> str | None:
    """What of the configuration does not belong to the network and its banks, or None."""
    config, front = model.config, model.front
    if any(is_auto(v) for name, v in vars(config).items() if name not in MAY_BE_AUTO):
        return "a configuration with a value that is left open"
    if config.activation != model.network.activation:
        return f"activation {config.activation!r} for a network with {model.network.activation!r}"
    if model.bank is not None and config.widths != tuple(H.shape[2] for H in model.bank.hidden):
        return f"hidden_sizes {config.widths!r:.40} for banks of other layers"
    if isinstance(front, Stem) and config.image_shape is None:
        return "a stem for rows that are no images"
    if config.image_shape is not None:
        if math.prod(config.image) != model.n_features or model.table is not None:
            return f"images of {math.prod(config.image)} numbers for rows of {model.n_features}"
        if isinstance(front, Stem) and front.image_shape != config.image:
            return "a stem for other images"
    return None


def _alike(first: Bank, second: Bank) -> bool:
    return [tensor.shape for tensor in first.trained] == [t.shape for t in second.trained]


def _examples_fault(model: Model, outputs: Tensor) -> str | None:
    rows = torch.from_numpy(model.examples)
    if len(rows) > MOST_EXAMPLES:
        return f"{len(rows)} examples, more than {MOST_EXAMPLES}"
    if outputs.shape != (len(rows), model.network.sizes[-1]):
        return "the examples have no outputs of their own"
    usable = rows.isfinite() if model.table is None else ~rows.isinf()
    if not bool(usable.all()):
        return "examples that are not finite"
    return None if rows.shape[1] == model.n_features else "the examples differ in features"


def _number_fault(parts: Parts) -> str | None:
    for part, named in parts.items():
        for name, tensor in named.items():
            # a loss may be infinite, and a frame may have gaps
            may_be_nan = part == "history" or (part == "examples" and name == "rows")
            if may_be_nan or not tensor.is_floating_point():
                continue
            if not bool(torch.isfinite(tensor).all()):
                return f"numbers that are not finite in {part}.{name}"
    return None
