"""Plain JSON values, and plain text: what every reader of them understands."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

# Characters that a terminal obeys instead of showing: controls, marks that turn the direction of
# writing, ends of lines, halves of characters.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


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
