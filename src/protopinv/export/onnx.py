"""ONNX: plain tensors in and out, named as scikit-learn's converters name them.

Rows of numbers are one input, columns of a frame an input each.
"""

import json
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch.nn.functional import adaptive_avg_pool1d, avg_pool1d

from protopinv.errors import ExportError
from protopinv.export.description import Description
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    Convolve,
    Encode,
    Pick,
    Rise,
    Shift,
    Step,
    Sum,
    no_case,
)
from protopinv.objective import Classes, Labels
from protopinv.optional import require
from protopinv.tables import Category, Column, Date
from protopinv.tables.parts import DAYS_A_WEEK, Curve, Filled, Flag, Look, Part, Wave, Week
from protopinv.words import GAPS

# The oldest operator set that has all we use; runtimes since 2020 read it.
OPSET = 13
ML_OPSET = 2
IR_VERSION = 8
# What a graph answers with, and what is no name; a column that is called so gets another.
ANSWERS = frozenset(("label", "probabilities", "variable", ""))


def write_onnx(description: Description, producer: str) -> bytes:
    """The model as ONNX's message, checked."""
    onnx: Any = require("onnx", extra="export", why="Writing ONNX")
    helper, kinds, encode = onnx.helper, onnx.TensorProto, description.encode
    names = ["X"] if encode is None else _input_names(encode)
    graph = _Graph(onnx, frozenset(names))
    here, steps, opsets = "X", description.steps, [helper.make_opsetid("", OPSET)]
    inputs = [helper.make_tensor_value_info("X", kinds.FLOAT, ["N", description.model.n_features])]
    if encode is not None:
        types = {"category": kinds.STRING, "date": kinds.DOUBLE}
        inputs = [
            helper.make_tensor_value_info(name, types.get(column.kind, kinds.FLOAT), ["N", 1])
            for name, column in zip(names, encode.table.columns, strict=True)
        ]
        here, steps = _encode(graph, encode, names), steps[1:]
        opsets.append(helper.make_opsetid("ai.onnx.ml", ML_OPSET))
    for step in steps:
        here = _step(graph, step, here)
    outputs = _answer(graph, description, here)
    network = helper.make_graph(graph.nodes, "protopinv", inputs, outputs, graph.constants)
    model = helper.make_model(
        network,
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="protopinv",
        producer_version=producer,
    )
    helper.set_model_props(model, _metadata(description))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def _metadata(description: Description) -> dict[str, str]:
    """What the file says of itself, as JSON."""
    facts = {"task": description.model.task, "activation": description.model.network.activation}
    if description.model.used_names is not None:
        facts["feature_names"] = json.dumps(description.model.used_names)
    if description.labels is not None:
        facts["classes"] = json.dumps(description.labels)
    return {**facts, "opset": str(OPSET)}


class _Graph:
    """Nodes and constants, each under a name that no input has.

    An operator is a method: it adds a node and gives the name of its output. Inputs that are no
    names are constants, numbers in float32.
    """

    def __init__(self, onnx: Any, reserved: frozenset[str]) -> None:
        self.onnx, self.reserved = onnx, reserved
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def __getattr__(self, operator: str) -> Callable[..., str]:
        return partial(self.node, operator)

    def node(self, operator: str, *inputs: Any, output: str | None = None, **options: Any) -> str:
        """Add a node; gives the name of its output."""
        name = output or _free(f"{operator.lower()}_{len(self.nodes)}", self.reserved)
        places = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        node = self.onnx.helper.make_node(operator, places, [name], name=f"{name}_node", **options)
        self.nodes.append(node)
        return name

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a tensor of the file; gives its name."""
        name, array = _free(f"constant_{len(self.constants)}", self.reserved), np.asarray(value)
        kind = dtype or {"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array.astype(kind), name))
        return name


def _free(name: str, reserved: frozenset[str]) -> str:
    return _free(f"{name}_", reserved) if name in reserved else name


def _step(graph: _Graph, step: Step, here: str) -> str:
    """What a step makes of the tensor called ``here``."""
    match step:
        case Pick():
            return graph.Gather(here, step.columns, axis=1)
        case Shift():
            return graph.Sub(here, step.centre)
        case Bend():
            z = graph.Div(graph.Sub(here, step.centre), step.width)
            return graph.Where(step.chosen, _curve(graph, step.kind, z), here)
        case Rise():
            z = graph.Sub(graph.Gather(here, step.column, axis=1), step.low)
            rises = graph.Clip(graph.Div(z, step.high - step.low), 0.0, 1.0)
            return graph.Concat(graph.Gather(here, step.raw, axis=1), rises, axis=1)
        case Sum():
            ends = [
                reduce(lambda at, inner: _step(graph, inner, at), branch, here)
                for branch in step.branches
            ]
            return graph.Sum(*ends)
        case Affine():
            return _affine(graph, step, here)
        case Activate():
            return _activate(graph, step.name, here)
        case Convolve():
            return _convolve(graph, step, here)
    raise no_case("ONNX", step)


def _curve(graph: _Graph, kind: str, z: str) -> str:
    if kind == "squash":
        return graph.Asinh(z)
    z = graph.Clip(z, -1e6, 1e6)
    third = graph.Div(z, 3.0)
    return graph.Div(z, graph.Sqrt(graph.Add(graph.Mul(third, third), 1.0)))


def _affine(graph: _Graph, step: Affine, here: str) -> str:
    blocks, n_in, n_out = step.weight.shape
    if blocks == 1:
        return graph.Gemm(here, step.weight[0], *[step.bias] * step.has_bias)
    parts = graph.Transpose(graph.Reshape(here, [-1, blocks, n_in]), perm=[1, 0, 2])
    parts = graph.Transpose(graph.MatMul(parts, step.weight), perm=[1, 0, 2])
    return graph.Add(graph.Reshape(parts, [-1, blocks * n_out]), step.bias)


def _activate(graph: _Graph, name: str, z: str) -> str:
    if name == "silu":
        return graph.Mul(z, graph.Sigmoid(z))
    if name == "gelu":
        part = graph.Erf(graph.Mul(z, np.sqrt(0.5)))
        return graph.Mul(graph.Mul(z, graph.Add(part, 1.0)), 0.5)
    return graph.node(name.capitalize(), z)  # the others are operators


def _convolve(graph: _Graph, step: Convolve, here: str) -> str:
    filters, channels, size, _ = step.filters.shape
    if step.channels_last:
        maps = graph.Reshape(here, [-1, step.height, step.width, channels])
        maps = graph.Transpose(maps, perm=[0, 3, 1, 2])
    else:
        maps = graph.Reshape(here, [-1, channels, step.height, step.width])
    answers = graph.Conv(maps, step.filters, kernel_shape=[size, size])
    average = np.full((1, channels, size, size), 1 / (channels * size * size))
    mean, square = (
        graph.Conv(each, average, kernel_shape=[size, size])
        for each in (maps, graph.Mul(maps, maps))
    )
    variance = graph.Max(graph.Sub(square, graph.Mul(mean, mean)), 0.0)
    answers = graph.Div(answers, graph.Sqrt(graph.Add(variance, step.floor)))
    # averages over fields as products from both sides
    eyes = [torch.eye(side, dtype=torch.float64) for side in step.inner]
    down, across = (
        adaptive_avg_pool1d(eye, step.pool) if step.pool else avg_pool1d(eye, 2) for eye in eyes
    )
    mean, positive = (
        graph.MatMul(graph.MatMul(down.T, each), across) for each in (answers, graph.Relu(answers))
    )
    both = graph.Concat(positive, graph.Sub(positive, mean), axis=1)
    rows, columns = step.pooled
    return graph.Reshape(both, [-1, 2 * filters * rows * columns])


def _input_names(encode: Encode) -> list[str]:
    """The names of the columns; one that an answer has, too, ends in an underscore."""
    names = [column.name for column in encode.table.columns]
    reserved = ANSWERS.union(names)
    return [_free(f"{name}_", reserved) if name in ANSWERS else name for name in names]


def _encode(graph: _Graph, encode: Encode, names: list[str]) -> str:
    """All parts side by side, from an input for each column."""
    codes = [
        _code(graph, *column, name) for column, name in zip(encode.columns, names, strict=True)
    ]
    parts = [_part(graph, part, codes[column]) for column, part in encode.parts]
    return graph.Concat(*parts, axis=1)


def _code(graph: _Graph, column: Column, origin: float, name: str) -> str:
    """Numbers as they are, days since the origin, or places of categories."""
    if isinstance(column, Date):
        since = graph.Sub(name, graph.constant(origin, np.float64))
        return graph.Cast(since, to=graph.onnx.TensorProto.FLOAT)
    if not isinstance(column, Category):
        return name
    n, forms = len(column.values), (str.lower, str.upper, str.capitalize)
    words = sorted({"NaN", *(form(word) for word in GAPS for form in forms)})
    places = dict.fromkeys(words, n + 1)
    places |= {value: place for place, value in enumerate(column.values)}
    return graph.LabelEncoder(
        name,
        domain="ai.onnx.ml",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=n,
    )


def _part(graph: _Graph, part: Part, here: str) -> str:
    """What a part makes of a column."""
    if isinstance(part, Look):
        vectors = part.vectors
        return graph.Reshape(graph.Gather(vectors, here, axis=0), [-1, vectors.shape[1]])
    gap = graph.IsNaN(here)
    if isinstance(part, Flag):
        return graph.Cast(gap, to=graph.onnx.TensorProto.FLOAT)
    x = graph.Where(gap, [[part.middle]], here)
    match part:
        case Filled(centre=0.0, unit=1.0):
            return x
        case Filled():
            return graph.Div(graph.Sub(x, part.centre), part.unit)
        case Curve():
            # straight between levels: what every stretch adds, as far as it is passed
            lengths = np.diff(part.levels)
            slopes = np.diff(part.averages[:-1], axis=0) / lengths[:, None]
            passed = graph.Max(graph.Sub(x, part.levels[None, :-1]), [[0.0]])
            passed = graph.MatMul(graph.Min(passed, lengths[None]), slopes)
            return graph.Where(gap, part.averages[-1:], graph.Add(passed, part.averages[:1]))
        case Wave():
            turns = graph.Add(graph.Div(x, part.period), part.phase)
            angle = graph.Mul(graph.Sub(turns, graph.Floor(turns)), 2 * np.pi)
            return graph.Concat(graph.Sin(angle), graph.Cos(angle), axis=1)
        case Week():
            day, week = graph.Add(graph.Floor(x), float(part.first)), float(DAYS_A_WEEK)
            day = graph.Sub(day, graph.Mul(graph.Floor(graph.Div(day, week)), week))
            place = graph.Cast(day, to=graph.onnx.TensorProto.INT64)
            one = graph.Gather(np.eye(DAYS_A_WEEK), place, axis=0)
            return graph.Reshape(one, [-1, DAYS_A_WEEK])


def _answer(graph: _Graph, description: Description, here: str) -> list[Any]:
    """The outputs of the graph."""
    kinds, info = graph.onnx.TensorProto, graph.onnx.helper.make_tensor_value_info
    k, objective = description.n_outputs, description.model.objective
    if not isinstance(objective, Classes | Labels):
        if description.bounds is not None:
            low, high = description.bounds
            here = graph.Min(graph.Max(here, low), high)
        graph.Identity(here, output="variable")
        return [info("variable", kinds.FLOAT, ["N", k])]
    if isinstance(objective, Labels):
        graph.Sigmoid(here, output="probabilities")
        graph.Cast(graph.Greater(here, 0.0), output="label", to=kinds.INT64)
        label = info("label", kinds.INT64, ["N", k])
    else:
        graph.Softmax(here, output="probabilities", axis=1)
        labels = graph.constant(*_labels(objective))
        best = graph.ArgMax(here, axis=1, keepdims=0)
        graph.Gather(labels, best, output="label", axis=0)
        label = info("label", graph.constants[-1].data_type, ["N"])
    return [label, info("probabilities", kinds.FLOAT, ["N", k])]


def _labels(objective: Classes) -> tuple[Any, Any]:
    """Labels and their type as ONNX has it: text, booleans, whole numbers or float64."""
    labels = objective.labels
    if labels.dtype.kind == "u" and labels.max() > np.iinfo(np.int64).max:
        raise ExportError(
            f"Labels of ONNX must fit into 64 bits with a sign. {labels.max()} does not. Use "
            "smaller labels."
        )
    if labels.dtype.kind in "OU":
        return np.array([str(label) for label in labels.tolist()], dtype=object), object
    return labels, {"b": np.bool_, "i": np.int64, "u": np.int64}.get(labels.dtype.kind, np.float64)
