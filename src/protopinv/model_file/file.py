"""Write and read a model file."""

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from protopinv import tables
from protopinv.bank import Bank
from protopinv.errors import DriftWarning, ModelFileError
from protopinv.features import Clip, FeatureMap, Front, Squash, Stem
from protopinv.files import replacing
from protopinv.memory import Memory
from protopinv.model_file.packing import DTYPES, pack, unpack
from protopinv.model_file.reading import (
    DAMAGE,
    FORMAT,
    KNOWN_NEEDS,
    MAJOR,
    MINOR,
    MOST_HEADER_BYTES,
    check_version,
    read_header,
)
from protopinv.model_file.saved import SavedModel
from protopinv.network import ACTIVATIONS, inputs_of, outputs_of
from protopinv.plain import plain

HEADER: dict[str, Any] = {
    "task": str,
    "objective": dict,
    "feature_names": list | None,
    "activation": str,
    "network_dtype": str,
    "parameters": dict,
    "config": dict,
    "history": dict,
    "needs": list,
}
# What is kept of every epoch, as tensors: text would be longer, and a header has its limit.
EPOCHS = ("loss", "lr", "ridge", "validation_score", "validation_loss")
# The same for each bank and each fold, where there are several.
APART = ("member_loss", "fold_loss")
FRONTS: dict[str, type[Front]] = {"stem": Stem, "squash": Squash, "clip": Clip}
# Outputs of examples may differ by this share of the largest of them; stems work in float32.
DRIFT = 1e-6
DRIFT_OF_STEMS = 1e-3
MOST_EXAMPLES = 256


def save(model: SavedModel, path: str | Path, *, written_by: str) -> None:
    """Write the file whole or not at all."""
    listed = (*EPOCHS, *(name for name in APART if model.history.get(name)))
    history = {name: v for name, v in model.history.items() if name not in (*EPOCHS, *APART)}
    header = {
        "format": f"{MAJOR}.{MINOR}",
        "needs": [n for n in KNOWN_NEEDS if getattr(model, n) is not None],
        "written_by": written_by,
        "task": model.task,
        "objective": model.objective,
        "feature_names": model.feature_names,
        "target_names": model.target_names,
        "examples": "made-up" if model.made_up else "training",
        "image_range": model.image_range,
        "table": None if model.table is None else tables.described(model.table),
        "memory": None if model.memory is None else _described(model.memory, model.continuing),
        "activation": model.network.activation,
        "sharpness": model.sharpness,
        "network_dtype": model.dtype,
        "parameters": model.parameters,
        "config": model.config,
        "history": history,
    }
    features = model.features if model.bank is not None else _unprojected(model.features)
    packed = pack(model.network, model.features, model.dtype)
    network = unpack(packed, model.features, model.network.activation, model.dtype)
    outputs = replace(model, network=network).outputs(model.examples)
    parts = {
        **{name: _tensors_of(model.front, kind) for name, kind in FRONTS.items()},
        "bank": {} if model.bank is None else model.bank.tensors(),
        "features": features.tensors(),
        "network": packed,
        "table": {} if model.table is None else _tensors_of_arrays(tables.arrays(model.table)),
        "memory": {} if model.memory is None else model.memory.tensors(),
        "last_bank": {} if model.last_bank is None else model.last_bank.tensors(),
        "examples": {"rows": model.examples, "outputs": outputs},
        "history": {
            name: torch.tensor(model.history[name], dtype=torch.float64) for name in listed
        },
    }
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    text = json.dumps(plain(header), allow_nan=False)
    if len(json.dumps(text)) > MOST_HEADER_BYTES // 2:
        raise ModelFileError(
            f"The header of a model file must be shorter than {MOST_HEADER_BYTES // 2:,} bytes. "
            "Names of features, classes and parameters together make it longer. Shorten them."
        )
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(safetensors_bytes(tensors, metadata={FORMAT: text}))


def load(path: str | Path) -> SavedModel:
    """Read a file that ``save`` wrote; anything else raises ModelFileError.

    Warns with DriftWarning if the network no longer answers its examples as it did.
    """
    path = Path(path)
    header = read_header(path)
    check_version(header, path)
    tensors = _tensors(path)
    try:
        _check_header(header)
        model = _model(header, tensors)
        fault = _fault(model, tensors)
        drift = 0.0 if fault else _drift(model, tensors["examples.outputs"])
    except DAMAGE as error:
        fault = f"{type(error).__name__} on {str(error)[:200]}"
    if fault:
        raise ModelFileError(
            f"A model file must fit together. In {path}: {fault}. Write the model again."
        )
    if not drift <= (DRIFT_OF_STEMS if isinstance(model.front, Stem) else DRIFT):
        warnings.warn(
            DriftWarning(
                "A model should answer the examples in its file as it did when it was saved. That "
                f"in {path} is off by {drift:.1e} of its largest answer. Compare versions of torch "
                "and the processors; train again if this matters."
            ),
            stacklevel=3,
        )
    return model


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        # all at once: tensors that are windows into a file would change when it does
        return load_tensors(path.read_bytes())
    except (SafetensorError, ValueError, OSError) as error:
        raise ModelFileError(
            f"A model file must be whole and in safetensors format. {path} is not ({error}). "
            "Copy it again, or train and save the model again."
        ) from error


def _model(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SavedModel:
    features = FeatureMap.from_tensors(_part(tensors, "features"))
    bank, dtype = _part(tensors, "bank"), header["network_dtype"]
    last = _part(tensors, "last_bank")
    network = unpack(_part(tensors, "network"), features, header["activation"], dtype)
    known = Bank.from_tensors(bank) if bank else None
    if known is not None:
        network = replace(network, rank=known.n_members * known.n_prototypes)
    history = {name: tensor.tolist() for name, tensor in _part(tensors, "history").items()}
    return SavedModel(
        task=header["task"],
        objective=header["objective"],
        feature_names=header["feature_names"],
        parameters=header["parameters"],
        config=header["config"],
        history={**header["history"], **history},
        bank=known,
        features=features,
        network=network,
        front=_front(tensors),
        table=_table(header.get("table"), _part(tensors, "table")),
        memory=_memory(header.get("memory"), _part(tensors, "memory")),
        last_bank=Bank.from_tensors(last) if last else None,
        continuing=header.get("memory") or {},
        examples=tensors["examples.rows"],
        made_up=_made_up(header.get("examples")),
        target_names=_names(header.get("target_names")),
        image_range=_range(header.get("image_range")),
        sharpness=_sharpness(header.get("sharpness")),
        dtype=dtype,
        is_newer=int(header["format"].partition(".")[2]) > MINOR,
    )


def _sharpness(described: Any) -> float | None:
    """None in a file from before it was stored; raises TypeError for what is no factor."""
    if described is None:
        return None
    is_number = isinstance(described, int | float) and not isinstance(described, bool)
    if not (is_number and 0 < described < math.inf):
        raise TypeError(f"'sharpness', which is {described!r:.40}")
    return float(described)


def _made_up(described: Any) -> bool:
    """Whether examples are made up; those of an older file, which does not say, are not."""
    if described not in (None, "training", "made-up"):
        raise TypeError(f"'examples', which is {described!r:.40}")
    return bool(described == "made-up")


def _names(described: Any) -> list[str] | None:
    """None in a file from before they were stored; raises TypeError for what are no names."""
    if described is None:
        return None
    if not isinstance(described, list) or not all(isinstance(name, str) for name in described):
        raise TypeError(f"'target_names', which is {described!r:.40}")
    return described


def _range(described: Any) -> tuple[float, float] | None:
    """None for rows that are no images; raises TypeError for what is no range."""
    if described is None:
        return None
    low, high = (float(end) for end in described)
    if not -math.inf < low <= high < math.inf:
        raise TypeError(f"'image_range', which is {described!r:.40}")
    return low, high


def _tensors_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _table(described: Any, found: Mapping[str, Tensor]) -> tables.Table | None:
    if described is None:
        return None
    return tables.restored(described, {name: tensor.numpy() for name, tensor in found.items()})


def _described(memory: Memory, continuing: Mapping[str, Any]) -> dict[str, Any]:
    own = {"limit": memory.limit, "is_cut": memory.is_cut, "fitted": memory.fitted}
    return {**continuing, **own}


def _memory(described: Any, found: Mapping[str, Tensor]) -> Memory | None:
    if described is None:
        return None
    limit, is_cut = described["limit"], described["is_cut"]
    if type(limit) is not int or type(is_cut) is not bool:
        raise TypeError("'memory', which has another limit or cut than it may")
    r = found["mean"].shape[1]
    if found["scatter"].shape[1] != r * (r + 1) // 2:
        raise ValueError("scatter of another size than its mean")
    # files of earlier versions do not tell rows of the fit from later ones
    fitted = described.get("fitted", float(found["mass"].sum()))
    if type(fitted) is not float or not 0 <= fitted < math.inf:
        raise TypeError("'memory', which was fitted on another mass of rows than can be")
    return Memory.from_tensors(found, limit=limit, is_cut=is_cut, fitted=fitted)


def _unprojected(features: FeatureMap) -> FeatureMap:
    """Without the basis, which only a bank needs."""
    return FeatureMap(features.mean, features.scale)


def _tensors_of(front: Front | None, kind: type[Front]) -> dict[str, Tensor]:
    return front.tensors() if isinstance(front, kind) else {}


def _front(tensors: Mapping[str, Tensor]) -> Front | None:
    for name, kind in FRONTS.items():
        if part := _part(tensors, name):
            return kind.from_tensors(part)
    return None


def _part(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    prefix = part + "."
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }


def _check_header(header: Mapping[str, Any]) -> None:
    """Raise KeyError or TypeError for a value that is missing or of another kind."""
    for name, kind in HEADER.items():
        if not isinstance(header[name], kind):
            raise TypeError(f"{name!r}, which is {header[name]!r:.40}")
    names = header["feature_names"]
    if names is not None and not all(isinstance(name, str) for name in names):
        raise TypeError("'feature_names', which are not all strings")
    if header["network_dtype"] not in DTYPES:
        raise TypeError(f"'network_dtype', which is {header['network_dtype']!r:.40}")


def _fault(model: SavedModel, tensors: Mapping[str, Tensor]) -> str | None:
    """What does not fit, or None."""
    return (
        _network_fault(model)
        or _bank_fault(model, model.bank)
        or _bank_fault(model, model.last_bank)
        or _front_fault(model)
        or _memory_fault(model)
        or _examples_fault(model, tensors["examples.outputs"])
        or _number_fault(tensors)
    )


def _network_fault(model: SavedModel) -> str | None:
    weights = model.network.weights
    if not weights or any(W.dtype != torch.float64 for W in weights):
        return "the network has no layers in float64"
    if any(W.ndim != 2 for W in (weights[0], weights[-1])) or any(
        W.ndim not in (2, 3) or 0 in W.shape or W.shape[-2] < 2 for W in weights
    ):
        return "the layers of the network are neither matrices nor blocks within"
    if any(outputs_of(a) != inputs_of(b) for a, b in pairwise(weights)):
        return "the layers of the network do not follow each other"
    if not all(bool(W.isfinite().all()) for W in weights):
        return "weights that are not finite"
    if model.network.activation not in ACTIVATIONS:
        return f"unknown activation {model.network.activation!r:.40}"
    features, n = model.features, model.network.sizes[0]
    if features.mean.shape != (n,) or features.scale.shape != (n,):
        return "the feature map and the network differ in features"
    if not bool((features.scale > 0).all()):
        return "features without a scale"
    if features.basis is not None and (features.basis.ndim != 2 or len(features.basis) != n):
        return "the projection and the network differ in features"
    if model.table is not None and model.table.n_features != model.n_inputs:
        return f"a table of {model.table.n_features} features for {model.n_inputs}"
    n_columns = model.n_features + (0 if model.table is None else len(model.table.left_out))
    if model.feature_names is not None and len(model.feature_names) != n_columns:
        return f"{len(model.feature_names)} feature names for {n_columns} features"
    return None


def _bank_fault(model: SavedModel, bank: Bank | None) -> str | None:
    if bank is None:
        return None
    parts = (bank.inputs, *bank.hidden, bank.outputs)
    if any(t.ndim != 3 or 0 in t.shape or not t.is_floating_point() for t in parts):
        return "the parts of the bank are not matrices for each member"
    if len({tensor.shape[:2] for tensor in parts}) != 1:
        return "the parts of the bank differ in members or prototypes"
    if model.network.sizes[-1] != bank.outputs.shape[2]:
        return f"{model.network.sizes[-1]} outputs for prototypes of {bank.outputs.shape[2]}"
    ridges = (len(bank.inputs), len(bank.hidden) + 1)
    if bank.raw_ridge.shape != ridges or bank.learnable_ridge.shape != ridges:
        return "the ridges of the bank are not one a layer and member"
    if bank.learnable_ridge.dtype != torch.bool or not bank.raw_ridge.is_floating_point():
        return "which ridges are learned is not said"
    if bank.inputs.shape[2] != model.features.n_components:
        return "the bank and the feature map differ in features"
    scale = bank.scale
    if scale is not None and (
        scale.shape != (len(bank.inputs), bank.inputs.shape[2]) or not scale.is_floating_point()
    ):
        return "the scales of the bank are not one a feature"
    return None


def _front_fault(model: SavedModel) -> str | None:
    front = model.front
    if front is None:
        return None
    if front.n_outputs != model.network.sizes[0]:
        return "what stands before the network and the network differ in features"
    return front.fault()


def _memory_fault(model: SavedModel) -> str | None:
    if model.memory is None:
        return None if model.last_bank is None else "a last bank without a memory"
    if model.bank is None:
        return "a memory without a bank"
    last = model.last_bank
    if last is not None and not _alike(last, model.bank):
        return "the last bank has another shape than the mean"
    return model.memory.fault(model.features.n_components, model.network.sizes[-1])


def _alike(first: Bank, second: Bank) -> bool:
    return [tensor.shape for tensor in first.trained] == [t.shape for t in second.trained]


def _examples_fault(model: SavedModel, outputs: Tensor) -> str | None:
    rows = model.examples
    if len(rows) > MOST_EXAMPLES:
        return f"{len(rows)} examples, more than {MOST_EXAMPLES}"
    if rows.ndim != 2 or outputs.shape != (len(rows), model.network.sizes[-1]):
        return "the examples have no outputs of their own"
    usable = rows.isfinite() if model.table is None else ~rows.isinf()
    if not bool(usable.all()):
        return "examples that are not finite"
    return None if rows.shape[1] == model.n_features else "the examples differ in features"


def _number_fault(tensors: Mapping[str, Tensor]) -> str | None:
    for name, tensor in tensors.items():
        # a frame may have gaps
        may_be_nan = name.startswith("history.") or name == "examples.rows"
        if may_be_nan or not tensor.is_floating_point():
            continue
        if not bool(torch.isfinite(tensor).all()):
            return "numbers that are not finite"
    return None


def _drift(model: SavedModel, known: Tensor) -> float:
    """How far answers to the examples are from those in the file, by the largest of these."""
    if not len(known):
        return 0.0
    off = (model.outputs(model.examples) - known).abs().max()
    return float(off / known.abs().max().clamp_min(1e-12))
