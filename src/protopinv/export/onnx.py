"""ONNX: plain tensors in and out, named as scikit-learn's converters name them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ExportError
from protopinv.export.description import Description
from protopinv.export.onnx_tables import encode_columns, input_names
from protopinv.export.steps import (
    Activate,
    Affine,
    Bend,
    ClassAnswer,
    Convolve,
    LabelAnswer,
    NumberAnswer,
    Pick,
    Shift,
    Step,
    pooling,
)
from protopinv.optional import require
from protopinv.tables import Column

# The oldest operator set that has all we use; runtimes since 2020 read it.
OPSET = 13
ML_OPSET = 2
IR_VERSION = 8
PLAIN = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "cos": "Cos"}


def write_onnx(description: Description, metadata: Mapping[str, str], producer: str) -> Any:
    """The model as ONNX's message, checked."""
    onnx: Any = require("onnx", extra="export", why="Writing ONNX")
    graph, encode = _Graph(onnx), description.encode
    helper, kinds = onnx.helper, onnx.TensorProto
    inputs = [helper.make_tensor_value_info("X", kinds.FLOAT, ["N", description.n_inputs])]
    here, steps = "X", description.steps
    if encode is not None:
        names = input_names(encode)
        inputs = [
            helper.make_tensor_value_info(name, _input_type(column, kinds), ["N", 1])
            for name, column in zip(names, encode.table.columns, strict=True)
        ]
        graph.reserved.update(names)
        here, steps = encode_columns(graph, encode), steps[1:]
    for step in steps:
        here = graph.step(step, here)
    outputs = graph.answer(description, here)
    whole = helper.make_graph(graph.nodes, "protopinv", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    if encode is not None:
        opsets.append(helper.make_opsetid("ai.onnx.ml", ML_OPSET))
    model = helper.make_model(
        whole,
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="protopinv",
        producer_version=producer,
    )
    for key, value in metadata.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    onnx.checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes and constants, each under a name of its own."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.reserved: set[str] = set()

    def node(self, operator: str, *inputs: str, output: str | None = None, **options: Any) -> str:
        """One more; gives the name of what it answers."""
        name = output or self._free(f"{operator.lower()}_{len(self.nodes)}")
        made = self.onnx.helper.make_node(
            operator, list(inputs), [name], name=f"{name}_node", **options
        )
        self.nodes.append(made)
        return name

    def _free(self, name: str) -> str:
        """A name that no column of a table has."""
        return self._free(f"{name}_") if name in self.reserved else name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A tensor of the file."""
        name = self._free(f"constant_{len(self.constants)}")
        array = np.asarray(value, dtype=dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def step(self, step: Step, here: str) -> str:
        """What a step makes of the tensor called ``here``."""
        if isinstance(step, Pick):
            return self.node("Gather", here, self.constant(step.columns, np.int64), axis=1)
        if isinstance(step, Shift):
            return self.node("Sub", here, self.constant(step.centre))
        if isinstance(step, Bend):
            return self._bend(step, here)
        if isinstance(step, Affine):
            return self._affine(step, here)
        if isinstance(step, Activate):
            return self._activate(step, here)
        if isinstance(step, Convolve):
            return self._convolve(step, here)
        raise ExportError(
            f"ONNX can hold the steps it knows. {type(step).__name__} is none of them. Export to "
            "another format."
        )

    def _bend(self, step: Bend, here: str) -> str:
        """The curve for all columns, of which only those chosen are taken."""
        chosen = np.zeros(step.n_inputs, dtype=bool)
        chosen[step.columns] = True
        centre, width = np.zeros(step.n_inputs), np.ones(step.n_inputs)
        centre[step.columns], width[step.columns] = step.centre, step.width
        shifted = self.node("Sub", here, self.constant(centre))
        z = self.node("Div", shifted, self.constant(width))
        if step.kind == "squash":
            bent = self.node("Asinh", z)
        else:
            z = self.node("Clip", z, self.constant(-1e6), self.constant(1e6))
            part = self.node("Div", z, self.constant(3.0))
            square = self.node("Mul", part, part)
            root = self.node("Sqrt", self.node("Add", square, self.constant(1.0)))
            bent = self.node("Div", z, root)
        return self.node("Where", self.constant(chosen, np.bool_), bent, here)

    def _affine(self, step: Affine, here: str) -> str:
        blocks, n_in, n_out = step.weights.shape
        if blocks == 1:
            bias = [self.constant(step.bias)] if step.has_bias else []
            return self.node("Gemm", here, self.constant(step.weights[0]), *bias)
        parts = self._reshaped(here, (-1, blocks, n_in))
        parts = self.node("Transpose", parts, perm=[1, 0, 2])
        found = self.node("MatMul", parts, self.constant(step.weights))
        found = self.node("Transpose", found, perm=[1, 0, 2])
        found = self._reshaped(found, (-1, blocks * n_out))
        return self.node("Add", found, self.constant(step.bias))

    def _reshaped(self, here: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", here, self.constant(list(shape), np.int64))

    def _activate(self, step: Activate, here: str) -> str:
        if step.name in PLAIN:
            return self.node(PLAIN[step.name], here)
        if step.name == "identity":
            return here
        if step.name == "silu":
            return self.node("Mul", here, self.node("Sigmoid", here))
        if step.name == "gelu":
            part = self.node("Erf", self.node("Mul", here, self.constant(np.sqrt(0.5))))
            twice = self.node("Mul", here, self.node("Add", part, self.constant(1.0)))
            return self.node("Mul", twice, self.constant(0.5))
        raise ExportError(
            f"ONNX can hold the activations it knows. {step.name!r} is none of them. Export to "
            "another format."
        )

    def _convolve(self, step: Convolve, here: str) -> str:
        c, h, w, size = step.channels, step.height, step.width, step.size
        if step.channels_last:
            maps = self.node("Transpose", self._reshaped(here, (-1, h, w, c)), perm=[0, 3, 1, 2])
        else:
            maps = self._reshaped(here, (-1, c, h, w))
        answers = self.node("Conv", maps, self.constant(step.filters), kernel_shape=[size, size])
        average = self.constant(np.full((1, c, size, size), 1 / (c * size * size)))
        mean = self.node("Conv", maps, average, kernel_shape=[size, size])
        squares = self.node("Mul", maps, maps)
        square = self.node("Conv", squares, average, kernel_shape=[size, size])
        variance = self.node("Sub", square, self.node("Mul", mean, mean))
        variance = self.node("Max", variance, self.constant(0.0))
        contrast = self.node("Sqrt", self.node("Add", variance, self.constant(step.floor)))
        answers = self.node("Div", answers, contrast)
        down, across = (
            pooling(windows, side)
            for windows, side in zip((step.rows, step.columns), step.inner, strict=True)
        )
        pools = self.constant(down), self.constant(across.T)
        whole, positive = (
            self.node("MatMul", self.node("MatMul", pools[0], each), pools[1])
            for each in (answers, self.node("Relu", answers))
        )
        negative = self.node("Sub", positive, whole)
        both = self.node("Concat", positive, negative, axis=1)
        return self._reshaped(both, (-1, step.n_outputs))

    def answer(self, description: Description, here: str) -> list[Any]:
        """The outputs of the graph."""
        answer, kinds = description.answer, self.onnx.TensorProto
        info = self.onnx.helper.make_tensor_value_info
        k = answer.n_outputs
        if isinstance(answer, NumberAnswer):
            if answer.low is not None and answer.high is not None:
                here = self.node("Max", here, self.constant(answer.low))
                here = self.node("Min", here, self.constant(answer.high))
            self.node("Identity", here, output="variable")
            return [info("variable", kinds.FLOAT, ["N", k])]
        if isinstance(answer, LabelAnswer):
            self.node("Sigmoid", here, output="probabilities")
            there = self.node("Greater", here, self.constant(0.0))
            self.node("Cast", there, output="label", to=kinds.INT64)
            label = info("label", kinds.INT64, ["N", k])
        else:
            self.node("Softmax", here, output="probabilities", axis=1)
            best = self.node("ArgMax", here, axis=1, keepdims=0)
            labels, kind = _labels(answer, kinds)
            name = self._free(f"constant_{len(self.constants)}")
            self.constants.append(
                self.onnx.helper.make_tensor(name, kind, [k], labels)
                if kind == kinds.STRING
                else self.onnx.numpy_helper.from_array(labels, name)
            )
            self.node("Gather", name, best, output="label", axis=0)
            label = info("label", kind, ["N"])
        return [label, info("probabilities", kinds.FLOAT, ["N", k])]


def _input_type(column: Column, kinds: Any) -> int:
    """Text for categories, days in double precision for dates, and numbers."""
    types = {"category": kinds.STRING, "date": kinds.DOUBLE, "number": kinds.FLOAT}
    return int(types[column.kind])


def _labels(answer: ClassAnswer, kinds: Any) -> tuple[Any, int]:
    """Labels as ONNX takes them: whole numbers, booleans, floats or texts."""
    labels: NDArray[Any] = answer.labels
    if labels.dtype.kind in "OU":
        return [str(label).encode() for label in labels.tolist()], kinds.STRING
    if labels.dtype.kind == "b":
        return labels.astype(np.bool_), kinds.BOOL
    if labels.dtype.kind in "iu":
        if labels.dtype.kind == "u" and labels.max() > np.iinfo(np.int64).max:
            raise ExportError(
                f"Labels of ONNX must fit into 64 bits with a sign. {labels.max()} does not. Use "
                "smaller labels."
            )
        return labels.astype(np.int64), kinds.INT64
    return labels.astype(np.float64), kinds.DOUBLE
