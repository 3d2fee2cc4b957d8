"""Files whose parts are sound one by one and do not belong together are refused at once.

Each of these loaded, and then ended in a traceback, a wrong answer or gigabytes in a later stage.
"""

import json
import struct
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.damage import kinds
from protopinv import load
from protopinv.errors import ExportError, ModelFileError
from protopinv.model_file.summary import summary

TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I8": "i1", "U8": "u1", "BOOL": "?"}
NAMES = {np.dtype(kind): name for name, kind in TYPES.items()}
Tensors = dict[str, np.ndarray]


@cache
def contents() -> dict[str, bytes]:
    return kinds()


def taken_apart(content: bytes) -> tuple[dict[str, Any], Tensors]:
    """Our header, and all tensors."""
    (length,) = struct.unpack("<Q", content[:8])
    outer, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header = json.loads(outer.pop("__metadata__")["protopinv"])
    return header, {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], TYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
        for name, entry in outer.items()
    }


def written(path: Path, header: dict[str, Any], tensors: Tensors) -> Path:
    outer: dict[str, Any] = {"__metadata__": {"protopinv": json.dumps(header)}}
    at = 0
    for name, tensor in tensors.items():
        size = tensor.nbytes
        outer[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape)}
        outer[name]["data_offsets"] = [at, at + size]
        at += size
    text = json.dumps(outer).encode()
    body = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def test_a_file_that_is_put_together_again_loads(tmp_path: Path) -> None:
    for content in contents().values():
        load(written(tmp_path / "m.safetensors", *taken_apart(content)))


def header_value(*path: str | int, to: Any) -> Callable[[dict[str, Any], Tensors], None]:
    def change(header: Any, _: Tensors) -> None:
        *above, last = path
        for name in above:
            header = header[name]
        header[last] = to

    return change


def tensor(name: str, to: Callable[[np.ndarray], Any]) -> Callable[[dict[str, Any], Tensors], None]:
    def change(_: dict[str, Any], tensors: Tensors) -> None:
        tensors[name] = np.ascontiguousarray(to(tensors[name]))

    return change


def renamed(old: str, new: str) -> Callable[[dict[str, Any], Tensors], None]:
    def change(_: dict[str, Any], tensors: Tensors) -> None:
        tensors[new] = tensors.pop(old)

    return change


def more(name: str, value: np.ndarray) -> Callable[[dict[str, Any], Tensors], None]:
    return lambda _, tensors: tensors.update({name: value})


DAMAGE: dict[str, tuple[str, Callable[[dict[str, Any], Tensors], None], str]] = {
    "calls below zero": (
        "memory",
        header_value("memory", "n_calls", to=-1),
        "memory.n_calls is -1",
    ),
    "a ridge of zero": (
        "memory",
        tensor("bank.raw_ridge", lambda raw: np.full_like(raw, -1e4)),
        "a ridge of the bank is rounded to zero",
    ),
    "calls as text": ("memory", header_value("memory", "n_calls", to="3"), "memory.n_calls is '3'"),
    "frozen as a list": (
        "memory",
        header_value("memory", "n_frozen", to=[1]),
        "memory.n_frozen is",
    ),
    "frozen beyond all": ("memory", header_value("memory", "n_frozen", to=99), "more frozen"),
    "closed as a number": ("memory", header_value("memory", "is_closed", to=1), "is_closed is 1"),
    "a limit below zero": ("memory", header_value("memory", "limit", to=-5), "memory.limit is -5"),
    "fitted on infinity": ("memory", header_value("memory", "fitted", to="inf"), "fitted is 'inf'"),
    "a memory of nothing": (
        "memory",
        tensor("memory.mean", lambda mean: mean[:0]),
        "scatter of the memory is of another size",
    ),
    "half a scatter": ("memory", tensor("memory.scatter", lambda s: s[:, :-1]), "of another size"),
    "groups of nobody": (
        "memory",
        tensor("memory.group", lambda g: g + 90),
        "groups that the model",
    ),
    "rows beyond counting": ("memory", tensor("memory.rows", lambda rows: rows * 1e20), "counted"),
    "masses beyond adding": ("memory", tensor("memory.mass", lambda m: m * 0 + 1e308), "counted"),
    "a mass of next to nothing": (
        "memory",
        tensor("memory.mass", lambda mass: mass * 1e-320),
        "too large to be drawn from",
    ),
    "tails beyond drawing": (
        "table",
        tensor("memory.tail_scatter", lambda tails: tails * 0 + 1.7e308),
        "too large to be drawn from",
    ),
    "classes with digits": (
        "floats",
        header_value("objective", "classes", to=[0.0, 1.5, 2.0]),
        "digits after the point",
    ),
    "a memory without words": ("memory", header_value("memory", to=None), "half a memory"),
    "a bound that is no number": (
        "bounds",
        header_value("objective", "low", to=["nan"]),
        "objective.low is .*, not a list of numbers, or null",
    ),
    "bounds the wrong way": (
        "bounds",
        header_value("objective", "low", to=[1e9]),
        "above the upper",
    ),
    "one bound": ("bounds", header_value("objective", "low", to=None), "or is missing"),
    "a spread of zero": (
        "bounds",
        header_value("objective", "spread", to=[0.0]),
        "positive numbers",
    ),
    "two centres": ("bounds", header_value("objective", "centre", to=[0.0, 1.0]), "other targets"),
    "a column of two": (
        "several bounds",
        header_value("objective", "is_column", to=True),
        "2 targets in a single column",
    ),
    "labels without a number": (
        "memory of labels",
        header_value("objective", "n_labels", to="2"),
        "n_labels is '2', not a whole number",
    ),
    "classes out of order": (
        "memory",
        header_value("objective", "classes", to=[2, 1, 0]),
        "not in order",
    ),
    "numbers as texts": (
        "texts",
        header_value("objective", "classes", to=[1, 2, 3, 4, 5]),
        "not all texts",
    ),
    "targets of nobody": (
        "bounds",
        header_value("target_names", to=["a", "b"]),
        "names of targets",
    ),
    "another activation": (
        "memory",
        header_value("config", "activation", to="tanh"),
        "for a network",
    ),
    "an activation that is none": ("memory", header_value("activation", to=[]), "activation is"),
    "other layers": ("memory", header_value("config", "hidden_sizes", to=[7]), "of other layers"),
    "images of a table": ("memory", header_value("config", "image_shape", to=[9, 9]), "81 numbers"),
    "a stem for numbers": (
        "stem with memory",
        header_value("config", "image_shape", to=None),
        "no images",
    ),
    "a stem for other images": (
        "stem with memory",
        header_value("config", "image_shape", to=[4, 16]),
        "other im",
    ),
    "verbose as text": ("memory", header_value("parameters", "verbose", to="loud"), "verbose must"),
    "weights of a word": (
        "memory",
        header_value("parameters", "class_weight", to="x"),
        "class_weight",
    ),
    "a seed below zero": (
        "memory",
        header_value("parameters", "random_state", to=-1),
        "parameters.random_state is -1, not a seed",
    ),
    "columns as a number": (
        "table",
        header_value("parameters", "columns", to=3),
        "parameters.columns is 3, not an object",
    ),
    "bounded as text": (
        "bounds",
        header_value("parameters", "bounded", to="no"),
        "bounded must be",
    ),
    "no room at all": ("memory", header_value("parameters", "memory", to=-3), "memory must be"),
    "seconds without end": (
        "memory",
        header_value("history", "seconds", to=10**400),
        "seconds is 1",
    ),
    "a kept epoch of text": (
        "memory",
        header_value("history", "kept_epoch", to="1"),
        "kept_epoch is",
    ),
    "epochs that differ": (
        "memory",
        tensor("history.lr", lambda rates: rates[:-1]),
        "epochs in lr",
    ),
    "a flat ridge": (
        "memory",
        tensor("history.ridge", lambda ridge: ridge[:, 0]),
        "no list an epoch",
    ),
    "layers of the bank": (
        "memory",
        renamed("bank.hidden.0", "bank.hidden.3"),
        "one after another",
    ),
    "banks of two types": (
        "memory",
        tensor("bank.hidden.0", lambda hidden: hidden.astype("f8")),
        "not of one type of number",
    ),
    "another type than it says": (
        "bounds, float16",
        header_value("network_dtype", to="float32"),
        "not all its layers in float32",
    ),
    "a layer too many": ("memory", more("network.7", np.zeros((2, 2))), "not all its layers"),
    "two fronts": (
        "several bounds",
        lambda _, tensors: tensors.update(
            {name.replace("squash", "clip"): t for name, t in tensors.items() if "squash" in name}
        ),
        "more than one kind of thing",
    ),
    "a table without words": ("table", header_value("table", to=None), "half a table"),
    "other names": ("table", lambda h, _: h["feature_names"].reverse(), "not those of the table"),
    "steps that fall": (
        "stepped",
        tensor("steps.high", lambda high: high - 100),
        "steps that do not rise",
    ),
    "steps of no size": ("stepped", tensor("steps.scale", lambda s: s * 0), "do not rise"),
    "steps at infinity": ("stepped", tensor("steps.high", lambda h: h * np.inf), "not finite"),
    "steps beyond the columns": (
        "stepped",
        tensor("steps.column", lambda column: column + 90),
        "steps of columns that are not there",
    ),
    "raw numbers beyond the columns": (
        "ensemble",
        tensor("1.steps.raw", lambda raw: raw - 1),
        "steps of columns that are not there",
    ),
    "raw numbers out of order": (
        "stepped-and-clipped",
        tensor("steps.raw", lambda raw: raw[::-1]),
        "not in the order of their columns",
    ),
    "a raw number twice": (
        "stepped-and-clipped",
        tensor("steps.raw", lambda raw: raw.clip(1)),
        "not in the order of their columns",
    ),
    "half of the steps": (
        "stepped",
        tensor("steps.low", lambda low: low[:-1]),
        "must fit together",
    ),
    "a step too few": (
        "stepped-and-clipped",
        tensor("steps.raw", lambda raw: raw[:-1]),
        "the steps and the network differ in features",
    ),
    "steps behind other directions": (
        "cut-steps",
        tensor("steps.inside", lambda inside: inside[:-1]),
        "steps behind other directions",
    ),
    "directions of infinity": (
        "cut-steps",
        tensor("steps.inside", lambda inside: inside * np.nan),
        "not finite",
    ),
    "steps that nobody asked for": (
        "stepped",
        header_value("config", "number_encoding", to="raw"),
        "steps of numbers that are raw",
    ),
    "a weight of zero": ("ensemble", header_value("weight", to=0), "weight is 0, not a positive"),
    "a weight as text": (
        "ensemble",
        header_value("ensemble", 0, "weight", to="1"),
        "ensemble 1.weight is '1', not a positive",
    ),
    "a weight beyond all numbers": (
        "ensemble",
        header_value("weight", to=1.7e308),
        "weight is 1.7e[+]308, not a positive number",
    ),
    "an ensemble as an object": (
        "ensemble",
        header_value("ensemble", to={"1": {}}),
        "ensemble is .*, not a list of objects",
    ),
    "further models of no tensors": (
        "ensemble",
        lambda header, _: header["ensemble"].append(header["ensemble"][0]),
        "further models that are not described, or have no tensors",
    ),
    "further models of no words": (
        "ensemble",
        header_value("ensemble", to=[]),
        "further models that are not described, or have no tensors",
    ),
    "a further model of nothing": (
        "ensemble",
        header_value("ensemble", 0, to={}),
        "ensemble 1.activation is missing",
    ),
    "a further model of another type": (
        "ensemble-int8",
        tensor("1.network.1", lambda W: W.astype("f4")),
        "not all its layers in int8",
    ),
    "a further model with other outputs": (
        "ensemble-int8",
        lambda _, tensors: tensors.update(
            {
                name: np.ascontiguousarray(tensors[name][..., :-1])
                for name in ("1.network.1", "1.network.1.bias", "1.network.1.scale")
            }
        ),
        "1 outputs for 2 targets",
    ),
    "a further model with another activation": (
        "ensemble",
        header_value("ensemble", 0, "activation", to="tanh"),
        "for a network",
    ),
    "a further model with epochs of its own": (
        "ensemble",
        tensor("1.history.lr", lambda rates: rates[:-1]),
        "epochs in lr",
    ),
    "a further model that is frozen beyond all": (
        "ensemble",
        header_value("ensemble", 0, "n_frozen", to=99),
        "more frozen",
    ),
    "a further model that learned less than none": (
        "ensemble",
        header_value("ensemble", 0, "n_calls", to=-1),
        "ensemble 1.n_calls is -1",
    ),
    "a further model without its steps": (
        "ensemble",
        lambda _, tensors: [tensors.pop(n) for n in list(tensors) if n.startswith("1.steps.")],
        "must fit together",
    ),
    "examples of infinity": ("clip", tensor("examples.rows", lambda r: r * np.inf), "not finite"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_belong_together_is_refused_at_once(name: str, tmp_path: Path) -> None:
    kind, change, message = DAMAGE[name]
    header, tensors = taken_apart(contents()[kind])
    change(header, tensors)
    path = written(tmp_path / "m.safetensors", header, tensors)
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_a_memory_of_no_parts_takes_no_memory(tmp_path: Path) -> None:
    header, tensors = taken_apart(contents()["memory"])
    r = 20_000
    tensors["memory.mean"], tensors["memory.scatter"] = np.zeros((0, r)), np.zeros((0, r))
    path = written(tmp_path / "m.safetensors", header, tensors)
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="of another size than its means"):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_blocks_that_stand_for_a_huge_matrix_are_not_written_out(tmp_path: Path) -> None:
    header, tensors = taken_apart(contents()["members"])
    for name in [name for name in tensors if name.startswith(("bank.", "memory."))]:
        del tensors[name]
    blocks, n = 10_000, tensors["features.mean"].shape[0]
    tensors["network.0"] = np.zeros((n + 1, blocks))
    tensors["network.1"] = np.zeros((blocks, 2, 1))
    tensors["network.2"] = np.zeros((blocks + 1, tensors.pop("network.3").shape[1]))
    tensors["examples.outputs"] = np.zeros_like(tensors["examples.outputs"])
    tensors.pop("features.basis", None)
    header |= {"memory": None, "activation": "relu"}
    header["config"]["activation"] = "relu"
    model = load(written(tmp_path / "m.safetensors", header, tensors))
    with pytest.raises(ExportError, match="would become one of 100,000,000 numbers"):
        model.to_sklearn()


def test_what_a_terminal_obeys_is_shown_as_it_is_written(tmp_path: Path) -> None:
    evil = "\x1b[31mred\u202e"
    for change in (
        header_value("task", to=evil),
        header_value("network_dtype", to=evil),
        header_value("activation", to=evil),
        header_value("written_by", to=evil),
        header_value("needs", to=[evil]),
        header_value("history", "ending", to=evil),
        header_value("objective", "classes_dtype", to=evil),
        header_value("parameters", "lr", to=evil),
        header_value("parameters", "device", to=evil),
        header_value("parameters", evil, to=evil),
        header_value("config", "dtype", to=evil),
        more(f"bank.{evil}", np.zeros(1)),
    ):
        header, tensors = taken_apart(contents()["memory"])
        header["format"] = "1.0"
        change(header, tensors)
        path = written(tmp_path / "m.safetensors", header, tensors)
        for look in (load, summary):
            try:
                look(path)
            except ModelFileError as error:
                text = str(error)
                assert "\x1b" not in text
                assert "\u202e" not in text


def test_whole_numbers_and_huge_ones_where_numbers_belong_are_of_use(tmp_path: Path) -> None:
    """A factor beyond 64 bits is one all the same, and weights that overflow are no factors."""
    header, tensors = taken_apart(contents()["stepped"])
    header["sharpness"] = 10**20
    assert load(written(tmp_path / "m.safetensors", header, tensors)).model_.calibration == 1e20
    header, tensors = taken_apart(contents()["cut-steps"])
    weights = tensors["network.0"].copy()
    weights[1] = 1e308
    tensors["network.0"] = weights
    tensors["examples.rows"] = tensors["examples.rows"][:0]
    tensors["examples.outputs"] = tensors["examples.outputs"][:0]
    model = load(written(tmp_path / "m.safetensors", header, tensors))
    with pytest.raises(ExportError, match="holds numbers of float32"):
        model.export(tmp_path / "m.c")
