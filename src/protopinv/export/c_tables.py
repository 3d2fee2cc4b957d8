"""Columns of a table in C99: codes to numbers, and names of categories to codes."""

from typing import Any

import numpy as np

from protopinv.errors import ExportError
from protopinv.export.encode import Encode
from protopinv.export.text import c_numbers, c_string, comment
from protopinv.tables import Category, Column
from protopinv.tables.parts import Curve, Filled, Flag, Look, Part, Wave

FUNCTIONS = {
    "filled": """\
static float filled(float x, float middle)
{
    return x != x ? middle : x;
}
""",
    "curve": """\
/* Straight lines between the levels; the last averages are those of gaps. */
static void curve(float x, float *y, const float *levels, const float *averages, int n, int k)
{
    int i = 0;
    while (x == x && i < n && levels[i] <= x) {
        i++;
    }
    const float *above = averages + (x != x || i == n ? (x != x ? n : n - 1) : i) * k;
    const float *below = x != x || i == 0 ? above : averages + (i - 1) * k;
    const float share = below == above ? 0.0f : (x - levels[i - 1]) / (levels[i] - levels[i - 1]);
    for (int j = 0; j < k; j++) {
        y[j] = below[j] + share * (above[j] - below[j]);
    }
}
""",
    "look": """\
/* The vector of a category; the last but one is for any other, the last for gaps. */
static void look(float x, float *y, const float *vectors, int n, int k)
{
    const int place = x != x ? n + 1 : (x >= 0.0f && x < (float)n ? (int)x : n);
    for (int j = 0; j < k; j++) {
        y[j] = vectors[place * k + j];
    }
}
""",
    "wave": """\
static void wave(float x, float *y, float period, float phase)
{
    float turns = phase + x / period;
    turns = 6.28318530717958648f * (turns - floorf(turns));
    y[0] = sinf(turns);
    y[1] = cosf(turns);
}
""",
    "week": """\
static void week(float x, float *y, int first)
{
    const float day = floorf(x) + (float)first;
    for (int j = 0; j < 7; j++) {
        y[j] = day - 7.0f * floorf(day / 7.0f) == (float)j ? 1.0f : 0.0f;
    }
}
""",
}


def encode_calls(encode: Encode, there: str, constants: Any, used: set[str]) -> list[str]:
    """A call for every part."""
    calls, at = [], 0
    for number, (column, part) in enumerate(encode.parts):
        calls.append(_call(part, number, f"x[{column}]", f"{there} + {at}", constants, used))
        at += part.n_outputs
    return calls


def _call(part: Part, number: int, x: str, there: str, constants: Any, used: set[str]) -> str:
    if isinstance(part, Flag):
        return f"*({there}) = {x} != {x} ? 1.0f : 0.0f;"
    if isinstance(part, Look):
        used.add("look")
        vectors = constants.add(f"vectors_{number}", part.vectors, "float")
        return f"look({x}, {there}, {vectors}, {len(part.vectors) - 2}, {part.n_outputs});"
    if isinstance(part, Curve):
        used.add("curve")
        levels = constants.add(f"levels_{number}", part.levels, "float")
        averages = constants.add(f"averages_{number}", part.averages, "float")
        return f"curve({x}, {there}, {levels}, {averages}, {len(part.levels)}, {part.n_outputs});"
    used.add("filled")
    filled = f"filled({x}, {_number(part.middle)})"
    if isinstance(part, Filled):
        if (part.centre, part.unit) == (0.0, 1.0):
            return f"*({there}) = {filled};"
        return f"*({there}) = ({filled} - {_number(part.centre)}) / {_number(part.unit)};"
    if isinstance(part, Wave):
        used.add("wave")
        return f"wave({filled}, {there}, {_number(part.period)}, {_number(part.phase)});"
    used.add("week")
    return f"week({filled}, {there}, {part.first});"


def _number(value: float) -> str:
    return c_numbers(np.array([value])).strip()


def names_of_values(encode: Encode, name: str) -> tuple[str, int]:
    """A function from the text of a category to its code, and the bytes of its constants."""
    texts, cases, size = [], [], 0
    for number, column in enumerate(encode.table.columns):
        if not isinstance(column, Category):
            continue
        if any("\0" in value for value in column.values):
            raise ExportError(
                f"Values of a category end in C where they have a zero byte. One of "
                f"{column.name!r} has one. Export to another format, or rename it."
            )
        each = ",\n".join(f"    {c_string(value)}" for value in column.values)
        texts.append(
            f"static const char *const values_{number}[{len(column.values)}] = {{\n{each}\n}};\n"
        )
        size += sum(len(value.encode()) + 1 + 4 for value in column.values)
        cases.append(
            f"    case {number}:\n        values = values_{number};\n"
            f"        n = {len(column.values)};\n        break;\n"
        )
    if not texts:
        return "", 0
    return (
        "\n"
        + "".join(texts)
        + f"""
float {name}_code(int column, const char *text)
{{
    const char *const *values = 0;
    int n = 0;
    switch (column) {{
{"".join(cases)}    default:
        break;
    }}
    for (int i = 0; i < n; i++) {{
        const char *a = values[i], *b = text;
        while (*a != 0 && *a == *b) {{
            a++;
            b++;
        }}
        if (*a == *b) {{
            return (float)i;
        }}
    }}
    return -1.0f;
}}
"""
    ), size


def column_comment(number: int, column: Column, origin: float, name: str) -> str:
    """What is to be given for a column."""
    told = {
        "number": "a number",
        "category": f'a category: {name}_code({number}, "...")',
        "date": f"a date: days since {np.datetime64(int(origin), 'D')}",
    }[column.kind]
    return f" *   x[{number}] {comment(column.name)}: {told}"


def columns_comment(encode: Encode, name: str) -> str:
    """What a row is, and how categories are given."""
    lines = [
        column_comment(number, column, origin, name)
        for number, (column, origin) in enumerate(
            zip(encode.table.columns, encode.origins.tolist(), strict=True)
        )
    ]
    text = "/* A row, with NAN for what is missing:\n" + "\n".join(lines) + "\n */\n"
    if any(isinstance(column, Category) for column in encode.table.columns):
        text += f"""
/* The code of a category in UTF-8; -1 for one that was not there in training. */
float {name}_code(int column, const char *text);

"""
    return text
