"""Targets of tables in text: numbers, truth or names, by every value that is there."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows.kinds import (
    FLOAT,
    NOTHING,
    TEXT,
    TRUE_OR_FALSE,
    WHOLE,
    as_floats,
)
from protopinv.words import MOST_WHOLE_CLASSES, NEARLY_ALL, is_gap, number_of

UNSIGNED = "uint64"
# Whole numbers below this are the same as floats.
EXACT = 2.0**53
CODE = re.compile(r"[+-]?0\d+")
INFINITE = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})


class Example(NamedTuple):
    """A value, and the file and the row of it in which it is first, counted from 0."""

    text: str
    file: str
    row: int


@dataclass(frozen=True)
class Targets:
    """What a column of targets holds: how many numbers, truths, and names, and which.

    ``low`` and ``high`` are the ends of numbers without a point, ``different`` some of all numbers,
    and ``odd`` is the first value that is neither number nor truth. A code is a name such as 007.
    """

    numbers: int = 0
    truths: int = 0
    names: int = 0
    odd: Example | None = None
    has_codes: bool = False
    has_points: bool = False
    are_exact: bool = True
    low: int = 0
    high: int = 0
    different: frozenset[float] = field(default_factory=frozenset)

    def __add__(self, other: "Targets") -> "Targets":
        """Those of both, where the other came later."""
        return Targets(
            self.numbers + other.numbers,
            self.truths + other.truths,
            self.names + other.names,
            self.odd or other.odd,
            self.has_codes or other.has_codes,
            self.has_points or other.has_points,
            self.are_exact and other.are_exact,
            min(self.low, other.low),
            max(self.high, other.high),
            frozenset(sorted(self.different | other.different)[: MOST_WHOLE_CLASSES + 1]),
        )

    @property
    def kind(self) -> str:
        """The type in which they are read."""
        if self.truths:
            return TEXT if self.numbers or self.odd else TRUE_OR_FALSE
        if self.odd or not self.numbers:
            return TEXT if self.odd else NOTHING
        if self.has_points:
            return WHOLE if self.are_exact else FLOAT
        if self.low >= -(2**63) and self.high < 2**63:
            return WHOLE
        return UNSIGNED if self.low >= 0 and self.high < 2**64 else TEXT

    @property
    def are_numbers(self) -> bool:
        """Whether they are numbers but for some: too many numbers for names, or too few names."""
        all_ = self.numbers + self.truths + self.names
        if not self.numbers or self.odd is None or self.truths or self.has_codes:
            return False
        many = not self.are_exact or len(self.different) > MOST_WHOLE_CLASSES
        return self.numbers >= all_ * (0.5 if many else NEARLY_ALL) or not self.names

    def require_plain(self, column: str) -> None:
        """Raise DataError for numbers that some values are none of, or that are too large."""
        if self.are_numbers and self.odd is not None:
            text, file, row = self.odd
            raise DataError(
                f"Every row needs a target. Column {column!r} of {file} holds {text!r:.60} in row "
                f"{row + 1:,}, among numbers. Correct it or drop the row; where it is the name of "
                "a class, use ProtoPINVClassifier."
            )
        if self.kind == TEXT and self.odd is None and not self.truths:
            huge = self.low if self.low < -(2**63) else self.high
            raise DataError(
                f"Whole numbers of a target must fit into 64 bits. Column {column!r} holds {huge}. "
                "Write it with a point if it is a quantity; where it is the name of a class, use "
                "ProtoPINVClassifier."
            )


def without_blanks(texts: Any) -> Any:
    """Text without blanks around it; nothing where none is left."""
    import pyarrow.compute as pc

    texts = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(texts, ""), None, texts)


def together(parts: Iterable[Targets]) -> Targets:
    """The targets of all files."""
    return reduce(Targets.__add__, parts, Targets())


def targets_of(texts: Any, file: str, first: int) -> Targets:
    """What some rows hold, as text without blanks around it, from row ``first`` of a file on."""
    numbers = as_floats(texts)
    if numbers is not None:
        return _of_numbers(texts, numbers)
    return _of_texts(texts, file, first)


def _of_numbers(texts: Any, numbers: Any) -> Targets:
    """Rows of numbers alone, all at once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = numbers.drop_null().to_numpy(zero_copy_only=False)
    if not len(values):
        return Targets()
    has_points, low, high = False, 0, 0
    try:
        ends = pc.min_max(pc.cast(texts, pa.int64())).as_py()
        low, high = ends["min"], ends["max"]
    except pa.ArrowInvalid:
        points = pc.match_substring_regex(texts, "[.eE]")
        has_points = bool(pc.any(points).as_py())
        plain = pc.unique(pc.filter(texts, pc.invert(points))).drop_null()
        integers = list(map(int, plain.tolist()))
        low, high = min(integers, default=0), max(integers, default=0)
    return _summed(values, has_points, low, high)


def _summed(values: NDArray[np.float64], has_points: bool, low: int, high: int) -> Targets:
    exact = bool(((values == np.round(values)) & (abs(values) < EXACT)).all())
    some = np.unique(values)[: MOST_WHOLE_CLASSES + 1]
    return Targets(
        numbers=len(values),
        has_points=has_points,
        are_exact=exact,
        low=min(0, low),
        high=max(0, high),
        different=frozenset(some.tolist()),
    )


def _of_texts(texts: Any, file: str, first: int) -> Targets:
    """Rows that hold more than numbers, each different text once."""
    import pyarrow.compute as pc

    each = {item["values"]: item["counts"] for item in pc.value_counts(texts).to_pylist()}
    each.pop(None, None)
    truths = {text for text in each if text.lower() in ("true", "false")}
    numbers = {text for text in each if text not in truths and _is_number(text)}
    odd = [text for text in each if text not in truths and text not in numbers]
    names = [text for text in odd if not is_gap(text) and text.lower() not in INFINITE]
    # values are listed in the order in which they come
    example = Example(odd[0], file, first + texts.index(odd[0]).as_py()) if odd else None
    integers = [int(text) for text in numbers if text.lstrip("+-").isdigit()]
    values = np.array([number_of(text) for text in numbers], dtype=np.float64)
    low, high = min(integers, default=0), max(integers, default=0)
    seen = _summed(values, len(integers) < len(numbers), low, high)
    return seen + Targets(
        numbers=sum(each[text] for text in numbers) - len(values),
        truths=sum(each[text] for text in truths),
        names=sum(each[text] for text in names),
        odd=example,
        has_codes=any(CODE.fullmatch(text) for text in names),
    )


def _is_number(text: str) -> bool:
    return text.isascii() and not np.isnan(number_of(text))


def cast_targets(texts: Any, kind: str) -> Any:
    """Text without blanks around it as targets of this kind."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == TRUE_OR_FALSE:
        return pc.if_else(pc.equal(pc.utf8_lower(texts), "true"), True, False)
    if kind == FLOAT:
        return pc.cast(texts, pa.float64())
    if kind in (WHOLE, UNSIGNED):
        type_ = pa.int64() if kind == WHOLE else pa.uint64()
        try:
            return pc.cast(_without_plus(texts), type_)
        except pa.ArrowInvalid:  # as 3.0, which is below what a float can hold
            return pc.cast(pc.cast(texts, pa.float64()), type_)
    return texts


def _without_plus(texts: Any) -> Any:
    """Whole numbers as Arrow reads them."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(texts, r"^\+", "")
