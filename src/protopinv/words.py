"""What words in a table mean: gaps, numbers, and names that are nearly right."""

import difflib
import math
import re
from collections.abc import Iterable

# Words for "nothing is known", in lower case.
GAPS = frozenset({"", "?", "-", "--", ".", "na", "n/a", "#n/a", "nan", "null", "none", "missing"})
# A number as people write it; "007" is a name, not a number.
NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
# Text is numbers or dates if nearly all of it can be read as such.
NEARLY_ALL = 0.95
# So many different whole numbers at most are taken for classes.
MOST_WHOLE_CLASSES = 20


def is_gap(text: str | None) -> bool:
    """Whether a text says that nothing is known."""
    return text is None or text.strip().lower() in GAPS


def number_of(text: str) -> float:
    """The number that is written there, 1 and 0 for true and false, or NaN."""
    text = text.strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    number = float(text) if NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else math.nan


def hint(name: str, there: Iterable[str]) -> str:
    """A name that is there and looks like it, or what to check."""
    close = difflib.get_close_matches(name, list(there), n=1)
    return f"Did you mean {close[0]!r}?" if close else "Check the spelling."
