"""Our own file: safetensors with a JSON header. Nothing in it is executed when it is read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from protopinv.bank import Bank
from protopinv.errors import ModelFileError
from protopinv.features import Bent, Clip, FeatureMap, Front, Squash, Stem
from protopinv.files import replacing
from protopinv.network import ACTIVATIONS, Network, inputs_of, outputs_of
from protopinv.plain import plain

FORMAT = "protopinv"
FORMAT_VERSION = 2
HEADER: dict[str, Any] = {
    "task": str,
    "objective": dict,
    "feature_names": list | None,
    "activation": str,
    "parameters": dict,
    "config": dict,
    "history": dict,
}


FRONTS: dict[str, type[Front]] = {"stem": Stem, "squash": Squash, "clip": Clip}


@dataclass(frozen=True)
class SavedModel:
    """All that a file holds.

    ``objective``, ``parameters``, ``config`` and ``history`` are plain JSON values: what the
    outputs stand for, the parameters as they were given and as they were used, what happened.
    """

    task: str
    objective: dict[str, Any]
    feature_names: list[str] | None
    parameters: dict[str, Any]
    config: dict[str, Any]
    history: dict[str, Any]
    bank: Bank
    features: FeatureMap
    network: Network
    front: Front | None = None

    @property
    def n_features(self) -> int:
        """Features of a row as a user gives it."""
        return self.network.sizes[0] if self.front is None else self.front.n_inputs


def save(model: SavedModel, path: str | Path, *, written_by: str) -> None:
    """Write the file whole or not at all."""
    header = {
        "format_version": FORMAT_VERSION,
        "written_by": written_by,
        "task": model.task,
        "objective": model.objective,
        "feature_names": model.feature_names,
        "activation": model.network.activation,
        "parameters": model.parameters,
        "config": model.config,
        "history": model.history,
    }
    parts = {
        **{name: _tensors_of(model.front, kind) for name, kind in FRONTS.items()},
        "bank": model.bank.tensors(),
        "features": model.features.tensors(),
        "network": model.network.tensors(),
    }
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    with replacing(Path(path)) as temporary:
        text = json.dumps(plain(header), allow_nan=False)
        save_file(tensors, temporary, metadata={FORMAT: text})


def load(path: str | Path) -> SavedModel:
    """Read a file that ``save`` wrote; anything else raises ModelFileError."""
    path = Path(path)
    header, tensors = _read(path)
    version = header.get("format_version")
    if version != FORMAT_VERSION:
        older = type(version) is int and version < FORMAT_VERSION
        raise ModelFileError(
            f"This version reads model files of format {FORMAT_VERSION}. {path} has format "
            f"{version}, written by {header.get('written_by')}. "
            + ("Train the model again." if older else "Upgrade protopinv.")
        )
    try:
        _check_header(header)
        model = SavedModel(
            task=header["task"],
            objective=header["objective"],
            feature_names=header["feature_names"],
            parameters=header["parameters"],
            config=header["config"],
            history=header["history"],
            bank=Bank.from_tensors(_part(tensors, "bank")),
            features=FeatureMap.from_tensors(_part(tensors, "features")),
            network=Network.from_tensors(_part(tensors, "network"), header["activation"]),
            front=_front(tensors),
        )
        fault = _fault(model)
    except (KeyError, TypeError, IndexError) as error:
        fault = f"{type(error).__name__} on {error}"
    if fault:
        raise ModelFileError(
            f"A model file must fit together. In {path}: {fault}. Write the model again."
        )
    return model


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise ModelFileError(f"A model file must exist. There is none at {path}. Check the path.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            header = json.loads(metadata[FORMAT]) if FORMAT in metadata else None
            # Copies: the tensors themselves are windows into the file, and change when it does.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError, OSError, RecursionError) as error:
        raise ModelFileError(
            f"A model file must be whole and in safetensors format. {path} is not ({error}). "
            "Copy it again, or train and save the model again."
        ) from error
    if not isinstance(header, dict):
        raise ModelFileError(
            f"A model file must come from protopinv. {path} is a safetensors file of another "
            "program. Give a file written by 'protopinv train' or save()."
        )
    return header, tensors


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


def _fault(model: SavedModel) -> str | None:
    """What does not fit, or None."""
    weights, bank = model.network.weights, model.bank
    if not weights or any(W.dtype != torch.float64 for W in weights):
        return "the network has no layers in float64"
    if any(W.ndim != 2 for W in (weights[0], weights[-1])) or any(
        W.ndim not in (2, 3) or 0 in W.shape for W in weights
    ):
        return "the layers of the network are neither matrices nor blocks within"
    if any(tensor.ndim != 3 for tensor in (bank.inputs, *bank.hidden, bank.outputs)):
        return "the parts of the bank are not matrices for each member"
    if len({tensor.shape[:2] for tensor in (bank.inputs, *bank.hidden, bank.outputs)}) != 1:
        return "the parts of the bank differ in members or prototypes"
    if any(outputs_of(a) != inputs_of(b) for a, b in pairwise(weights)):
        return "the layers of the network do not follow each other"
    if model.network.activation not in ACTIVATIONS:
        return f"unknown activation {model.network.activation!r}"
    if weights[-1].shape[1] != bank.outputs.shape[2]:
        return f"{weights[-1].shape[1]} outputs for prototypes of {bank.outputs.shape[2]}"
    if len(model.features.mean) != model.network.sizes[0]:
        return "the feature map and the network differ in features"
    if model.front is not None and model.front.n_outputs != model.network.sizes[0]:
        return "what stands before the network and the network differ in features"
    if isinstance(model.front, Bent) and (fault := model.front.fault()):
        return fault
    if model.feature_names is not None and len(model.feature_names) != model.n_features:
        return f"{len(model.feature_names)} feature names for {model.n_features} features"
    if not all(bool(torch.isfinite(tensor).all()) for tensor in (*weights, *bank.trained)):
        return "numbers that are not finite"
    return None
