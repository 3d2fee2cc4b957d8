"""What becomes of each column: the numbers that a network sees of it.

A column is first *coded*, one number a row: a number as it is, a date as days since 1970, a
category as its place in the list of known ones (-1 for one that is not there); NaN is a gap. What
follows from the code is arithmetic, and the same in every export.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.tables.parts import (
    DAYS_A_WEEK,
    DAYS_A_YEAR,
    FIRST_WEEKDAY,
    Curve,
    Filled,
    Flag,
    Look,
    Part,
    Wave,
    Week,
)
from protopinv.tables.values import Numbers, Values
from protopinv.words import is_gap

UNKNOWN = -1.0
AVERAGE = ": average of "
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class Made(ABC):
    """A column that the network sees as some parts, side by side."""

    @abstractmethod
    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:
        """The parts, for codes that are counted from ``origin``."""

    def features(self, code: Numbers) -> Numbers:
        """What all parts give."""
        return np.concatenate([part(code) for part in self.made_of()], axis=1)


@dataclass(frozen=True, eq=False)
class Number(Made):
    """A number as it is; ``middle`` stands in for a gap, and ``flag`` adds a column that says so.

    Most values lie between ``low`` and ``high``. Where values repeat, ``levels`` lists them in
    order, and ``averages`` what the targets were like for each, and for gaps last: a curve that
    follows every jump, beside the number itself.
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

    kind = "number"

    @property
    def waits(self) -> bool:
        """Whether averages are still to be made of the targets."""
        return self.levels is not None and self.averages is None

    @property
    def n_values(self) -> int:
        """Values that targets are averaged for."""
        return 0 if self.levels is None else len(self.levels)

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
        """What was understood, in a few words."""
        kind = (
            "yes or no"
            if self.boolean
            else f"number, mostly {short(self.low)} to {short(self.high)}"
        )
        if self.averages is not None and self.levels is not None:
            kind += f"; and what the target is on average at each of its {len(self.levels)} values"
        return f"{kind}; gaps count as {short(self.middle)} and have a flag" if self.flag else kind

    def code(self, values: Values) -> Numbers:
        """Numbers; text that is none is a gap."""
        _refuse(values, ("date",), self.name, "numbers")
        return values.as_numbers()

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:  # noqa: ARG002 - only dates have one
        """The number, whether it was there, and the averages at it."""
        found: list[Part] = [Filled(self.middle), *[Flag()] * self.flag]
        if self.levels is not None and self.averages is not None:
            found.append(Curve(self.middle, self.levels, self.averages))
        return tuple(found)

    def places(self, code: Numbers) -> NDArray[np.int64]:
        """Which level each code is; gaps come after them and one more."""
        levels = np.empty(0) if self.levels is None else self.levels
        place = np.searchsorted(levels, code).clip(max=len(levels) - 1)
        return np.where(np.isnan(code), len(levels) + 1, place)

    def with_averages(self, averages: Numbers, targets: Sequence[str]) -> "Number":
        """The same with what is known of the targets: for each level, any other, and gaps."""
        kept = np.concatenate([averages[:-2], averages[-1:]])
        return replace(self, averages=kept, average_names=_averaged(self.name, targets))


def short(number: float) -> str:
    """Four digits of a number, without an exponent where that can be read."""
    rounded = float(f"{number:.4g}")
    if abs(rounded) < 1e9 and rounded == int(rounded):
        return f"{int(rounded):,}"
    return f"{rounded:g}"


def _refuse(values: Values, kinds: tuple[str, ...], name: str, wanted: str) -> None:
    """Raise DataError for a column of another kind than in training, unless it is empty."""
    if values.held in kinds and values.numbers is not None and not np.isnan(values.numbers).all():
        raise DataError(
            f"A column must hold what it held in training. {name!r} held {wanted}, and now holds "
            f"{values.held}s. Convert it."
        )


def _averaged(name: str, targets: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{name}{AVERAGE}{target}" for target in targets)


@dataclass(frozen=True, eq=False)
class Category(Made):
    """One of some texts. ``vectors`` has a row of numbers for each, one for others, one for gaps.

    One column for each while there are few of them: then a vector has a single one. For many the
    vectors are what the targets were like on average. ``common`` is the place of the commonest.
    """

    name: str
    values: tuple[str, ...]
    vectors: Numbers
    names: tuple[str, ...]
    common: int = 0
    gaps: bool = False

    kind = "category"

    @property
    def waits(self) -> bool:
        """Whether its vectors are still to be made of the targets."""
        return not self.names

    @property
    def n_values(self) -> int:
        """Values that targets are averaged for."""
        return len(self.values)

    @property
    def targets(self) -> tuple[str, ...]:
        """What its vectors are averages of, if they are."""
        return tuple(name.removeprefix(f"{self.name}{AVERAGE}") for name in self.names)

    @cached_property
    def lookup(self) -> dict[str, float]:
        """Where each value is in the list."""
        return {value: float(place) for place, value in enumerate(self.values)}

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return float(self.common)

    @property
    def is_one_hot(self) -> bool:
        """Whether every vector has at most a single one."""
        ones = (self.vectors == 1).sum(axis=1)
        return bool(((self.vectors != 0).sum(axis=1) == ones).all() and (ones <= 1).all())

    @property
    def story(self) -> str:
        """What was understood, in a few words."""
        few = ", ".join(
            value if len(value) < 20 else f"{value[:17]}..." for value in self.values[:3]
        )
        how = "a column each" if self.is_one_hot else "by what the target is on average"
        more = ", ..." if len(self.values) > 3 else ""
        return f"category, {len(self.values)} values ({few}{more}), {how}"

    def code(self, values: Values) -> Numbers:
        """The place of each value."""
        lookup, texts = self.lookup, values.as_texts()
        codes = {
            text: np.nan if is_gap(text) else lookup.get(str(text).strip(), UNKNOWN)
            for text in set(texts)
        }
        return np.array([codes[text] for text in texts], dtype=np.float64)

    def places(self, code: Numbers) -> NDArray[np.int64]:
        """Which vector belongs to each code."""
        return Look(self.vectors).places(code)

    def with_averages(self, averages: Numbers, targets: Sequence[str]) -> "Category":
        """The same with what is known of the targets: for each value, any other, and gaps."""
        return replace(self, vectors=averages, names=_averaged(self.name, targets))

    def made_of(self, origin: float = 0.0) -> tuple[Part, ...]:  # noqa: ARG002 - only dates have one
        """The vector of each value."""
        return (Look(self.vectors),)


@dataclass(frozen=True)
class Date(Made):
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
    waits = False
    PARTS = ("age", "season", "weekday", "time")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the numbers it gives."""
        each = {
            "age": ("in years",),
            "season": ("in the year, sine", "in the year, cosine"),
            "weekday": tuple(f"on {day}" for day in WEEKDAYS),
            "time": ("in the day, sine", "in the day, cosine"),
        }
        suffixes = [name for part in self.parts for name in each[part]]
        return tuple(f"{self.name} {suffix}" for suffix in [*suffixes, *["is missing"] * self.flag])

    @property
    def typical(self) -> float:
        """The code of a usual row."""
        return self.middle

    @property
    def story(self) -> str:
        """What was understood, in a few words."""
        first, last = (np.datetime64(int(day), "D") for day in (self.low, self.high))
        return f"date, mostly {first} to {last}, as {', '.join(self.parts)}"

    def code(self, values: Values) -> Numbers:
        """Days since 1970; text that is no date is a gap."""
        _refuse(values, ("number", "boolean"), self.name, "dates")
        return values.as_days(self.form)

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


Column = Number | Category | Date
Averaged = Number | Category


def one_hot(
    name: str, values: tuple[str, ...], *, rare: int = 0, gaps: bool = False, common: int = 0
) -> Category:
    """A column for each value but the last ``rare`` ones, which share one, and one for gaps.

    Values that were never seen share the column of rare ones, or have none.
    """
    n, kept = len(values), len(values) - rare
    names = [f"{name} = {value}" for value in values[:kept]]
    vectors = np.zeros((n + 2, kept + bool(rare) + gaps))
    vectors[np.arange(kept), np.arange(kept)] = 1
    if rare:
        vectors[kept : n + 1, kept] = 1
        names.append(f"{name} = any other")
    if gaps:
        vectors[n + 1, -1] = 1
        names.append(f"{name} is missing")
    return Category(name, values, vectors, tuple(names), common, gaps)
