"""What a model file holds, by its header, its shapes and few of its numbers: no torch is needed."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from protopinv import tables
from protopinv.model_file.header import by_part, fitting_together, read_header

# What outputs are called, and where the objective of a task lists or counts them.
OUTPUTS = {
    "classification": ("classes", "classes"),
    "multi-label": ("labels", "n_labels"),
    "regression": ("targets", "centre"),
}
# Shapes of tensors, by their names within a part, and a tensor by its full name.
Shapes = Mapping[str, list[int]]
Read = Callable[[str], NDArray[Any]]


def summary(path: str | Path) -> dict[str, Any]:
    """Sizes, counts, settings and history; ModelFileError for what is no model file.

    It says what is in the file. Whether its numbers belong together is found out by ``load``.
    """
    path = Path(path)
    header = read_header(path)
    with fitting_together(path), safe_open(path, framework="numpy") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        return _facts(header, by_part(shapes), file.get_tensor)


def _facts(header: Mapping[str, Any], shapes: Mapping[str, Shapes], read: Read) -> dict[str, Any]:
    kind, where = OUTPUTS[header["task"]]
    outputs = header["objective"][where]
    layers, bank, memory = _layers(shapes["network"]), shapes["bank"], shapes["memory"]
    front, n_front = _front(shapes, read)
    named = {"": shapes} | {f"{n}.": by_part(own) for n, own in shapes.items() if n.isdigit()}
    models = list(named.values())
    if any(each["steps"] for each in models):
        n_front += 2 * math.prod(shapes["features"]["mean"])
    inputs, features = bank.get("inputs"), shapes["features"]
    return {
        "task": header["task"],
        kind: len(outputs) if where == "centre" else outputs,
        "target_names": header.get("target_names"),
        "feature_names": header["feature_names"],
        "columns": _columns(header.get("table"), shapes["table"], read),
        "layers": [layers[0][0] * layers[0][1], *(blocks * k for blocks, _, k in layers)],
        "activation": header["activation"],
        "front": front,
        "members": inputs and inputs[0],
        "prototypes": inputs and inputs[1],
        "projected_features": inputs and (features.get("basis") or features["mean"])[-1],
        "ridge": inputs and np.logaddexp(0, read("bank.raw_ridge")[0]).tolist(),
        "trained_numbers": inputs
        and sum(_n_trained(each["bank"], read, prefix) for prefix, each in named.items()),
        "ensemble": len(models),
        "shipped_numbers": n_front + sum(map(_n_shipped, models)),
        "memory_numbers": sum(map(math.prod, memory.values())) if memory else None,
        "history": {
            "member_loss": [],
            "fold_loss": [],
            **header["history"],
            **{name: read(f"history.{name}").tolist() for name in shapes["history"]},
        },
        "config": header["parameters"],
    }


def _layers(shapes: Shapes) -> list[tuple[int, int, int]]:
    """Blocks, inputs and outputs of every layer, however it is stored."""
    layers: list[tuple[int, int, int]] = []
    while (name := str(len(layers))) in shapes or f"{name}.left" in shapes:
        if name not in shapes:
            layers.append((1, shapes[f"{name}.left"][0], shapes[f"{name}.right"][1]))
            continue
        *blocks, d, k = shapes[name]
        has_bias_within = f"{name}.bias" not in shapes
        layers.append((math.prod(blocks), d - has_bias_within, k))
    return layers


def _n_shipped(shapes: Mapping[str, Shapes]) -> int:
    """Numbers of one model of an ensemble: its layers, and where its steps begin and end."""
    steps = {name: math.prod(shape) for name, shape in shapes["steps"].items()}
    before = sum(steps.get(name, 0) for name in ("low", "high", "inside"))
    return before + sum(blocks * (d + 1) * k for blocks, d, k in _layers(shapes["network"]))


def _n_trained(bank: Shapes, read: Read, prefix: str) -> int:
    ridges = ("raw_ridge", "learnable_ridge")
    matrices = sum(math.prod(shape) for name, shape in bank.items() if name not in ridges)
    return matrices + int(read(f"{prefix}bank.learnable_ridge").sum())


def _front(shapes: Mapping[str, Shapes], read: Read) -> tuple[str | None, int]:
    """What stands before the network, in words, and its numbers."""
    filters = [shape for name, shape in shapes["stem"].items() if name.endswith(".filters")]
    if filters:
        sizes = "-".join(str(shape[0]) for shape in filters)
        return f"stem of {sizes} filters", sum(math.prod(shape) + 1 for shape in filters)
    for part, verb in (("clip", "clipped"), ("squash", "squashed")):
        if shapes[part]:
            n_chosen = int(read(f"{part}.chosen").sum())
            return f"{verb} columns: {n_chosen}", 2 * n_chosen
    return None, 0


def _columns(described: Any, shapes: Shapes, read: Read) -> list[str] | None:
    if described is None:
        return None
    arrays = {name: read(f"table.{name}") for name in shapes}
    return str(tables.restored(described, arrays)).splitlines()
