"""Columns as they came, as plain values, and what was seen of them over all pieces of rows.

Numbers have NaN for a gap, and texts have None for one.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError
from protopinv.rows import keys_of
from protopinv.rows.columns import CODE
from protopinv.tables import ngrams
from protopinv.words import (
    MANY,
    NEARLY_ALL,
    PLAIN,
    best_form,
    form_counts,
    is_gap,
    looks_like_number,
    number_of,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Numbers = NDArray[np.float64]
Texts = list[str | None]

# How dates are written. ISO 8601 is tried first; where a day could be a month, the month leads.
ISO = "ISO 8601"
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
DATE_FORMATS = (ISO, *(day + time for time in _TIMES for day in _DAYS))
SECONDS_A_DAY = 86_400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# So many texts are counted while rows are read.
MOST_COUNTED = 500_000
# Numbers of a column that are stored to find its middle and its range.
SAMPLE = 20_000


@dataclass(frozen=True, eq=False)
class Values:
    """A column: ``held`` says what it holds by its type.

    Numbers, Booleans (0 and 1) and dates (days since 1970) lie in ``numbers``; text and categories
    in ``texts``.
    """

    held: str  # "number", "boolean", "date", "category" or "text"
    numbers: Numbers | None = None
    texts: Texts | None = None

    def __len__(self) -> int:
        return len(self.numbers if self.numbers is not None else self.texts or ())

    def as_texts(self) -> Texts:
        """Every value as text; whole numbers without a point, Booleans as true and false."""
        if self.numbers is None:
            return self.texts or []
        write = WRITING[self.held]
        return [None if math.isnan(value) else write(value) for value in self.numbers.tolist()]

    @cached_property
    def gaps(self) -> NDArray[np.bool_]:
        """Whether each row has a gap."""
        return np.array([is_gap(text) for text in self.as_texts()], dtype=bool)

    @cached_property
    def ngrams(self) -> "csr_array":
        """The n-grams of each row, of length one; none for a gap."""
        return ngrams.weighted(ngrams.hashed([text or "" for text in self.as_texts()]))

    def read(self, reading: Callable[[str], float]) -> Numbers:
        """Numbers or days as they are, and those of text by a ``reading``; NaN for what is none."""
        if self.numbers is not None:
            return self.numbers
        texts = self.texts or []
        # each text is read once, however often it is there
        numbers = {text: np.nan if text is None else reading(text) for text in set(texts)}
        return np.array([numbers[text] for text in texts], dtype=np.float64)


@dataclass
class Seen:
    """What has been seen of a column so far; ``asked`` is the kind that a user asks for."""

    name: str
    asked: str | None = None
    held: str | None = None
    rows: int = 0
    gaps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    is_cut: bool = False  # not all texts are counted
    sample: list[NDArray[np.float64]] = field(default_factory=list)  # keys and numbers
    share: float = 1.0
    low: float = np.inf
    high: float = -np.inf
    has_fractions: bool = False
    notes: list[str] = field(default_factory=list)  # what should be said of it aloud

    def note(self, text: str) -> None:
        """Add a note about the column."""
        self.notes.append(f"column {self.name!r}: {text}")

    def add(self, values: Values) -> None:
        """Add some more rows."""
        if self.asked == "category":
            values = Values("category", texts=values.as_texts())
        elif self.held is not None and self.held != values.held:
            values = Values("text", texts=values.as_texts())
            self._count(Counter(shown(number) for number in self.numbers().tolist()))
            self.sample = []
        self.held = values.held
        first, self.rows = self.rows, self.rows + len(values)
        if values.numbers is None:
            texts = Counter(t.strip() for t in values.texts or () if t and not is_gap(t))
            self.gaps += len(values) - texts.total()
            self._count(texts)
            return
        places = np.flatnonzero(~np.isnan(values.numbers))
        numbers = values.numbers[places]
        self.gaps += len(values) - len(numbers)
        if not len(numbers):
            return
        self.low = min(self.low, float(numbers.min()))
        self.high = max(self.high, float(numbers.max()))
        self.has_fractions |= bool((numbers != np.floor(numbers)).any())
        self._add_sample(numbers, first + places)

    def _count(self, texts: Counter[str]) -> None:
        """Count each text; beyond a limit only those that are counted already."""
        if len(self.counts) < MOST_COUNTED:
            self.counts.update(texts)
        else:
            self.is_cut |= any(text not in self.counts for text in texts)
            self.counts.update({text: n for text, n in texts.items() if text in self.counts})

    def _add_sample(self, numbers: Numbers, rows: NDArray[np.int64]) -> None:
        """Sample some numbers by those of their rows, fewer and fewer of the more there are."""
        keys = keys_of(0, "seen", rows) / 2.0**64
        chosen = keys < self.share
        self.sample.append(np.stack([keys[chosen], numbers[chosen]]))
        while sum(part.shape[1] for part in self.sample) > SAMPLE:
            self.share /= 2
            both = np.concatenate(self.sample, axis=1)
            self.sample = [both[:, both[0] < self.share]]

    def numbers(self) -> Numbers:
        """Return a sample of the numbers, or of dates as days."""
        return np.asarray(np.concatenate([*self.sample, np.empty((2, 0))], axis=1)[1])

    @property
    def is_constant(self) -> bool:
        """Whether all rows hold the same number."""
        return self.low == self.high and self.gaps == 0

    @property
    def range(self) -> dict[str, Any]:
        """The median, and the ends between which most numbers lie."""
        ends = np.quantile(self.numbers(), (0.02, 0.5, 0.98), method="inverted_cdf").tolist()
        return dict(zip(("low", "middle", "high"), ends, strict=True))

    @property
    def least_share(self) -> float:
        """The share of rows that must be readable: nearly all, or any where a user says so."""
        return NEARLY_ALL if self.asked is None else 1e-9

    @cached_property
    def form_counts(self) -> Counter[str]:
        """How many rows each form of numbers reads; the others are not tried if plain reads all."""
        if not any(math.isnan(number_of(text)) for text in self.counts):
            return Counter({PLAIN: self.counts.total()})
        return form_counts(self.counts)

    @cached_property
    def form(self) -> str:
        """The form of numbers that reads most rows."""
        return best_form(self.form_counts)

    @cached_property
    def as_numbers(self) -> dict[str, float]:
        """Each text as the number that is written there in that form, or NaN."""
        return {text: number_of(text, self.form) for text in self.counts}

    @property
    def unread(self) -> str:
        """What is wrong with text that looks like numbers, in most rows; nothing of other text.

        Nor of a column whose kind a user says, or that has a name such as 007.
        """
        if self.asked is not None or self.held != "text" or any(map(CODE.fullmatch, self.counts)):
            return ""
        texts = [text for text in self.counts if looks_like_number(text)]
        if sum(self.counts[text] for text in texts) < MANY * self.counts.total():
            return ""
        # one that the best form reads, and one that it does not
        apart = {bool(np.isnan(self.as_numbers[text])): text for text in reversed(self.counts)}
        examples = " and ".join(f"{apart[is_bad]!r:.40}" for is_bad in sorted(apart))
        return (
            f"Columns of numbers must be written in one form. Column {self.name!r} looks like "
            f"numbers, such as {examples}, and no form reads {NEARLY_ALL:.0%} of them, so it is "
            "text. Write them alike; or say that it is a number, to take the others as gaps, or a "
            "category."
        )

    def share_of(self, read: Mapping[str, float]) -> float:
        """The share of rows whose text could be read; of categories only where a user says so."""
        if not self.counts or (self.held != "text" and self.asked is None):
            return 0.0
        good = sum(count for text, count in self.counts.items() if not np.isnan(read[text]))
        return good / self.counts.total()

    def read_as(self, kind: str, read: Mapping[str, float]) -> "Seen":
        """Return the column with its texts as numbers; others count as gaps, with a note."""
        bad = Counter({text: n for text, n in self.counts.items() if np.isnan(read[text])})
        good = [text for text in self.counts if text not in bad]
        values = np.array([read[text] for text in good], dtype=np.float64)
        counts = np.array([self.counts[text] for text in good], dtype=np.int64)
        sample = np.repeat(values, np.maximum(1, counts // max(1, counts.sum() // SAMPLE)))
        if bad:
            example = f"{bad.total()} values such as {next(iter(bad))!r:.40}"
            self.note(f"{example} are no {kind}s and count as gaps")
        return replace(
            self,
            held=kind,
            gaps=self.gaps + bad.total(),
            sample=[np.stack([np.zeros(len(sample)), sample])],
            low=float(values.min()),
            high=float(values.max()),
            has_fractions=bool((values != np.floor(values)).any()),
        )


def shown(value: float) -> str:
    """A number as text: "3" for 3.0."""
    is_whole = abs(value) < 2**53 and value == int(value)
    return str(int(value)) if is_whole else repr(value)


def _iso(days: float) -> str:
    """A date as ISO 8601 writes it, with its time if it has one."""
    unit = "D" if days == int(days) else "s"
    moment = np.datetime64(round(days * SECONDS_A_DAY), "s")
    return str(moment.astype(f"datetime64[{unit}]"))


# Numbers of each kind of column as texts.
WRITING: dict[str, Callable[[float], str]] = {
    "number": shown,
    "boolean": {0.0: "false", 1.0: "true"}.__getitem__,
    "date": _iso,
}


def day_of(text: str, form: str) -> float:
    """The date that is written there, in days since 1970, or NaN."""
    text = text.strip()
    try:
        return _days(datetime.fromisoformat(text) if form == ISO else datetime.strptime(text, form))
    except ValueError:
        return math.nan


def _days(moment: date) -> float:
    """By the clock on the wall: a zone says when it was, and not what day it was there."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return (moment.replace(tzinfo=UTC) - _EPOCH).total_seconds() / SECONDS_A_DAY


def values_of(column: Any, name: str) -> Values:
    """What is in a column of a frame or of an array."""
    if isinstance(column, np.ndarray):
        return _of_array(column, name)
    dtype = column.dtype
    if dtype == nw.Boolean or dtype.is_numeric():
        numbers = _finite(column.cast(nw.Float64).to_numpy(), name)
        return Values("boolean" if dtype == nw.Boolean else "number", numbers)
    if dtype == nw.Duration:
        return Values("number", _float(column.dt.total_microseconds()) / 1e6)
    if dtype in (nw.Date, nw.Datetime):
        if dtype == nw.Date:
            column = column.cast(nw.Datetime("us"))
        elif getattr(dtype, "time_zone", None) is not None:
            column = column.dt.replace_time_zone(None)
        return Values("date", _float(column.dt.timestamp("us")) / (1e6 * SECONDS_A_DAY))
    if dtype in (nw.Categorical, nw.Enum):
        return Values("category", texts=_texts(column.cast(nw.String).to_list()))
    values = column.to_list()
    # a column of objects is called text by its first values alone
    if dtype == nw.String and all(isinstance(v, str) or is_nothing(v) for v in values):
        return Values("text", texts=_texts(values))
    return _of_objects(values, name)


def _float(column: Any) -> Numbers:
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _of_array(column: NDArray[Any], name: str) -> Values:
    kind = column.dtype.kind
    if kind in "biuf":
        numbers = _finite(column.astype(np.float64), name)
        return Values("boolean" if kind == "b" else "number", numbers)
    if kind == "M":
        days = column.astype("datetime64[us]").astype(np.float64) / (1e6 * SECONDS_A_DAY)
        return Values("date", np.where(np.isnat(column), np.nan, days))
    if kind == "U":
        return Values("text", texts=_texts(column.tolist()))
    return _of_objects(column.tolist(), name)


def _of_objects(values: list[Any], name: str) -> Values:
    """Values of any type: numbers or dates if all are, and text otherwise."""
    plain = [_plain(value, name) for value in values]
    kinds = {kind for kind, _ in plain if kind}
    if len(kinds) == 1 and kinds != {"text"}:
        numbers = np.array([np.nan if number is None else number for _, number in plain])
        return Values(kinds.pop(), _finite(numbers, name))
    return Values("text", texts=[WRITING.get(kind, str)(v) if kind else None for kind, v in plain])


def _plain(value: Any, name: str) -> tuple[str, Any]:
    """The kind of a value, none of a gap, and the value as a number or as text."""
    if is_nothing(value):
        return "", None
    if isinstance(value, bool | np.bool_):
        return "boolean", float(value)
    if isinstance(value, int | float | Decimal | np.number):
        try:
            return "number", float(value)
        except OverflowError:
            return "number", math.inf
    if isinstance(value, date):
        return "date", _days(value)
    if isinstance(value, str):
        return "text", value
    raise DataError(
        f"A column must hold numbers, text, Booleans or dates. Column {name!r} holds "
        f"{type(value).__name__} values such as {value!r:.40}. Convert or drop it."
    )


def is_nothing(value: Any) -> bool:
    """None, NaN, and what pandas has for them."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and math.isnan(value)


def _texts(values: list[Any]) -> Texts:
    return [value if isinstance(value, str) else None for value in values]


def _finite(numbers: NDArray[Any], name: str) -> Numbers:
    numbers = np.asarray(numbers, dtype=np.float64)
    infinite = np.isinf(numbers)
    if infinite.any():
        raise DataError(
            f"Numbers must be finite; a gap may be empty. Column {name!r} holds infinity in row "
            f"{int(infinite.argmax()) + 1}. Correct it or leave it empty."
        )
    return numbers
