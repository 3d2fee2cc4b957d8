"""What columns of files hold: the type of text by every value that is there, and numpy arrays.

A type is found for each block of rows and joined over all of them, so that it does not depend on
where a file was cut.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.optional import Later
from protopinv.words import (
    GAPS,
    MANY,
    MOST_WHOLE_CLASSES,
    NEARLY_ALL,
    NUMBER,
    PLAIN,
    THOUSANDS,
    best_form,
    form_counts,
    is_gap,
    number_of,
)

pa, pc = Later("pyarrow"), Later("pyarrow.compute")
# Types of a column as Arrow calls them; a column without any value is text to everybody else.
NOTHING, WHOLE, FLOAT, TRUE_OR_FALSE, TEXT = "null", "int64", "double", "bool", "string"
UNSIGNED = "uint64"
# What stands for true and false.
TRUTH = (["true", "True", "TRUE"], ["false", "False", "FALSE"])
DECIMAL_COMMA = r"^[ \t]*[+-]?\d+,\d+[ \t]*$"
THOUSANDS_COMMA = r"^[ \t]*[+-]?[1-9]\d{0,2}(?:,\d{3})+[ \t]*$"
THOUSANDS_POINT = r"^[ \t]*[+-]?[1-9]\d{0,2}(?:\.\d{3})+[ \t]*$"
DECIMAL_POINT = r"^[ \t]*[+-]?\d+\.\d+[ \t]*$"
# Whole numbers below this are the same as floats.
EXACT = 2.0**53
# A name such as 007.
CODE = re.compile(r"[+-]?0\d+")
LEADING_ZERO = r"[ \t]*[+-]?0[0-9xX]"
INFINITE = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})


def joined(types: Iterable[str]) -> str:
    """Return the type that holds the values of all."""
    different = set(types) - {NOTHING}
    if len(different) < 2:
        return next(iter(different), NOTHING)
    return FLOAT if different == {WHOLE, FLOAT} else TEXT


def type_of(column: Any) -> str:
    """Return the type of a column that pyarrow inferred; numbers are finite, and dates are text."""
    name = str(column.type)
    if name == FLOAT:
        return FLOAT if pc.all(pc.is_finite(column)).as_py() else TEXT
    return name if name in (NOTHING, WHOLE, TRUE_OR_FALSE) else TEXT


def has_leading_zero(column: Any) -> bool:
    """Whether a column of text has a value such as 007, which is a name and no number."""
    return bool(pc.any(pc.match_substring_regex(column, "^" + LEADING_ZERO)).as_py())


def with_points(column: Any) -> Any:
    """Return text with a point in each decimal that has a comma."""
    is_decimal = pc.match_substring_regex(column, DECIMAL_COMMA)
    point = pc.replace_substring(column, ",", ".", max_replacements=1)
    return pc.if_else(is_decimal, point, column)


def is_number_or_gap(text: str | None) -> bool:
    """Whether a text is a plain number, or says that nothing is known."""
    return text is None or is_gap(text) or not np.isnan(number_of(text))


def as_floats(column: Any) -> Any | None:
    """Return text as numbers; None unless every value is one."""
    try:
        numbers = pc.cast(pc.utf8_trim_whitespace(column), pa.float64())
    except pa.ArrowInvalid:
        return None
    finite = pc.all(pc.is_finite(numbers), min_count=0).as_py()
    return numbers if finite and not has_leading_zero(column) else None


def decimals(column: Any) -> NDArray[np.int64]:
    """Count the values of a column of text with a decimal comma, and those with a point."""
    counts = [
        pc.sum(pc.match_substring_regex(column, form), min_count=0).as_py()
        for form in (DECIMAL_COMMA, DECIMAL_POINT)
    ]
    return np.array(counts, dtype=np.int64)


@dataclass(frozen=True)
class TargetText:
    """What a column of targets in text holds: how many numbers, truths, and names, and which.

    ``low`` and ``high`` are the ends of numbers without a point, ``different`` some of all numbers,
    and ``odd`` is the first value that is neither number, truth nor gap, with its file and its row,
    counted from 0; ``gap`` is the first gap that has a word. A code is a name such as 007.
    ``forms`` counts the values that each form of numbers reads, and ``texts`` are some names.
    """

    numbers: int = 0
    truths: int = 0
    names: int = 0
    odd: tuple[str, str, int] | None = None
    has_codes: bool = False
    has_points: bool = False
    are_exact: bool = True
    low: int = 0
    high: int = 0
    different: frozenset[float] = field(default_factory=frozenset)
    gap: tuple[str, str, int] | None = None
    has_blanks: bool = False
    forms: Counter[str] = field(default_factory=Counter)
    texts: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def of(cls, column: Any, file: str, first: int, *, commas: bool = False) -> "TargetText":
        """Summarize a column of text, from row ``first`` of a file on.

        With ``commas`` these begin the decimals of plain numbers.
        """
        texts = without_blanks(column)
        points = with_points(texts) if commas else texts
        matching = pc.match_substring_regex(points, f"^(?:{NUMBER.pattern})$")
        digits = pc.if_else(matching, pc.ascii_ltrim(points, characters="+"), None)
        floats = pc.cast(digits, pa.float64())
        is_number = pc.fill_null(pc.is_finite(floats), fill_value=False)
        values = pc.filter(floats, is_number).to_numpy(zero_copy_only=False)
        others = pc.value_counts(pc.drop_null(pc.filter(texts, pc.invert(is_number))))
        each = {item["values"]: item["counts"] for item in others.to_pylist()}
        truths = {text for text in each if text.lower() in ("true", "false")}
        # values are listed in the order in which they come
        gaps = [text for text in each if is_gap(text)]
        odd = [text for text in each if text not in truths and not is_gap(text)]
        names = [text for text in odd if text.lower() not in INFINITE]
        digits = pc.filter(digits, is_number)
        points = pc.match_substring_regex(digits, "[.eE]")
        low, high = _ends(pc.filter(digits, pc.invert(points)))
        return cls(
            numbers=len(values),
            truths=sum(each[text] for text in truths),
            names=sum(each[text] for text in names),
            odd=(odd[0], file, first + texts.index(odd[0]).as_py()) if odd else None,
            gap=(gaps[0], file, first + texts.index(gaps[0]).as_py()) if gaps else None,
            has_blanks=bool(texts.null_count),
            forms=form_counts({text: each[text] for text in names})
            + _plain_forms(pc.filter(texts, is_number)),
            texts=frozenset(sorted(names)[: MOST_WHOLE_CLASSES + 1]),
            has_codes=any(CODE.fullmatch(text) for text in names),
            has_points=bool(pc.any(points).as_py()),
            are_exact=bool(((values == np.round(values)) & (abs(values) < EXACT)).all()),
            low=min(0, low),
            high=max(0, high),
            different=frozenset(np.unique(values)[: MOST_WHOLE_CLASSES + 1].tolist()),
        )

    def __add__(self, other: "TargetText") -> "TargetText":
        """Add what a later part of the column holds."""
        return TargetText(
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
            self.gap or other.gap,
            self.has_blanks or other.has_blanks,
            self.forms + other.forms,
            frozenset(sorted(self.texts | other.texts)[: MOST_WHOLE_CLASSES + 1]),
        )

    @classmethod
    def total(cls, parts: Iterable["TargetText"]) -> "TargetText":
        """Add up the parts of all files."""
        return reduce(cls.__add__, parts, cls())

    @property
    def kind(self) -> str:
        """The type in which they are read."""
        odd = self.odd or self.gap
        if self.truths:
            return TEXT if self.numbers or odd else TRUE_OR_FALSE
        if odd or not self.numbers:
            return TEXT if odd else NOTHING
        if self.has_points:
            return WHOLE if self.are_exact else FLOAT
        if self.low >= -(2**63) and self.high < 2**63:
            return WHOLE
        return UNSIGNED if self.low >= 0 and self.high < 2**64 else TEXT

    @property
    def are_numbers(self) -> bool:
        """Whether they are numbers but for some: too many numbers for names, or too few names."""
        total = self.numbers + self.truths + self.names
        if not self.numbers or self.truths or self.has_codes:
            return False
        many = not self.are_exact or len(self.different) > MOST_WHOLE_CLASSES
        return self.numbers >= total * (0.5 if many else NEARLY_ALL) or not self.names

    def without_gaps(self) -> "TargetText":
        """Return what is left of numbers without gaps; among names a word for a gap is a name."""
        are_numbers = self.numbers and not (self.odd or self.truths)
        return replace(self, gap=None) if are_numbers or self.form(few_too=True) != PLAIN else self

    def form(self, *, few_too: bool) -> str:
        """The form in which people wrote nearly all as numbers; plain if none.

        Few whole numbers with a unit, such as "3 doors", are names, unless they are asked for too.
        """
        form = best_form(self.forms)
        few = self.forms[form] < NEARLY_ALL * max(1, self.numbers + self.names)
        if form == PLAIN or few or self.truths or self.has_codes:
            return PLAIN
        values = self.different | {number_of(text, form) for text in self.texts}
        are_many = len(values) > MOST_WHOLE_CLASSES or any(value % 1 for value in values)
        return form if are_many or few_too else PLAIN

    @property
    def unread(self) -> str:
        """Two examples of names that look like numbers, as most do, and that no form reads."""
        n, form = self.numbers + self.names, best_form(self.forms)
        is_read = form == PLAIN or self.forms[form] >= NEARLY_ALL * max(1, n)
        if is_read or self.forms[form] < MANY * n or self.truths or self.has_codes:
            return ""
        # one that is read, and one that is not
        apart = {bool(np.isnan(number_of(text, form))): text for text in sorted(self.texts)}
        return " and ".join(f"{apart[is_bad]!r:.40}" for is_bad in sorted(apart))

    def require_plain(self, column: str) -> None:
        """Raise DataError for numbers that some values are none of, or that are too large."""
        odd = self.odd or self.gap
        if self.are_numbers and odd is not None:
            text, file, row = odd
            raise DataError(
                f"Every row needs a target. Column {column!r} of {file} holds {text!r:.60} in row "
                f"{row + 1:,}, among numbers. Correct it or drop the row; where it is the name of "
                "a class, use ProtoPINVClassifier."
            )
        if self.kind == TEXT and odd is None and not self.truths:
            huge = self.low if self.low < -(2**63) else self.high
            raise DataError(
                f"Whole numbers of a target must fit into 64 bits. Column {column!r} holds {huge}. "
                "Write it with a point if it is a quantity; where it is the name of a class, use "
                "ProtoPINVClassifier."
            )


def _plain_forms(texts: Any) -> Counter[str]:
    """How many plain numbers each form reads that has no currency and no unit."""

    def count(pattern: str) -> int:
        return int(pc.sum(pc.match_substring_regex(texts, pattern), min_count=0).as_py())

    n, pointed, n_commas = len(texts), count(r"\."), count(",")
    of_points, of_commas = n - n_commas, n - pointed
    return Counter(
        {
            PLAIN: n,
            THOUSANDS: of_points + (count(THOUSANDS_COMMA) if n_commas else 0),
            "1.234,56": of_commas + (count(THOUSANDS_POINT) if pointed else 0),
            "1 234,56": of_commas,
            "1 234.56": of_points,
            "1'234.56": of_points,
        }
    )


def _ends(integers: Any) -> tuple[int, int]:
    """Return the least and the largest of whole numbers in text, 0 where there are none."""
    try:
        ends = pc.min_max(pc.cast(integers, pa.int64())).as_py()
        return ends["min"] or 0, ends["max"] or 0
    except pa.ArrowInvalid:
        each = list(map(int, pc.unique(integers).to_pylist()))
        return min(each), max(each)


def without_blanks(column: Any) -> Any:
    """Return text without blanks around it; nothing where none is left."""
    texts = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    return pc.if_else(pc.equal(texts, ""), None, texts)


def typed_targets(column: Any, kind: str, *, commas: bool = False) -> Any:
    """Return a column of text as targets of this kind; nothing for gaps among numbers."""
    texts = without_blanks(column)
    if kind == TRUE_OR_FALSE:
        return pc.equal(pc.utf8_lower(texts), "true")
    if kind not in (FLOAT, WHOLE, UNSIGNED):
        return texts
    digits = pc.ascii_ltrim(with_points(texts) if commas else texts, characters="+")
    digits = pc.if_else(_are_gaps(texts), None, digits)
    try:
        return pc.cast(digits, kind)
    except pa.ArrowInvalid:  # as 3.0, which is below what a float can hold
        return pc.cast(pc.cast(digits, FLOAT), kind)


def written_targets(column: Any, form: str, name: str, file: str, first: int) -> Any:
    """Return text as numbers in a form, nothing for gaps; raises DataError for any other text."""
    texts = without_blanks(column)
    texts = pc.if_else(_are_gaps(texts), None, texts)
    packed = pc.dictionary_encode(texts)
    numbers = np.array([number_of(text, form) for text in packed.dictionary.to_pylist()])
    bad = packed.dictionary.filter(pa.array(np.isnan(numbers), pa.bool_()))
    if len(bad):
        row = first + texts.index(bad[0]).as_py() + 1
        raise DataError(
            f"Every row needs a target. Column {name!r} of {file} holds {bad[0].as_py()!r:.60} in "
            f"row {row:,}, among numbers written as {form}. Correct it or drop the row; where it "
            "is the name of a class, use ProtoPINVClassifier."
        )
    return pa.array(numbers, pa.float64()).take(packed.indices)


def _are_gaps(texts: Any) -> Any:
    """Which texts say that nothing is known; nothing where there is no text."""
    return pc.is_in(pc.utf8_lower(texts), value_set=pa.array(sorted(GAPS)))


def are_there(column: Any) -> NDArray[np.bool_]:
    """Return which values of a column are neither empty nor NaN."""
    there = pc.is_valid(column)
    if pa.types.is_floating(column.type):
        there = pc.and_(there, pc.fill_null(pc.invert(pc.is_nan(column)), fill_value=False))
    return np.asarray(there.to_numpy(zero_copy_only=False), dtype=bool)


def plain_type(stored: Any) -> Any:
    """Return the type of a column; text is text, however it is stored."""
    plain = stored.value_type if pa.types.is_dictionary(stored) else stored
    is_text = pa.types.is_large_string(plain) or pa.types.is_string_view(plain)
    return pa.string() if is_text else plain


def is_numeric(name: str) -> bool:
    """Whether a type, by its name, is one of numbers to Arrow; Booleans are."""
    return name == "bool" or name.startswith(("int", "uint", "float", "double", "half", "decimal"))


def label_column(column: Any, name: str, file: str, first: int) -> NDArray[Any]:
    """Return targets as numpy has them, from row ``first`` of a file on; text without blanks."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if str(plain_type(column.type)) == TEXT:
        column = without_blanks(column)
    if column.null_count:
        raise DataError(
            f"Every row needs a target. Column {name!r} of {file} is empty in row "
            f"{first + _first_gap(column):,}. Fill it or drop the row."
        )
    labels: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return labels


def number_column(column: Any, name: str, file: str, first: int, rule: str) -> NDArray[Any]:
    """Return a column as numbers, true as 1; raises DataError for text and for gaps."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not is_numeric(str(kind)):
        values = enumerate(column.to_pylist())
        texts = ((row, v) for row, v in values if v is not None and not _is_number(v))
        row, value = next(texts, (0, column[0].as_py()))
        raise DataError(
            f"{rule}. Column {name!r} of {file} holds {kind} values such as {value!r:.60} "
            f"in row {first + row + 1:,}. Encode it as numbers, or drop it."
        )
    if column.null_count:
        raise DataError(
            f"{rule.removesuffix('numbers')}finite numbers. Column {name!r} of {file} is "
            f"empty in row {first + _first_gap(column):,}. Fill the gap or drop the row."
        )
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers.astype(np.float32) if numbers.dtype == np.float16 else numbers


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and not np.isnan(number_of(value))


def _first_gap(column: Any) -> int:
    """The number of the first empty row, from 1 on as people count."""
    return int(column.is_null().to_numpy(zero_copy_only=False).argmax()) + 1
