"""What a column is, from what has been seen of it: a number, a category, a date, or nothing."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import ConfigError
from protopinv.rows import keys_of
from protopinv.tables.columns import Category, Column, Date, Number, one_hot
from protopinv.tables.parts import DAYS_A_YEAR
from protopinv.tables.values import (
    DATE_FORMATS,
    Numbers,
    Values,
    day_of,
    shown,
)
from protopinv.words import NEARLY_ALL, is_gap, number_of

# What a user may say of a column.
KINDS = ("number", "category", "date", "drop")
# With so many numbers, that a column is not taken as one is said.
MANY = 0.5
# So many values get a column each, and so many are told apart at all.
FEW_VALUES, MOST_VALUES = 30, 10_000
# So many texts are counted while rows are read.
MOST_COUNTED = 500_000
# A value that is seen less often shares a column with others like it.
LEAST_SEEN = 3
# Text that is different in nearly every row is a name: it says nothing of the next row.
NAMES_SHARE, NAMES_LEAST = 0.5, 50
# Numbers that are kept of a column to find its middle and its range.
SAMPLE = 20_000
# A number repeats if it has few values, and so many rows for each.
MOST_LEVELS, ROWS_A_LEVEL = 1_000, 20


@dataclass(frozen=True)
class LeftOut:
    """A column that cannot help, and why."""

    name: str
    why: str


@dataclass
class Seen:
    """What has been seen of a column so far, a piece of its rows at a time.

    ``wanted`` is what a user says that it is.
    """

    name: str
    wanted: str | None = None
    held: str | None = None
    rows: int = 0
    gaps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    sample: list[NDArray[np.float64]] = field(default_factory=list)  # keys and numbers
    share: float = 1.0
    levels: Numbers | None = field(default_factory=lambda: np.empty(0))
    low: float = np.inf
    high: float = -np.inf
    has_times: bool = False
    is_cut: bool = False

    def add(self, values: Values) -> None:
        """Some more rows."""
        first = self.rows
        if self.wanted == "category":
            values = Values("category", texts=values.as_texts())
        elif self.held is not None and self.held != values.held:
            values = Values("text", texts=values.as_texts())
            self._become_text()
        self.held = values.held
        self.rows += len(values)
        if values.texts is not None:
            known = Counter(text.strip() for text in values.texts if text and not is_gap(text))
            self.gaps += len(values) - known.total()
            self._count(known)
            return
        numbers = values.as_numbers()
        there = ~np.isnan(numbers)
        numbers = numbers[there]
        self.gaps += len(values) - len(numbers)
        if not len(numbers):
            return
        self.low, self.high = min(self.low, numbers.min()), max(self.high, numbers.max())
        self.has_times = self.has_times or bool((numbers != np.floor(numbers)).any())
        self._keep(numbers, first + np.flatnonzero(there))
        if self.levels is not None:
            levels = np.union1d(self.levels, numbers)
            self.levels = None if len(levels) > MOST_LEVELS else levels

    def _count(self, known: Counter[str]) -> None:
        """How often each text is there; beyond a limit only of those that are known."""
        if len(self.counts) < MOST_COUNTED:
            self.counts.update(known)
        else:
            self.is_cut = self.is_cut or any(text not in self.counts for text in known)
            self.counts.update({text: n for text, n in known.items() if text in self.counts})

    def _keep(self, numbers: Numbers, rows: NDArray[np.int64]) -> None:
        """Some of them by the numbers of their rows, fewer and fewer of the more there are."""
        keys = keys_of(0, "seen", rows) / 2.0**64
        chosen = keys < self.share
        self.sample.append(np.stack([keys[chosen], numbers[chosen]]))
        while sum(part.shape[1] for part in self.sample) > SAMPLE:
            self.share /= 2
            whole = np.concatenate(self.sample, axis=1)
            self.sample = [whole[:, whole[0] < self.share]]

    def _become_text(self) -> None:
        self._count(Counter(shown(number) for number in self.numbers().tolist()))
        self.sample = []

    def numbers(self) -> Numbers:
        """Some of the numbers."""
        return np.asarray(np.concatenate([*self.sample, np.empty((2, 0))], axis=1)[1])


def understand(seen: Seen) -> tuple[Column | LeftOut, str | None]:
    """What a column is, and what should be said of it aloud, if anything."""
    wanted = seen.wanted
    if wanted == "drop":
        return LeftOut(seen.name, "as you say"), None
    if seen.gaps == seen.rows:
        return LeftOut(seen.name, "it is empty"), None
    if seen.held in ("number", "boolean"):
        if wanted == "date":
            raise ConfigError(_REFUSED.format(seen.name, "a date", f"{seen.held}s"))
        return _number(seen, seen.numbers(), seen.levels), None
    if seen.held == "date":
        if wanted == "number":
            raise ConfigError(_REFUSED.format(seen.name, "a number", "dates"))
        return _date(seen, seen.numbers(), DATE_FORMATS[0]), None
    if seen.held == "category" and wanted in (None, "category"):
        return _category(seen, asked=True)
    return _text(seen, wanted)


_REFUSED = (
    "A column must hold what you say it does. columns says that {!r} is {}, and it holds {}. "
    "Convert it, or leave it to be understood."
)


def _text(seen: Seen, wanted: str | None) -> tuple[Column | LeftOut, str | None]:
    """Numbers or dates if nearly all rows can be read as such, and else a category."""
    texts = seen.counts
    least = NEARLY_ALL if wanted is None else 1e-9
    numbers = {text: number_of(text) for text in texts}
    share = _share(texts, numbers)
    if share >= least and wanted != "date":
        return _read_numbers(seen, numbers)
    if wanted != "number":
        column, said = _text_of_dates(seen, least)
        if column is not None:
            return column, said
    if wanted is not None:
        example = next(iter(texts))
        kind = "a number" if wanted == "number" else "a date"
        raise ConfigError(_REFUSED.format(seen.name, kind, f"text such as {example!r:.40}"))
    column, said = _category(seen, asked=False)
    if isinstance(column, LeftOut) and share >= MANY:
        column = LeftOut(
            seen.name,
            f"{share:.0%} of its values are numbers, and nearly all must be; say that it is a "
            "number to take the others as gaps",
        )
    return column, said


def _text_of_dates(seen: Seen, least: float) -> tuple[Column | LeftOut | None, str | None]:
    """Dates in the form that reads most of them; None if no form reads enough."""
    read = {form: _days(seen.counts, form) for form in DATE_FORMATS}
    shares = {form: _share(seen.counts, days) for form, days in read.items() if days is not None}
    # among equals the first
    form = max(shares, key=shares.__getitem__, default="")
    if not form or shares[form] < least:
        return None, None
    days, bad = _readable(seen.counts, read[form] or {})
    said = [_said(seen.name, "dates", bad)]
    other = form.replace("%m/%d/", "%d/%m/")
    if other != form and shares.get(other) == shares[form]:
        said.append(
            f"column {seen.name!r}: days could be months; it is read as {form}, the month first"
        )
    lines = "\n".join(line for line in said if line)
    return _date(seen, days, form, gaps=bool(bad)), lines or None


def _read_numbers(seen: Seen, numbers: Mapping[str, float]) -> tuple[Column | LeftOut, str | None]:
    """A column of numbers; what is none of them is a gap, and said aloud."""
    found, bad = _readable(seen.counts, numbers)
    said = _said(seen.name, "numbers", bad)
    return _number(seen, found, np.unique(found), gaps=bool(bad)), said


def _days(known: Counter[str], form: str) -> dict[str, float] | None:
    """Every text as a date; None if already the first few are none."""
    few = list(known)[:20]
    if sum(np.isnan(day_of(text, form)) for text in few) > len(few) // 2:
        return None
    return {text: day_of(text, form) for text in known}


def _share(known: Counter[str], read: Mapping[str, float]) -> float:
    """Of the rows whose text could be read."""
    good = sum(count for text, count in known.items() if not np.isnan(read[text]))
    return good / known.total()


def _readable(known: Counter[str], read: Mapping[str, float]) -> tuple[Numbers, Counter[str]]:
    """What could be read, as often as it is there in a sample, and what could not."""
    bad = Counter({text: count for text, count in known.items() if np.isnan(read[text])})
    good = [text for text in known if text not in bad]
    values = np.array([read[text] for text in good], dtype=np.float64)
    counts = np.array([known[text] for text in good], dtype=np.int64)
    thin = max(1, counts.sum() // SAMPLE)
    return np.repeat(values, np.maximum(1, counts // thin)), bad


def _said(name: str, kind: str, bad: Counter[str]) -> str | None:
    if not bad:
        return None
    return (
        f"column {name!r}: {bad.total()} values such as {next(iter(bad))!r:.40} are no {kind} and "
        "count as gaps"
    )


def _number(
    seen: Seen, numbers: Numbers, levels: Numbers | None, *, gaps: bool = False
) -> Column | LeftOut:
    flag = gaps or seen.gaps > 0
    low, middle, high = np.quantile(numbers, (0.02, 0.5, 0.98), method="inverted_cdf").tolist()
    least, most = (numbers.min(), numbers.max()) if seen.counts else (seen.low, seen.high)
    if least == most and not flag:
        return LeftOut(seen.name, f"it is always {shown(middle)}")
    few = levels is not None and 2 < len(levels) <= min(MOST_LEVELS, seen.rows / ROWS_A_LEVEL)
    boolean = seen.held == "boolean"
    return Number(seen.name, middle, low, high, flag, boolean, levels if few else None)


def _date(seen: Seen, days: Numbers, form: str, *, gaps: bool = False) -> Column | LeftOut:
    flag = gaps or seen.gaps > 0
    low, middle, high = np.quantile(days, (0.02, 0.5, 0.98), method="inverted_cdf").tolist()
    of_text = bool(seen.counts)
    first, last = (days.min(), days.max()) if of_text else (seen.low, seen.high)
    if first == last and not flag:
        return LeftOut(seen.name, "it is always the same day")
    span = float(last - first)
    varies = {
        "age": True,
        "season": span > DAYS_A_YEAR / 12,
        "weekday": span > 1 and len(np.unique(np.floor(days) % 7)) > 1,
        "time": bool((days != np.floor(days)).any()) if of_text else seen.has_times,
    }
    parts = tuple(part for part in Date.PARTS if varies[part])
    return Date(seen.name, form, middle, low, high, parts, flag)


def _category(seen: Seen, *, asked: bool) -> tuple[Column | LeftOut, str | None]:
    counts = seen.counts
    if not asked and (seen.is_cut or len(counts) > max(NAMES_LEAST, NAMES_SHARE * counts.total())):
        why = "nearly every row has a text of its own; say that it is a category to keep it"
        return LeftOut(seen.name, why), None
    # the commonest first, and among equals in the order of the alphabet
    values = tuple(sorted(counts, key=lambda value: (-counts[value], value)))
    if len(values) == 1 and not seen.gaps:
        return LeftOut(seen.name, f"it is always {values[0]!r:.40}"), None
    said = None
    if len(values) > MOST_VALUES:
        said = f"column {seen.name!r}: the commonest {MOST_VALUES} of {len(values)} values count"
    values = values[:MOST_VALUES]
    rare = sum(counts[value] < LEAST_SEEN for value in values)
    rare = 0 if rare == len(values) else rare
    gaps = seen.gaps > 0
    if len(values) - rare <= FEW_VALUES:
        # in the order of the alphabet, which is how people look for them
        kept = sorted(values[: len(values) - rare])
        common = kept.index(values[0])
        each = (*kept, *values[len(values) - rare :])
        return one_hot(seen.name, each, rare=rare, gaps=gaps, common=common), said
    # in vectors of no length, until the targets are known
    return Category(seen.name, values, np.zeros((len(values) + 2, 0)), (), gaps=gaps), said
