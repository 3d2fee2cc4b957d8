"""One column as it came, as plain values: numbers with NaN for a gap, or text with None for one."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError

Numbers = NDArray[np.float64]
Texts = list[str | None]

# How dates are written. ISO 8601 is tried first; where a day could be a month, the month leads.
ISO = "ISO 8601"
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p")
DATE_FORMATS = (ISO, *(day + time for time in _TIMES for day in _DAYS))
SECONDS_A_DAY = 86_400.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    def read(self, reading: Callable[[str], float]) -> Numbers:
        """Numbers or days as they are, and those of text by a ``reading``; NaN for what is none."""
        if self.numbers is not None:
            return self.numbers
        texts = self.texts or []
        # each text is read once, however often it is there
        numbers = {text: np.nan if text is None else reading(text) for text in set(texts)}
        return np.array([numbers[text] for text in texts], dtype=np.float64)


def shown(value: float) -> str:
    """A number as text: "3" for 3.0."""
    whole = abs(value) < 2**53 and value == int(value)
    return str(int(value)) if whole else repr(value)


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


def is_frame(X: Any) -> bool:
    """Whether X has named columns: a frame of pandas or polars, a table of Arrow."""
    return hasattr(X, "columns") and bool(nw.dependencies.is_into_dataframe(X))


def frame_columns(X: Any) -> dict[str, Any]:
    """Every column under its name; raises DataError for a name that is there twice."""
    # the columns of an Arrow table are no names
    is_arrow = hasattr(X, "column_names") and not hasattr(X, "iloc")
    names = [str(name) for name in (X.column_names if is_arrow else X.columns)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"Every column needs a name of its own. {twice[0]!r} is there twice. Rename or drop "
            "one of them."
        )
    frame = nw.from_native(X, eager_only=True)
    return dict(zip(names, frame.iter_columns(), strict=True))


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
    if dtype == nw.String and all(isinstance(v, str) or _is_nothing(v) for v in values):
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
    if _is_nothing(value):
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


def _is_nothing(value: Any) -> bool:
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
