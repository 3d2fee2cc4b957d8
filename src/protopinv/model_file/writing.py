"""Write a model file."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from protopinv import tables
from protopinv.errors import ConfigError, ModelFileError
from protopinv.features import Clip, FeatureMap, Front, Squash, Stem
from protopinv.files import replacing
from protopinv.memory import Memory
from protopinv.model_file.packing import pack, unpack
from protopinv.model_file.reading import (
    FORMAT,
    KNOWN_NEEDS,
    LONG,
    MAJOR,
    MINOR,
    MOST_HEADER_BYTES,
    MOST_LISTED,
    MOST_LONG_BYTES,
    NEVER_LONG,
)
from protopinv.model_file.saved import SavedModel
from protopinv.model_file.strict import MOST_VALUES, n_values
from protopinv.plain import plain

# What is kept of every epoch, as tensors: text would be longer, and a header has its limit.
EPOCHS = ("loss", "lr", "ridge", "validation_score", "validation_loss")
# The same for each bank and each fold, where there are several.
APART = ("member_loss", "fold_loss")
FRONTS: dict[str, type[Front]] = {"stem": Stem, "squash": Squash, "clip": Clip}
# A value of the header whose text has more bytes is a tensor.
LONG_BYTES = 2**14


def save(model: SavedModel, path: str | Path, *, written_by: str) -> None:
    """Write the file whole or not at all."""
    model = replace(model, history=_thinned(model.history))
    header, long = _divided(_header(model, written_by))
    parts = {**_parts(model), LONG.removesuffix("."): long}
    if (
        "values" in parts["table"]
        and n_values(parts["table"]["values"].numpy().tobytes()) > MOST_VALUES
    ):
        raise _too_much()
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    text = json.dumps(header, allow_nan=False)
    content = safetensors_bytes(tensors, metadata={FORMAT: text})
    if int.from_bytes(content[:8], "little") > MOST_HEADER_BYTES:
        raise _too_much()
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


def _header(model: SavedModel, written_by: str) -> dict[str, Any]:
    """All that is no array, as plain JSON values."""
    listed = (*EPOCHS, *APART)
    return {
        "format": f"{MAJOR}.{MINOR}",
        "needs": [n for n in KNOWN_NEEDS if getattr(model, n, None) is not None],
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
        "history": {name: v for name, v in model.history.items() if name not in listed},
    }


def _parts(model: SavedModel) -> dict[str, Mapping[str, Tensor]]:
    """All arrays, by the part of the model they belong to."""
    features = model.features if model.bank is not None else _unprojected(model.features)
    packed = pack(model.network, model.features, model.dtype)
    network = unpack(packed, model.features, model.network.activation, model.dtype)
    if not all(bool(W.isfinite().all()) for W in network.weights):
        raise ConfigError(
            f"The weights of a model must fit into its type of number, which {model.dtype} is too "
            "small for. Use float64."
        )
    outputs = replace(model, network=network).outputs(model.examples)
    is_answered = outputs.isfinite().all(1)
    epochs = (*EPOCHS, *(name for name in APART if model.history.get(name)))
    return {
        **{name: _tensors_of(model.front, kind) for name, kind in FRONTS.items()},
        "bank": {} if model.bank is None else model.bank.tensors(),
        "features": features.tensors(),
        "network": packed,
        "table": {} if model.table is None else _tensors_of_arrays(tables.arrays(model.table)),
        "memory": {} if model.memory is None else model.memory.tensors(),
        "last_bank": {} if model.last_bank is None else model.last_bank.tensors(),
        "examples": {"rows": model.examples[is_answered], "outputs": outputs[is_answered]},
        "history": {
            name: torch.tensor(model.history[name], dtype=torch.float64) for name in epochs
        },
    }


def _thinned(history: Mapping[str, Any]) -> dict[str, Any]:
    """Every so many epochs of a history that is longer than a file may have it."""
    epochs = {name: v for name, v in history.items() if name in (*EPOCHS, *APART) and v}
    n_numbers = sum(np.size(values[0]) * len(values) for values in epochs.values())
    every = -(-n_numbers // MOST_LISTED)
    if every <= 1:
        return dict(history)
    places = {name: history[name] for name in ("best_epoch", "kept_epoch")}
    return {
        **history,
        **{name: values[::every] for name, values in epochs.items()},
        **{name: place and place // every for name, place in places.items()},
    }


def _divided(header: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What stays in the header, and what is a tensor because it is long."""
    short: dict[str, Any] = {}
    texts: dict[str, bytes] = {}
    for name, value in plain(header).items():
        text = _encoded(value)
        if len(text) > LONG_BYTES and name not in NEVER_LONG:
            texts[name] = text
        else:
            short[name] = value
    if texts:
        short["needs"].append("long")
    if (
        sum(map(len, texts.values())) > MOST_LONG_BYTES
        or sum(map(n_values, texts.values())) > MOST_VALUES
    ):
        raise _too_much()
    return short, {
        name: torch.frombuffer(bytearray(t), dtype=torch.uint8) for name, t in texts.items()
    }


def _encoded(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ModelFileError(
            "Texts of a model file must be of whole characters. One holds half of one: "
            f"{error.object[max(0, error.start - 20) : error.end + 20]!a}. Rename it."
        ) from error


def _too_much() -> ModelFileError:
    return ModelFileError(
        "Names, classes, categories and parameters of a model file must be at most "
        f"{MOST_LONG_BYTES // 2**20} MB of text, and {MOST_VALUES:,} values. This model has more. "
        "Shorten names, or leave out columns."
    )


def _described(memory: Memory, continuing: Mapping[str, Any]) -> dict[str, Any]:
    own = {"limit": memory.limit, "is_cut": memory.is_cut, "fitted": memory.fitted}
    return {**continuing, **own}


def _unprojected(features: FeatureMap) -> FeatureMap:
    """Without the basis, which only a bank needs."""
    return FeatureMap(features.mean, features.scale)


def _tensors_of(front: Front | None, kind: type[Front]) -> dict[str, Tensor]:
    return front.tensors() if isinstance(front, kind) else {}


def _tensors_of_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
