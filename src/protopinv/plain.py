"""Plain JSON values, and plain text: how ours are written, and what those of a stranger may be."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

# Characters that a terminal obeys instead of showing: controls, marks that turn the direction of
# writing, ends of lines, halves of characters.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MOST_DEPTH = 32
# Values of one text at most; each becomes an object of Python, of up to a hundred bytes or so.
MOST_VALUES = 2**21


class UnfitError(ValueError):
    """What does not fit in a file, as the end of a sentence."""


def visible(text: str) -> str:
    """A text on one line, with what a terminal would obey written as in JSON."""
    return OBEYED.sub(lambda each: f"\\u{ord(each[0]):04x}", text)


def plain(value: Any) -> Any:
    """The value with tuples and arrays as lists, and null for numbers that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def differences(one: Any, other: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two nested values differ: the names that lead there, and both values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            inner = f"{name}.{key}".strip(".")
            yield from differences(one.get(key), other.get(key), inner)
    elif one != other:
        yield name, one, other


def shortened(value: Any) -> str:
    """A value for a message, of one line at most."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def strict_json(text: bytes) -> Any:
    """A JSON value from a stranger; raises ValueError for one that breaks a rule.

    Its size and depth are limited, no name appears twice in an object, numbers are finite, and
    texts have whole characters.
    """
    if n_values(text) > MOST_VALUES:
        raise ValueError(f"its header has more than {MOST_VALUES:,} values")
    value = json.loads(
        text.decode(), object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite
    )
    level = [value]
    for _ in range(MOST_DEPTH):
        objects = [each for each in level if isinstance(each, dict | list)]
        level = [item for o in objects for item in (o.values() if isinstance(o, dict) else o)]
    if level:
        raise ValueError(f"its header is nested more than {MOST_DEPTH} deep")
    if b"\\u" in text:  # other texts were decoded, and have whole characters
        json.dumps(value, ensure_ascii=False).encode()  # raises for half a character
    return value


def n_values(text: bytes) -> int:
    """As many values as a JSON text may have, known before it is read."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"its header holds {text[:20]}")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"{visible(name)[:40]!r} appears twice in its header")
    return value
