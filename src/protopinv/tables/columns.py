"""Columns of numbers and of dates: how they are recognised, coded, encoded and checked.

A column is first *coded*, one number a row: a number as it is, a date as days since 1970, a
category as its place in the list of known ones (-1 for one that is not there); NaN is a gap. What
follows from the code is arithmetic, and the same in every export.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from protopinv.errors import DataError
from protopinv.tables.parts import (
    DAYS_A_WEEK,
    DAYS_A_YEAR,
    FIRST_WEEKDAY,
    Curve,
    Filled,
    Flag,
    Part,
    Wave,
    Week,
)
from protopinv.tables.values import (
    DATE_FORMATS,
    ISO,
    Numbers,
    Seen,
    Values,
    day_of,
    shown,
)
from protopinv.words import PLAIN, has_two_readings, number_of, pattern_of, said_of

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# Days of about ten thousand years.
MOST_DAYS = 4e6


@dataclass(frozen=True)
class LeftOut:
    """A column that cannot help, and why."""

    name: str
    why: str


class Kind:
    """A kind of column. Fields are stored, those in ``ARRAYS`` as arrays.

    Files from before have no fields that are ``NEWER``.

    Each kind has ``recognised``, which gives the column that was seen, why it is left out, or None
    if it is of another kind; ``code``, a number for each row; ``made_of``, the
    parts that the network sees of codes; ``names`` of the numbers they give; ``typical``, the code
    of a usual row; a ``story`` in a few words; and ``check``, which raises ValueError for fields of
    a stranger that do not belong together. ``grown`` gives a column with new values.
    """

    name: str
    ARRAYS: ClassVar[tuple[str, ...]] = ()
    NEWER: ClassVar[tuple[str, ...]] = ()

    @property
    def source(self) -> str:
        """The name of the column of a frame that it is made of."""
        return self.name


@dataclass(frozen=True, eq=False)
class Number(Kind):
    """A number as it is; ``middle`` stands in for a gap, and ``flag`` adds a column that says so.

    ``form`` is how it is written where it comes as text. Most values lie between ``low`` and
    ``high``. In models of earlier versions numbers may have a target encoding, too: ``levels`` are
    values that repeat, in order, and ``averages`` what the targets were like for each, and for gaps
    last.
    """

    name: str
    middle: float
    low: float
    high: float
    flag: bool = False
    boolean: bool = False
    levels: Numbers | None = None
    averages: Numbers | None = None
    average_names: tuple[str, ...] = ()
    form: str = PLAIN

    kind = "number"
    ARRAYS = ("levels", "averages")
    NEWER = ("form",)

    @classmethod
    def recognised(cls, seen: Seen) -> Self | LeftOut | None:
        """Numbers, Booleans, or text of which nearly all can be read as numbers."""
        form = PLAIN
        if seen.held not in ("number", "boolean"):
            if seen.share_of(seen.as_numbers) < seen.least_share:
                return None
            form, counts = seen.form, seen.form_counts
            seen = seen.read_as("number", seen.as_numbers)
            if has_two_readings(counts, form):
                seen.note(f"commas could begin decimals; it is read as {form}, in thousands")
        if seen.is_constant:
            return LeftOut(seen.name, f"it is always {shown(seen.low)}")
        gaps, boolean = seen.gaps > 0, seen.held == "boolean"
        return cls(seen.name, **seen.range, flag=gaps, boolean=boolean, form=form)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers it gives."""
        return (self.name, *[f"{self.name} is missing"] * self.flag, *self.average_names)

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return self.middle

    @property
    def story(self) -> str:
        """What it was recognised as, in a few words."""
        ends = f"{short(self.low)} to {short(self.high)}"
        story = "yes or no" if self.boolean else f"number{said_of(self.form)}, mostly {ends}"
        if self.averages is not None and self.levels is not None:
            story += f"; and what the target is on average at each of its {len(self.levels)} values"
        return (
            f"{story}; gaps count as {short(self.middle)} and have a flag" if self.flag else story
        )

    def code(self, values: Values) -> Numbers:
        """Numbers; text that is none is a gap."""
        _refuse(values, ("date",), self.name, "numbers")
        return values.read(lambda text: number_of(text, self.form))

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:  # noqa: ARG002 - only dates have one
        """The number, whether it was there, and the averages at it."""
        parts: list[Part] = [Filled(self.middle), *[Flag()] * self.flag]
        if self.levels is not None and self.averages is not None:
            parts.append(Curve(self.middle, self.levels, self.averages))
        return tuple(parts)

    def check(self) -> None:
        """Raise ValueError for an unknown form, and for levels and averages of others."""
        if self.form != PLAIN:
            pattern_of(self.form)
        levels, averages = self.levels, self.averages
        if len({levels is None, averages is None, not self.average_names}) > 1:
            raise ValueError("levels and averages that do not belong together")
        if levels is not None and averages is not None:
            if levels.ndim != 1 or not len(levels) or not (np.diff(levels) > 0).all():
                raise ValueError("levels that do not rise")
            if averages.shape != (len(levels) + 1, len(self.average_names)):
                raise ValueError("averages of other levels")


@dataclass(frozen=True)
class Date(Kind):
    """A date: years since ``middle``, and where it lies in year, week and day as far as these vary.

    ``form`` is how it is written where it comes as text. A gap is ``middle`` with a ``flag``.
    """

    name: str
    form: str
    middle: float
    low: float
    high: float
    parts: tuple[str, ...] = ("age",)
    flag: bool = False

    kind = "date"
    PARTS: ClassVar[Mapping[str, Sequence[str]]] = {
        "age": ("in years",),
        "season": ("in the year, sine", "in the year, cosine"),
        "weekday": [f"on {day}" for day in WEEKDAYS],
        "time": ("in the day, sine", "in the day, cosine"),
    }

    @classmethod
    def recognised(cls, seen: Seen) -> Self | LeftOut | None:
        """Dates, or text that can be read as such in the form that reads most of it."""
        form = ISO
        if seen.held != "date":
            read = {form: _days(seen.counts, form) for form in DATE_FORMATS}
            shares = {form: seen.share_of(days) for form, days in read.items() if days}
            # among equals the first
            form = max(shares, key=shares.__getitem__, default="")
            if not form or shares[form] < seen.least_share:
                return None
            seen, other = seen.read_as("date", read[form]), form.replace("%m/%d/", "%d/%m/")
            if other != form and shares.get(other) == shares[form]:
                seen.note(f"days could be months; it is read as {form}, the month first")
        if seen.is_constant:
            return LeftOut(seen.name, "it is always the same day")
        sample, span = seen.numbers(), seen.high - seen.low
        varies = {
            "age": True,
            "season": span > DAYS_A_YEAR / 12,
            "weekday": span > 1 and len(np.unique(np.floor(sample) % DAYS_A_WEEK)) > 1,
            "time": seen.has_fractions,
        }
        parts = tuple(part for part in cls.PARTS if varies[part])
        return cls(seen.name, form, **seen.range, parts=parts, flag=seen.gaps > 0)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers it gives."""
        suffixes = [suffix for part in self.parts for suffix in self.PARTS[part]]
        return tuple(f"{self.name} {suffix}" for suffix in [*suffixes, *["is missing"] * self.flag])

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return self.middle

    @property
    def story(self) -> str:
        """What it was recognised as, in a few words."""
        first, last = (np.datetime64(int(day), "D") for day in (self.low, self.high))
        return f"date, mostly {first} to {last}, as {', '.join(self.parts)}"

    def code(self, values: Values) -> Numbers:
        """Days since 1970; text that is no date is a gap."""
        _refuse(values, ("number", "boolean"), self.name, "dates")
        return values.read(lambda text: day_of(text, self.form))

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:
        """Every part of it, for days that are counted from ``origin``."""
        middle = self.middle - origin
        made: dict[str, Part] = {
            "age": Filled(middle, middle, DAYS_A_YEAR),
            "season": Wave(middle, DAYS_A_YEAR, origin / DAYS_A_YEAR % 1),
            "weekday": Week(middle, int(origin + FIRST_WEEKDAY) % DAYS_A_WEEK),
            "time": Wave(middle, 1.0, origin % 1),
        }
        return (*(made[part] for part in self.parts), *[Flag()] * self.flag)

    def check(self) -> None:
        """Raise ValueError for a form or parts that are unknown, and for days beyond reckoning."""
        if self.form not in DATE_FORMATS or not self.parts or set(self.parts) - set(self.PARTS):
            raise ValueError("a date that is written in an unknown way")
        if len(set(self.parts)) != len(self.parts):
            raise ValueError("a part of a date that is there twice")
        if max(abs(self.middle), abs(self.low), abs(self.high)) > MOST_DAYS:
            raise ValueError("a date thousands of years away")


def short(number: float) -> str:
    """Four digits of a number, without an exponent where that can be read."""
    rounded = float(f"{number:.4g}")
    if abs(rounded) < 1e9 and rounded == int(rounded):
        return f"{int(rounded):,}"
    return f"{rounded:g}"


def _refuse(values: Values, kinds: tuple[str, ...], name: str, kind: str) -> None:
    """Raise DataError for a column of another kind than in training, unless it is empty."""
    if values.held in kinds and values.numbers is not None and not np.isnan(values.numbers).all():
        raise DataError(
            f"A column must hold what it held in training. {name!r} held {kind}, and now holds "
            f"{values.held}s. Convert it."
        )


def _days(texts: Mapping[str, Any], form: str) -> dict[str, float]:
    """Every text as a date; nothing if already most of the first few are none."""
    few = list(texts)[:20]
    if sum(np.isnan(day_of(text, form)) for text in few) > len(few) // 2:
        return {}
    return {text: day_of(text, form) for text in texts}
