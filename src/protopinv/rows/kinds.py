"""What the columns of a table in text hold, by every value that is there: numbers, truth or text.

A kind is found for each stretch of rows and joined over all of them, so that it does not depend on
where a file was cut.
"""

from typing import Any

import numpy as np

# What stands for true and false.
TRUTH = (["true", "True", "TRUE"], ["false", "False", "FALSE"])
DECIMAL_COMMA = r"^[ \t]*[+-]?\d+,\d+[ \t]*$"
DECIMAL_POINT = r"^[ \t]*[+-]?\d+\.\d+[ \t]*$"
# Kinds of a column as Arrow calls them; what no row has a value of is text to everybody else.
NOTHING, WHOLE, FLOAT, TRUE_OR_FALSE, TEXT = "null", "int64", "double", "bool", "string"


def joined(one: str, other: str) -> str:
    """The kind that holds the values of both."""
    if other in (one, NOTHING):
        return one
    if one == NOTHING:
        return other
    return FLOAT if {one, other} == {WHOLE, FLOAT} else TEXT


def kind_of(column: Any) -> str:
    """The kind of a column as pyarrow read it; numbers are finite, and dates are text."""
    import pyarrow.compute as pc

    kind = str(column.type)
    if kind == FLOAT:
        return FLOAT if pc.all(pc.is_finite(column)).as_py() else TEXT
    return kind if kind in (NOTHING, WHOLE, TRUE_OR_FALSE) else TEXT


def is_number(column: Any) -> bool:
    """Whether Arrow took a column for numbers."""
    return str(column.type) in (WHOLE, FLOAT)


def kind_of_text(column: Any) -> str:
    """The kind of a column of text: all numbers or not."""
    if column.null_count == len(column):
        return NOTHING
    return TEXT if as_floats(column) is None else FLOAT


def leading_zero(separator: str) -> str:
    """A pattern of bytes that hold something like 007, which is a name and no number."""
    return rf'(?:^|[\x{ord(separator):02x}\r\n"])[ \t]*[+-]?0[0-9xX]'


def has_leading_zero(column: Any) -> bool:
    """Whether a column of text has such a value."""
    import pyarrow.compute as pc

    zeros = pc.match_substring_regex(column, r"^[ \t]*[+-]?0[0-9xX]")
    return bool(pc.any(zeros).as_py())


def with_points(column: Any) -> Any:
    """Text with a point in each decimal that has a comma."""
    import pyarrow.compute as pc

    is_decimal = pc.match_substring_regex(column, DECIMAL_COMMA)
    point = pc.replace_substring(column, ",", ".", max_replacements=1)
    return pc.if_else(is_decimal, point, column)


def as_floats(column: Any) -> Any | None:
    """Text as numbers; None unless every value is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = pc.cast(pc.utf8_trim_whitespace(column), pa.float64())
    except pa.ArrowInvalid:
        return None
    finite = pc.all(pc.is_finite(numbers), min_count=0).as_py()
    return numbers if finite and not has_leading_zero(column) else None


def decimals(column: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many values of a column of text have a comma in their decimals, and how many a point."""
    import pyarrow.compute as pc

    counts = [
        pc.sum(pc.match_substring_regex(column, form), min_count=0).as_py()
        for form in (DECIMAL_COMMA, DECIMAL_POINT)
    ]
    return np.array(counts, dtype=np.int64)
