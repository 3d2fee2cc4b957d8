"""Write a model file: a header of JSON, and tensors."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from protopinv import __version__, tables
from protopinv.errors import ConfigError, ModelFileError
from protopinv.features import FeatureMap
from protopinv.files import replacing, require_ending
from protopinv.model import Model, torch_ready
from protopinv.model_file.checking import FRONTS
from protopinv.model_file.examples import example_outputs, shareable
from protopinv.model_file.header import (
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
from protopinv.model_file.packing import pack, unpack
from protopinv.model_file.rules import DTYPES
from protopinv.plain import MOST_VALUES, n_values, plain
from protopinv.train.history import APART, COLUMNS

# Columns of a history are tensors: text would be longer, and a header has its limit.
EPOCHS = (*COLUMNS, "ridge", *APART)
# A value of the header whose text has more bytes is a tensor.
LONG_BYTES = 2**14


def save(
    model: Model,
    path: str | Path,
    *,
    bank: bool = True,
    dtype: str = "float64",
    examples: bool = False,
    memory: bool = True,
) -> None:
    """Write the file completely or not at all.

    Without the ``bank`` a model predicts, and cannot be trained further; without the ``memory`` it
    cannot learn from further rows. ``dtype`` is the number type of the network. Training rows are
    stored as ``examples`` only.
    """
    require_ending(Path(path), "a model file")
    if dtype not in DTYPES:
        raise ConfigError(
            f"The numbers of a model file must be {', '.join(DTYPES)}. Got {dtype!r}. "
            "Choose one of these."
        )
    if not bank:
        # only a bank needs the projection
        features = FeatureMap(model.features.mean, model.features.scale)
        model = replace(model, bank=None, features=features)
    if not (bank and memory):
        model = replace(model, memory=None, last_bank=None)
    model = shareable(model, examples=examples)
    history = _thinned(model.history.to_dict())
    header, long = _divided(_header(model, history, dtype))
    parts = {**_parts(model, history, dtype), LONG.removesuffix("."): long}
    values = parts["table"].get("values")
    if values is not None and n_values(values.numpy().tobytes()) > MOST_VALUES:
        raise _too_much()
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    content = safetensors_bytes(tensors, metadata={FORMAT: json.dumps(header, allow_nan=False)})
    if int.from_bytes(content[:8], "little") > MOST_HEADER_BYTES:
        raise _too_much()
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


def _header(model: Model, history: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """All that is no array, as plain JSON values."""
    memory = None
    if model.memory is not None:
        memory = {name: getattr(model, name) for name in ("n_frozen", "n_calls", "is_closed")}
        memory |= {name: getattr(model.memory, name) for name in ("limit", "is_cut", "fitted")}
    header = {
        "format": f"{MAJOR}.{MINOR}",
        "needs": [name for name in KNOWN_NEEDS if getattr(model, name, None) is not None],
        "written_by": f"protopinv {__version__}",
        "task": model.task,
        "objective": model.objective.describe(),
        "feature_names": model.feature_names,
        "target_names": model.target_names,
        "examples": "made-up" if model.made_up else "training",
        "image_range": model.image_range,
        "table": None if model.table is None else tables.described(model.table),
        "memory": memory,
        "activation": model.network.activation,
        "sharpness": model.calibration,
        "network_dtype": dtype,
        "parameters": model.parameters,
        "config": asdict(model.config),
        "history": {name: value for name, value in history.items() if name not in EPOCHS},
    }
    return {name: plain(value) for name, value in header.items()}


def _parts(model: Model, history: Mapping[str, Any], dtype: str) -> dict[str, Mapping[str, Tensor]]:
    """All arrays, by the part of the model they belong to."""
    packed = pack(model.network, model.features, dtype)
    network = unpack(packed, model.features, model.network.activation, dtype)
    if not all(bool(W.isfinite().all()) for W in network.weights):
        raise ConfigError(
            f"The weights of a model must fit into its type of number, which {dtype} is too "
            "small for. Use float64."
        )
    outputs = example_outputs(replace(model, network=network))
    is_finite = outputs.isfinite().all(1)
    rows = torch.from_numpy(np.ascontiguousarray(torch_ready(model.examples)))
    named = {name: getattr(model, name) for name in ("bank", "last_bank", "features", "memory")}
    named |= {n: model.front for n, kind in FRONTS.items() if isinstance(model.front, kind)}
    parts = {name: part.tensors() for name, part in named.items() if part is not None}
    table = {} if model.table is None else tables.arrays(model.table)
    return {
        **parts,
        "network": packed,
        "table": {n: torch.from_numpy(np.ascontiguousarray(array)) for n, array in table.items()},
        "examples": {"rows": rows[is_finite], "outputs": outputs[is_finite]},
        "history": {
            name: torch.tensor(history[name], dtype=torch.float64)
            for name in EPOCHS
            if history.get(name) or name not in APART
        },
    }


def _thinned(history: dict[str, Any]) -> dict[str, Any]:
    """Every so many epochs of a history that is longer than a file may have it."""
    epochs = {name: history[name] for name in EPOCHS if history[name]}
    n_numbers = sum(np.size(values[0]) * len(values) for values in epochs.values())
    every = -(-n_numbers // MOST_LISTED)
    if every <= 1:
        return history
    places = {name: history[name] for name in ("best_epoch", "kept_epoch")}
    return {
        **history,
        **{name: values[::every] for name, values in epochs.items()},
        **{name: place and place // every for name, place in places.items()},
    }


def _divided(header: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What stays in the header, and what is a tensor because it is long."""
    texts = {name: _encoded(value) for name, value in header.items() if name not in NEVER_LONG}
    long = {name: text for name, text in texts.items() if len(text) > LONG_BYTES}
    short = {name: value for name, value in header.items() if name not in long}
    if long:
        short["needs"].append("long")
    n_bytes, n_long = (sum(map(count, long.values())) for count in (len, n_values))
    if n_bytes > MOST_LONG_BYTES or n_long > MOST_VALUES:
        raise _too_much()
    return short, {n: torch.frombuffer(bytearray(t), dtype=torch.uint8) for n, t in long.items()}


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
