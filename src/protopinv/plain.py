"""Plain JSON values, and plain text: how ours are written, and what those of a stranger may be."""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from protopinv.errors import ConfigError

# Characters that a terminal obeys instead of showing: controls, marks that turn the direction of
# writing, ends of lines, halves of characters.
OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MOST_DEPTH = 32
# Values of one text at most; each becomes an object of Python, of up to a hundred bytes or so.
MOST_VALUES = 2**21
LARGEST = 1e300


class UnfitError(ValueError):
    """What does not fit in a file, as the end of a sentence."""


class Rule(NamedTuple):
    """What a value must be: a test, and the words for it."""

    test: Callable[[Any], bool]
    text: str


def require_rule(name: str, value: Any, rule: Rule, remedy: str = "Change it.") -> None:
    """Raise ConfigError for an argument that its rule does not allow."""
    if not rule.test(value):
        raise ConfigError(f"{name} must be {rule.text}. Got {value!r}. {remedy}")


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


def first_line(error: Exception) -> str:
    """What an error says first, or its kind where it says nothing."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


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


def check(
    where: str, values: Any, rules: Mapping[str, Rule], optional: Mapping[str, Rule] | None = None
) -> None:
    """Raise UnfitError for a value that is missing, or that its rule does not allow."""
    if not isinstance(values, dict):
        raise UnfitError(f"{where.rstrip('.')} is {visible(f'{values!r:.40}')}, not an object")
    for name, rule in {**rules, **(optional or {})}.items():
        if name in values and not rule.test(values[name]):
            raise UnfitError(
                f"{where}{name} is {visible(f'{values[name]!r:.40}')}, not {rule.text}"
            )
        if name in rules and name not in values:
            raise UnfitError(f"{where}{name} is missing")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def list_of(rule: Rule, words: str) -> Rule:
    """A rule for a list of values."""
    return Rule(
        lambda value: isinstance(value, list) and all(map(rule.test, value)), f"a list of {words}"
    )


def or_none(rule: Rule) -> Rule:
    """A rule that allows null too."""
    return Rule(lambda value: value is None or rule.test(value), f"{rule.text}, or null")


def one_of(*values: str) -> Rule:
    """A rule for some texts."""
    return Rule(
        lambda v: isinstance(v, str) and v in values, f"one of {', '.join(map(repr, values))}"
    )


ANY = Rule(lambda _: True, "anything")
TEXT = Rule(lambda value: isinstance(value, str), "a text")
BOOL = Rule(lambda value: isinstance(value, bool), "true or false")
# beyond 2**53 there is no count of anything
COUNT = Rule(lambda v: type(v) is int and 0 <= v <= 2**53, "a whole number, 0 or more")
NUMBER = Rule(_is_number, "a number")
SIZE = Rule(lambda value: _is_number(value) and value >= 0, "a number, 0 or more")
POSITIVE = Rule(lambda value: _is_number(value) and value > 0, "a positive number")
OBJECT = Rule(lambda value: isinstance(value, dict), "an object")
TEXTS = list_of(TEXT, "texts")
NUMBERS = list_of(NUMBER, "numbers")
