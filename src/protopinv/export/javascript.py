"""JavaScript: one ES module without dependencies, weights inside, ``predict(rows)`` outside.

A step or a part of a table becomes an object of its fields; what it does is a function of the same
name in the template.
"""

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from protopinv.errors import ExportError
from protopinv.export.description import Description
from protopinv.export.steps import Encode, Sum
from protopinv.export.text import js_array, js_value, rendered
from protopinv.tables import Category, Column, Date, Number, Text
from protopinv.tables.values import ISO
from protopinv.words import GAPS, PLAIN, pattern_of

# Larger whole numbers are not told apart.
EXACT = 2**53 - 1
# What strptime's directives are, as JavaScript reads them.
FORMS = {
    "%Y": r"(?<Y>\d{4})",
    "%m": r"(?<m>\d\d?)",
    "%b": r"(?<b>[a-z]{3})",
    "%d": r"(?<d>\d\d?)",
    "%H": r"(?<H>\d\d?)",
    "%I": r"(?<I>\d\d?)",
    "%M": r"(?<M>\d\d?)",
    "%S": r"(?<S>\d\d?)",
    "%p": r"(?<p>[ap]m)",
}
ISO_FORM = (
    r"(?<Y>\d{4})-(?<m>\d\d)-(?<d>\d\d)"
    r"(?:[T ](?<H>\d\d)(?::(?<M>\d\d)(?::(?<S>\d\d(?:\.\d+)?))?)?(?:Z|[+-]\d\d:?\d\d)?)?"
)


def write_javascript(
    description: Description, about: Sequence[str], *, shorter: bool = False
) -> str:
    """The module as text; ``shorter`` leaves a byte of every weight out, as ``js_array`` does."""
    labels, bounds, encode = description.labels, description.bounds, description.encode
    if any(type(label) is int and abs(label) > EXACT for label in labels or ()):
        raise ExportError(
            f"Labels of JavaScript must be whole numbers up to {EXACT}. One of this model is "
            "larger. Use smaller labels, or texts."
        )
    info = {
        "task": description.model.task,
        "activation": description.model.network.activation,
        "features": description.model.used_names,
        "outputs": description.n_outputs,
    }
    limits = {} if bounds is None else dict(zip(("low", "high"), bounds.tolist(), strict=True))
    return rendered(
        "protopinv.export",
        "model.mjs",
        about=about,
        task=description.model.task,
        info=js_value(info if labels is None else {**info, "classes": labels}),
        facts=js_value({"inputs": description.model.n_features, **limits}),
        steps=[js_step(step, shorter=shorter) for step in description.steps],
        columns=[] if encode is None else [_column(*column) for column in encode.columns],
        gaps=js_value(sorted(GAPS)),
    )


def js_step(step: Any, *, shorter: bool = False) -> str:
    """A step as the functions in the module take it: an object of its type and its fields."""
    if isinstance(step, Encode):
        parts = ",\n      ".join(_object(part, column=column) for column, part in step.parts)
        return f'{{ type: "encode", parts: [\n      {parts},\n    ] }}'
    if isinstance(step, Sum):
        branches = [
            "[" + ", ".join(js_step(each, shorter=shorter) for each in branch) + "]"
            for branch in step.branches
        ]
        joined = ",\n      ".join(branches)
        return f'{{ type: "sum", branches: [\n      {joined},\n    ] }}'
    return _object(step, shorter=shorter)


def _object(value: Any, *, shorter: bool = False, **others: int) -> str:
    parts = {each.name: getattr(value, each.name) for each in fields(value)}
    texts = {"type": js_value(type(value).__name__.lower())}
    for name, part in {**others, **parts}.items():
        array = np.asarray(part)
        if (array.ndim and array.dtype.kind == "f") or array.dtype == np.int8:
            # these are compared with values as they come, to the last digit
            wide = name in ("levels", "low", "high")
            texts[name] = js_array(array, wide=wide, shorter=shorter and name == "weight")
        else:
            texts[name] = js_value(array.tolist())
    return f"{{ {', '.join(f'{name}: {text}' for name, text in texts.items())} }}"


def _column(column: Column, origin: float) -> str:
    """What a page must know of a column: its kind, its values, and a usual one."""
    kind = "number" if isinstance(column, Text) else column.kind
    facts: dict[str, Any] = {"name": column.name, "kind": kind, "typical": column.typical}
    if isinstance(column, Category):
        facts |= {"values": list(column.values), "typical": column.values[column.common]}
    else:
        facts |= {"low": column.low, "high": column.high}
    if isinstance(column, Date):
        facts |= {"origin": origin, "form": _form(column.form)}
    if isinstance(column, Number) and column.form != PLAIN:
        facts["form"] = pattern_of(column.form).replace("(?P<", "(?<")
    return js_value(facts)


def _form(form: str) -> str:
    """A regular expression for dates of a form, a named group for each part."""
    if form == ISO:
        return ISO_FORM
    parts = re.split(r"(%\w)", form)
    return "".join(FORMS[part] if part in FORMS else re.escape(part) for part in parts)
