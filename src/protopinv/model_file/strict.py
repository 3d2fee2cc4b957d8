"""JSON from a stranger: of limited size and depth, without doubled names, with finite numbers."""

import json
import math
from collections.abc import Iterable
from typing import Any

from protopinv.plain import visible

MOST_DEPTH = 32
# Values of one text at most; each becomes an object of Python, of up to a hundred bytes or so.
MOST_VALUES = 2**21


def parsed(text: bytes) -> dict[str, Any]:
    """A JSON object; raises ValueError for what is none, or breaks one of the rules."""
    value = strict(text)
    if not isinstance(value, dict):
        raise ValueError("its header is not an object")
    return value


def strict(text: bytes) -> Any:
    """Any JSON value, by the same rules."""
    if n_values(text) > MOST_VALUES:
        raise ValueError(f"its header has more than {MOST_VALUES:,} values")
    value = json.loads(
        text.decode(), object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite
    )
    _check_depth(value)
    if b"\\u" in text:  # other texts were decoded, and have whole characters
        json.dumps(value, ensure_ascii=False).encode()  # raises for half a character
    return value


def n_values(text: bytes) -> int:
    """As many values as a JSON text may have, known before it is read."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def _check_depth(value: Any) -> None:
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise ValueError(f"its header is nested more than {MOST_DEPTH} deep")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"its header holds {text[:20]}")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError(f"{_twice(name for name, _ in pairs)!r} appears twice in its header")
    return value


def _twice(names: Iterable[str]) -> str:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return visible(name)[:40]
        seen.add(name)
    raise AssertionError("all names are different")


def _refuse(name: str) -> None:
    raise ValueError(f"its header holds {name}")
