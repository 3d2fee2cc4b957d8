"""Columns of a table in ONNX: an input each, as scikit-learn's converters have them."""

from typing import Any

import numpy as np

from protopinv.export.encode import Encode
from protopinv.tables import Category, Date
from protopinv.tables.parts import (
    DAYS_A_WEEK,
    Curve,
    Filled,
    Flag,
    Look,
    Part,
    Wave,
    Week,
)
from protopinv.words import GAPS

# What a graph answers with, and what is no name; a column that is called so gets another.
ANSWERS = frozenset(("label", "probabilities", "variable", ""))


def input_names(encode: Encode) -> list[str]:
    """The names of the columns; one that an answer has, too, ends in an underscore."""
    names = [column.name for column in encode.table.columns]
    taken = {*ANSWERS, *names}

    def free(name: str) -> str:
        return free(f"{name}_") if name in taken else name

    return [free(name) if name in ANSWERS else name for name in names]


def encode_columns(graph: Any, encode: Encode) -> str:
    """All parts side by side, from an input for each column."""
    codes = [
        _code(graph, column, name, origin)
        for column, name, origin in zip(
            encode.table.columns, input_names(encode), encode.origins.tolist(), strict=True
        )
    ]
    parts = [_part(graph, part, codes[column]) for column, part in encode.parts]
    return str(graph.node("Concat", *parts, axis=1))


def _code(graph: Any, column: Any, name: str, origin: float) -> str:
    """Numbers as they are, days since the origin, or places of categories."""
    if isinstance(column, Date):
        since = graph.node("Sub", name, graph.constant(origin, np.float64))
        return str(graph.node("Cast", since, to=graph.onnx.TensorProto.FLOAT))
    if not isinstance(column, Category):
        return name
    n = len(column.values)
    places = dict.fromkeys(_gap_words(), n + 1)
    places |= {value: place for place, value in enumerate(column.values)}
    found = graph.node(
        "LabelEncoder",
        name,
        domain="ai.onnx.ml",
        keys_strings=list(places),
        values_int64s=list(places.values()),
        default_int64=n,
    )
    return str(found)


def _gap_words() -> list[str]:
    forms = (str.lower, str.upper, str.capitalize)
    return sorted({"NaN", *(form(word) for word in GAPS for form in forms)})


def _part(graph: Any, part: Part, here: str) -> str:
    """What a part makes of a column."""
    node, constant = graph.node, graph.constant
    if isinstance(part, Look):
        found = node("Gather", constant(part.vectors), here, axis=0)
        return str(node("Reshape", found, constant([-1, part.n_outputs], np.int64)))
    gap = node("IsNaN", here)
    if isinstance(part, Flag):
        return str(node("Cast", gap, to=graph.onnx.TensorProto.FLOAT))
    x = node("Where", gap, constant([[part.middle]]), here)
    if isinstance(part, Filled):
        if (part.centre, part.unit) == (0.0, 1.0):
            return str(x)
        return str(node("Div", node("Sub", x, constant(part.centre)), constant(part.unit)))
    if isinstance(part, Curve):
        return str(node("Where", gap, constant(part.averages[-1:]), _lines(graph, part, x)))
    if isinstance(part, Wave):
        turns = node("Add", node("Div", x, constant(part.period)), constant(part.phase))
        angle = node("Mul", node("Sub", turns, node("Floor", turns)), constant(2 * np.pi))
        return str(node("Concat", node("Sin", angle), node("Cos", angle), axis=1))
    return _week(graph, part, x)


def _lines(graph: Any, part: Curve, x: str) -> str:
    """Straight between levels: what every stretch adds, as far as it is passed."""
    node, constant = graph.node, graph.constant
    averages, lengths = part.averages[:-1], np.diff(part.levels)
    slopes = np.diff(averages, axis=0) / lengths[:, None]
    passed = node("Max", node("Sub", x, constant(part.levels[None, :-1])), constant([[0.0]]))
    passed = node("Min", passed, constant(lengths[None]))
    return str(node("Add", node("MatMul", passed, constant(slopes)), constant(averages[:1])))


def _week(graph: Any, part: Week, x: str) -> str:
    node, constant = graph.node, graph.constant
    day = node("Add", node("Floor", x), constant(part.first))
    weeks = node("Floor", node("Div", day, constant(DAYS_A_WEEK)))
    day = node("Sub", day, node("Mul", weeks, constant(DAYS_A_WEEK)))
    place = node("Cast", day, to=graph.onnx.TensorProto.INT64)
    found = node("Gather", constant(np.eye(DAYS_A_WEEK)), place, axis=0)
    return str(node("Reshape", found, constant([-1, DAYS_A_WEEK], np.int64)))
