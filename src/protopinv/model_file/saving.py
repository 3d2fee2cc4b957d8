"""Write a model file: a header of JSON, tensors, and rows to check and calibrate a network with.

Unless training rows are asked for, these are rows that nobody has seen.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save as safetensors_bytes
from torch import Generator, Tensor

from protopinv import __version__, tables
from protopinv.errors import ConfigError, ModelFileError
from protopinv.features import FeatureMap, Stem, TailTransform
from protopinv.files import replacing, require_ending
from protopinv.model import Model
from protopinv.model_file.consistency import FRONTS
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
from protopinv.model_file.packing import entry_of, pack, unpack
from protopinv.model_file.rules import DTYPES
from protopinv.network import Network
from protopinv.plain import MOST_VALUES, n_values, plain
from protopinv.tables import Category, Column
from protopinv.train.history import APART, COLUMNS
from protopinv.train.rows import as_tensor

# Columns of a history are tensors: text would be longer, and a header has its limit.
_EPOCHS = (*COLUMNS, "ridge", *APART)
# A value of the header whose text has more bytes is a tensor.
LONG_BYTES = 2**14
# Made-up rows, unless another number is asked for; all that are stored take no more bytes.
N_MADE_UP = 32
MOST_ROW_BYTES = 2**16
# Numbers of all made-up rows at most, however many are asked for.
MOST_MADE_UP = 2**25
# Noise on replayed rows, in standard deviations: those of a class with one row are too like it.
NOISE = 0.1
# Share of gaps in a column that had some.
SHARE_OF_GAPS = 0.125


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
        features = model.features
        if all(part.steps is None for part in model.parts):
            # only a bank, or steps, need the projection
            features = FeatureMap(features.mean, features.scale)
        model = replace(model, features=features)
        model = model.changed(lambda part: replace(part, bank=None))
    if not (bank and memory):
        model = model.changed(lambda part: replace(part, memory=None, last_bank=None))
    model = shareable(model, examples=examples)
    header, long = _divided(_header(model, dtype))
    parts = {**_tensors(model, dtype), LONG.removesuffix("."): long}
    values = parts["table"].get("values")
    if values is not None and n_values(values.numpy().tobytes()) > MOST_VALUES:
        raise _too_much()
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous().clone()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    content = safetensors_bytes(tensors, metadata={FORMAT: json.dumps(header, allow_nan=False)})
    if int.from_bytes(content[:8], "little") > MOST_HEADER_BYTES:
        raise _too_much()
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


def _header(model: Model, dtype: str) -> dict[str, Any]:
    """All that is no array, as plain JSON values."""
    memory = None
    if model.memory is not None:
        memory = {name: getattr(model, name) for name in ("n_frozen", "n_calls", "is_closed")}
        memory |= {name: getattr(model.memory, name) for name in ("limit", "is_cut", "fitted")}
    header = {
        "format": f"{MAJOR}.{MINOR}",
        "needs": _needs(model),
        "written_by": f"protopinv {__version__}",
        "task": model.task,
        "objective": model.objective.describe(),
        "feature_names": model.feature_names,
        "target_names": model.target_names,
        "examples": "made-up" if model.made_up else "training",
        "image_range": model.image_range,
        "table": None if model.table is None else tables.described(model.table),
        "memory": memory,
        "network_dtype": dtype,
        "parameters": model.parameters,
        **_own_header(model, len(model.parts)),
    }
    if model.others:
        counts = ("n_frozen", "n_calls")
        header["ensemble"] = [
            {
                **_own_header(other, len(model.parts)),
                **{name: getattr(other, name) for name in counts},
            }
            for other in model.others
        ]
    return {name: plain(value) for name, value in header.items()}


def _needs(model: Model) -> list[str]:
    """What a reader must know of to read the file."""
    has = {"ensemble": bool(model.others)}
    has["ngrams"] = bool(model.table and model.table.has_ngrams)
    has["steps"] = any(part.steps is not None for part in model.parts)
    has["last_bank"] = any(part.last_bank is not None for part in model.parts)
    return [n for n in KNOWN_NEEDS if has.get(n, getattr(model, n, None) is not None)]


def _own_header(model: Model, n_parts: int) -> dict[str, Any]:
    """What each model of an ensemble has for its own, as plain JSON values."""
    history = _thinned(model, n_parts)
    return {
        "activation": model.network.activation,
        "sharpness": model.calibration,
        "weight": model.weight,
        "config": asdict(model.config),
        "history": {name: value for name, value in history.items() if name not in _EPOCHS},
    }


def _tensors(model: Model, dtype: str) -> dict[str, Mapping[str, Tensor]]:
    """All arrays, by the part of the model they belong to."""
    packed = [_packed(part, dtype) for part in model.parts]
    pairs = list(zip(model.parts, packed, strict=True))
    first, *others = (replace(part, network=network) for part, (network, _) in pairs)
    outputs = example_outputs(first.joined(others))
    is_finite = outputs.isfinite().all(1)
    rows = as_tensor(model.examples)
    named = {name: getattr(model, name) for name in ("features", "memory")}
    named |= {n: model.front for n, kind in FRONTS.items() if isinstance(model.front, kind)}
    parts = {name: part.tensors() for name, part in named.items() if part is not None}
    table = {} if model.table is None else tables.arrays(model.table)
    own, *further = (_own_tensors(part, each, len(pairs)) for part, (_, each) in pairs)
    return {
        **parts,
        **own,
        "table": {n: torch.from_numpy(np.ascontiguousarray(array)) for n, array in table.items()},
        "examples": {"rows": rows[is_finite], "outputs": outputs[is_finite]},
        **{
            f"{number}.{name}": tensors
            for number, other in enumerate(further, start=1)
            for name, tensors in other.items()
        },
    }


def _packed(model: Model, dtype: str) -> tuple[Network, dict[str, Tensor]]:
    """The network as it will be read, and what is written of it."""
    network, packed = model.network, model.network.tensors()
    if dtype != "float64":
        entry = entry_of(model.features, model.steps)
        packed = pack(network, entry, dtype)
        network = unpack(packed, entry, network.activation, dtype)
    if not all(bool(W.isfinite().all()) for W in network.weights):
        raise ConfigError(
            f"The weights of a model must fit into its type of number, which {dtype} is too "
            "small for. Use float64."
        )
    return network, packed


def _own_tensors(
    model: Model, packed: Mapping[str, Tensor], n_parts: int
) -> dict[str, Mapping[str, Tensor]]:
    """The arrays that each model of an ensemble has for its own."""
    history = _thinned(model, n_parts)
    named = {name: getattr(model, name) for name in ("bank", "last_bank", "steps")}
    return {
        **{name: part.tensors() for name, part in named.items() if part is not None},
        "network": packed,
        "history": {
            name: torch.tensor(history[name], dtype=torch.float64)
            for name in _EPOCHS
            if history.get(name) or name not in APART
        },
    }


def _thinned(model: Model, n_parts: int) -> dict[str, Any]:
    """Every so many epochs of a history that is longer than a file of so many may have it."""
    history = model.history.to_dict()
    epochs = {name: history[name] for name in _EPOCHS if history[name]}
    n_numbers = sum(np.size(values[0]) * len(values) for values in epochs.values())
    every = -(-n_numbers * n_parts // MOST_LISTED)
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


def shareable(model: Model, *, examples: bool = False) -> Model:
    """The model with rows that may leave the process: made-up ones, unless ``examples``."""
    if not examples:
        return replace(model, examples=made_up(model).numpy(), made_up=True)
    if not len(model.examples):
        raise ConfigError(
            "examples=True takes training rows along. This model has none: its file or pickle had "
            "none, or a class was forgotten. Leave it out, or fit again."
        )
    return model


def example_outputs(model: Model) -> Tensor:
    """Outputs for the examples in float64, which need not be finite."""
    rows = model.examples
    # a stem works in float32
    return model.raw_outputs(rows if isinstance(model.front, Stem) else rows.astype(np.float64))


def made_up(model: Model, n: int | None = None) -> Tensor:
    """Rows like the examples, drawn from what the model knows of its columns.

    There are fewer than ``n`` if they are very long. They are in float32, or in float64 where that
    cannot hold them.

    Every column of a frame is drawn by itself between its limits. Rows of numbers are drawn from
    the replay memory, or from mean and scale of every feature where there is none.
    """
    if n is None:
        n = max(1, min(N_MADE_UP, MOST_ROW_BYTES // (4 * model.n_features)))
    n = min(n, max(N_MADE_UP, MOST_MADE_UP // model.n_features))
    generator, front = Generator().manual_seed(0), model.front
    if model.table is not None and not model.table.is_plain:
        columns = [_codes(column, n, generator) for column in model.table.columns]
        return _narrowed(torch.stack(columns, 1))
    low, high = model.image_range or (0.0, 1.0)
    if isinstance(front, Stem):
        return low + (high - low) * torch.rand(n, model.n_inputs, generator=generator)
    features = model.features
    if model.memory is None:
        noise = torch.randn(n, len(features.mean), generator=generator)
        rows = replace(features, basis=None).unproject(noise)
    else:
        drawn, _ = model.memory.drawn(n, generator)
        noise = NOISE * torch.randn(drawn.shape, generator=generator)
        rows = features.unproject((drawn + noise).to(features.mean))
    if isinstance(front, TailTransform):
        rows = front.restored(rows)
    return _narrowed(rows if model.image_range is None else rows.clamp(low, high))


def _narrowed(rows: Tensor) -> Tensor:
    """In float32 where it holds them; numbers that are too large for any type are its largest."""
    most = torch.finfo(torch.float64).max
    rows = rows.clamp(-most, most)
    fits = bool((rows.nan_to_num(0).abs() <= torch.finfo(torch.float32).max).all())
    return rows.float() if fits else rows


def _codes(column: Column, n: int, generator: Generator) -> Tensor:
    share, absent = torch.rand(2, n, generator=generator, dtype=torch.float64)
    if isinstance(column, Category):
        codes, has_gaps = (share * len(column.values)).floor(), column.gaps
    else:
        codes, has_gaps = column.low + (column.high - column.low) * share, column.flag
        if getattr(column, "boolean", False):
            codes = share.round()
    return torch.where(absent < SHARE_OF_GAPS, torch.nan, codes) if has_gaps else codes
