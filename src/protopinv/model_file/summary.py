"""What a model file holds, by its header, its shapes and few of its numbers: no torch is needed."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from protopinv import tables
from protopinv.model_file.header import DAMAGE, check_header, read_header, unfit

# What outputs are called, and where the objective of a task lists or counts them.
OUTPUTS = {
    "classification": ("classes", "classes"),
    "multi-label": ("labels", "n_labels"),
    "regression": ("targets", "centre"),
}


def summary(path: str | Path) -> dict[str, Any]:
    """Sizes, counts, settings and history; ModelFileError for what is no model file.

    It says what is in the file. Whether its numbers belong together is found out by ``load``.
    """
    path = Path(path)
    header = read_header(path)
    try:
        check_header(header)
        with safe_open(path, framework="numpy") as file:
            return _facts(header, _File(file))
    except (*DAMAGE, AttributeError, OSError, SafetensorError) as error:
        raise unfit(path, error) from error


class _File:
    """Tensors by the part they belong to; their shapes without their numbers."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.shapes: dict[str, list[int]] = {
            name: file.get_slice(name).get_shape()
            for name in file.keys()  # noqa: SIM118
        }

    def part(self, part: str) -> dict[str, list[int]]:
        """Shapes under the names they have within a part."""
        start = f"{part}."
        return {
            name.removeprefix(start): shape
            for name, shape in self.shapes.items()
            if name.startswith(start)
        }

    def numbers(self, name: str) -> NDArray[Any]:
        """A tensor."""
        found: NDArray[Any] = self._file.get_tensor(name)
        return found


def _facts(header: Mapping[str, Any], file: _File) -> dict[str, Any]:
    kind, where = OUTPUTS[header["task"]]
    outputs = header["objective"][where]
    layers, bank, memory = _layers(file.part("network")), file.part("bank"), file.part("memory")
    front, n_front = _front(file)
    inputs = bank.get("inputs")
    return {
        "task": header["task"],
        kind: len(outputs) if where == "centre" else outputs,
        "target_names": header.get("target_names"),
        "feature_names": header["feature_names"],
        "columns": _columns(header.get("table"), file),
        "layers": [layers[0][0] * layers[0][1], *(blocks * k for blocks, _, k in layers)],
        "activation": header["activation"],
        "front": front,
        "members": inputs and inputs[0],
        "prototypes": inputs and inputs[1],
        "projected_features": inputs and inputs[2],
        "ridge": inputs and np.logaddexp(0, file.numbers("bank.raw_ridge")[0]).tolist(),
        "trained_numbers": inputs and _trained(bank, file),
        "shipped_numbers": n_front + sum(blocks * (d + 1) * k for blocks, d, k in layers),
        "memory_numbers": sum(map(math.prod, memory.values())) if memory else None,
        "history": {
            "member_loss": [],
            "fold_loss": [],
            **header["history"],
            **{name: file.numbers(f"history.{name}").tolist() for name in file.part("history")},
        },
        "config": header["parameters"],
    }


def _layers(shapes: Mapping[str, list[int]]) -> list[tuple[int, int, int]]:
    """Blocks, inputs and outputs of every layer, however it is stored."""
    found: list[tuple[int, int, int]] = []
    while (name := str(len(found))) in shapes or f"{name}.left" in shapes:
        if name not in shapes:
            found.append((1, shapes[f"{name}.left"][0], shapes[f"{name}.right"][1]))
            continue
        *blocks, d, k = shapes[name]
        has_bias_within = f"{name}.bias" not in shapes
        found.append((math.prod(blocks), d - has_bias_within, k))
    return found


def _trained(bank: Mapping[str, list[int]], file: _File) -> int:
    ridges = ("raw_ridge", "learnable_ridge")
    matrices = sum(math.prod(shape) for name, shape in bank.items() if name not in ridges)
    return matrices + int(file.numbers("bank.learnable_ridge").sum())


def _front(file: _File) -> tuple[str | None, int]:
    """What stands before the network, in words, and its numbers."""
    filters = [shape for name, shape in file.part("stem").items() if name.endswith(".filters")]
    if filters:
        sizes = "-".join(str(shape[0]) for shape in filters)
        return f"stem of {sizes} filters", sum(math.prod(shape) + 1 for shape in filters)
    for part, verb in (("clip", "clipped"), ("squash", "squashed")):
        if file.part(part):
            chosen = int(file.numbers(f"{part}.chosen").sum())
            return f"{verb} columns: {chosen}", 2 * chosen
    return None, 0


def _columns(described: Any, file: _File) -> list[str] | None:
    if described is None:
        return None
    arrays = {name: file.numbers(f"table.{name}") for name in file.part("table")}
    return str(tables.restored(described, arrays)).splitlines()
