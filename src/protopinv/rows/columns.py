"""Columns of Arrow as numpy has them: features, targets and weights, or what is wrong with them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.source import Block
from protopinv.rows.targets import without_blanks
from protopinv.words import number_of


class Place:
    """Where rows are, for messages; rows are counted from 1, as people count."""

    def __init__(self, block: Block, done: int) -> None:
        self.file = block.file
        self._first = block.first + done

    def row(self, number: int) -> str:
        """The number of a row in its file, from its place in a batch."""
        return f"{self._first + number + 1:,}"


def of_text(field: Any) -> Any:
    """Text as text, however it is stored."""
    import pyarrow as pa

    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        kind = pa.string()
    return pa.field(field.name, kind)


def is_number(kind: str) -> bool:
    """Whether a column is one to Arrow; Booleans are."""
    return kind == "bool" or kind.startswith(("int", "uint", "float", "double", "half", "decimal"))


def labels_of(column: Any, name: str, place: Place) -> NDArray[Any]:
    """Targets as numpy has them; text without blanks around it."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if str(of_text(pa.field(name, column.type)).type) == "string":
        column = without_blanks(column)
    if column.null_count:
        at = place.row(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise DataError(
            f"Every row needs a target. Column {name!r} of {place.file} is empty in row {at}. "
            "Fill it or drop the row."
        )
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels


def numbers_of(column: Any, name: str, place: Place, rule: str) -> NDArray[Any]:
    """A column as numbers, true as 1; raises DataError for text and for gaps."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        row, value = _first_text(column)
        raise DataError(
            f"{rule}. Column {name!r} of {place.file} holds {kind} values such as {value!r:.60} "
            f"in row {place.row(row)}. Encode it as numbers, or drop it."
        )
    if column.null_count:
        at = place.row(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise DataError(
            f"{rule.removesuffix('numbers')}finite numbers. Column {name!r} of {place.file} is "
            f"empty in row {at}. Fill the gap or drop the row."
        )
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float32) if numbers.dtype == np.float16 else numbers


def _first_text(column: Any) -> tuple[int, Any]:
    """The row and the first value that is no number."""
    for row, value in enumerate(column.to_pylist()):
        is_number_ = isinstance(value, str) and not np.isnan(number_of(value))
        if value is not None and not is_number_:
            return row, value
    return 0, column[0].as_py()


def listed(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Names as they are where a column is called so, and otherwise what lies between commas."""
    each: list[str] = []
    for name in names:
        parts = [part.strip() for part in name.split(",")]
        each += [name] if name in columns else [part for part in parts if part] or [name]
    return each
