"""Read a model file."""

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
from protopinv.errors import DriftWarning, ModelFileError
from protopinv.features import Clip, FeatureMap, Front, Squash, Stem
from protopinv.memory import Memory
from protopinv.model_file.checking import check_model, check_shapes
from protopinv.model_file.header import UnfitError, check_header
from protopinv.model_file.packing import unpack
from protopinv.model_file.reading import DAMAGE, MINOR, read_header
from protopinv.model_file.saved import SavedModel
from protopinv.plain import visible

FRONTS: dict[str, type[Front]] = {"stem": Stem, "squash": Squash, "clip": Clip}
# Outputs of examples may differ by this share of the largest of them; stems work in float32.
DRIFT = 1e-6
DRIFT_OF_STEMS = 1e-3
# Tensors of a file, by the part they belong to and their name in it.
Parts = Mapping[str, Mapping[str, Tensor]]


def load(path: str | Path) -> SavedModel:
    """Read a file that ``save`` wrote; anything else raises ModelFileError.

    Warns with DriftWarning if the network no longer answers its examples as it did.
    """
    path = Path(path)
    header = read_header(path)
    parts = _parts(path)
    try:
        check_header(header)
        check_shapes(header, parts)
        model = _model(header, parts)
        check_model(model, parts)
        drift = _drift(model, parts["examples"]["outputs"])
    except UnfitError as error:
        raise unfit(path, str(error)) from error
    except DAMAGE as error:
        raise unfit(path, f"{type(error).__name__} on {visible(str(error)[:200])}") from error
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


def unfit(path: str | Path, why: str) -> ModelFileError:
    """The error for a file whose parts do not belong together."""
    return ModelFileError(
        f"A model file must fit together. In {path}: {why}. Write the model again."
    )


def _parts(path: Path) -> Parts:
    try:
        # all at once: tensors that are windows into a file would change when it does
        tensors = load_tensors(path.read_bytes())
    except (SafetensorError, ValueError, OSError) as error:
        raise ModelFileError(
            f"A model file must be whole and in safetensors format. {path} is not ({error}). "
            "Copy it again, or train and save the model again."
        ) from error
    parts: defaultdict[str, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    return parts


def _model(header: Mapping[str, Any], parts: Parts) -> SavedModel:
    features = FeatureMap.from_tensors(parts["features"])
    bank = Bank.from_tensors(parts["bank"]) if parts["bank"] else None
    network = unpack(parts["network"], features, header["activation"], header["network_dtype"])
    if bank is not None:
        network = replace(network, rank=bank.n_members * bank.n_prototypes)
    history = {name: tensor.tolist() for name, tensor in parts["history"].items()}
    pixels = header.get("image_range")
    return SavedModel(
        task=header["task"],
        objective=header["objective"],
        feature_names=header["feature_names"],
        parameters=header["parameters"],
        config=header["config"],
        history={**header["history"], **history},
        bank=bank,
        features=features,
        network=network,
        front=_front(parts),
        table=_table(header.get("table"), parts["table"]),
        memory=_memory(header.get("memory"), parts["memory"]),
        last_bank=Bank.from_tensors(parts["last_bank"]) if parts["last_bank"] else None,
        continuing=header.get("memory") or {},
        examples=parts["examples"]["rows"],
        # those of an older file, which does not say, are training rows
        made_up=header.get("examples") == "made-up",
        target_names=header.get("target_names"),
        image_range=None if pixels is None else (float(pixels[0]), float(pixels[1])),
        sharpness=None if header.get("sharpness") is None else float(header["sharpness"]),
        dtype=header["network_dtype"],
        is_newer=int(header["format"].partition(".")[2]) > MINOR,
    )


def _table(described: Any, tensors: Mapping[str, Tensor]) -> tables.Table | None:
    if described is None:
        return None
    return tables.restored(described, {name: tensor.numpy() for name, tensor in tensors.items()})


def _memory(described: Any, tensors: Mapping[str, Tensor]) -> Memory | None:
    if described is None:
        return None
    # files of earlier versions do not tell rows of the fit from later ones
    fitted = float(described.get("fitted", tensors["mass"].sum()))
    limit, is_cut = described["limit"], described["is_cut"]
    return Memory.from_tensors(tensors, limit=limit, is_cut=is_cut, fitted=fitted)


def _front(parts: Parts) -> Front | None:
    for name, kind in FRONTS.items():
        if parts[name]:
            return kind.from_tensors(parts[name])
    return None


def _drift(model: SavedModel, stored: Tensor) -> float:
    """How far answers to the examples are from those in the file, by the largest of these."""
    if not len(stored):
        return 0.0
    answers = model.outputs(model.examples)
    if not bool(torch.isfinite(answers).all()):
        raise UnfitError("a network whose answers to its examples are not finite")
    return float((answers - stored).abs().max() / stored.abs().max().clamp_min(1e-12))
