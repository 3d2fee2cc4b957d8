"""What every value of our header may be: its type and its range.

Without torch, so that a look at a file and its loading ask for the same.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.plain import visible

DTYPES = ("float64", "float32", "float16", "int8")
ENDINGS = ("finished", "stopped early", "interrupted")
LOSSES = ("squared", "huber")
# Types of labels, as NumPy writes them.
LABELS = re.compile(r"[<>|=]?[biufU]\d{1,9}|\|O")
# Whole numbers beyond this are no counts of anything; others lose nothing as a float.
MOST_COUNTED = 2**53
LARGEST = 1e300

# Whether a value may stand under a name, and what it must be, in words.
Rule = tuple[Callable[[Any], bool], str]


class UnfitError(ValueError):
    """What does not fit in a file, as the end of a sentence."""


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= LARGEST


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_COUNTED


def _list_of(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(test, value))


def _or_none(rule: Rule) -> Rule:
    test, words = rule
    return lambda value: value is None or test(value), f"{words}, or null"


def _one_of(*values: str) -> Rule:
    return lambda value: isinstance(value, str) and value in values, f"one of {', '.join(values)}"


TEXT: Rule = (lambda value: isinstance(value, str), "a text")
TEXTS: Rule = (_list_of(TEXT[0]), "a list of texts")
BOOL: Rule = (lambda value: isinstance(value, bool), "true or false")
COUNT: Rule = (_is_count, "a whole number, 0 or more")
SIZE: Rule = (lambda value: _is_number(value) and value >= 0, "a number, 0 or more")
POSITIVE: Rule = (lambda value: _is_number(value) and value > 0, "a positive number")
OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")
NUMBERS: Rule = (_list_of(_is_number), "a list of numbers")
SIZES: Rule = (_list_of(SIZE[0]), "a list of numbers, 0 or more")
SPREADS: Rule = (_list_of(POSITIVE[0]), "a list of positive numbers")
RANGE: Rule = (
    lambda value: NUMBERS[0](value) and len(value) == 2 and value[0] <= value[1],
    "two numbers, the least first",
)

HEADER: dict[str, Rule] = {
    "needs": TEXTS,
    "task": TEXT,
    "objective": OBJECT,
    "feature_names": _or_none(TEXTS),
    "activation": TEXT,
    "network_dtype": _one_of(*DTYPES),
    "parameters": OBJECT,
    "config": OBJECT,
    "history": OBJECT,
}
# What files of an earlier version may lack.
OPTIONAL: dict[str, Rule] = {
    "target_names": _or_none(TEXTS),
    "examples": _or_none(_one_of("made-up", "training")),
    "image_range": _or_none(RANGE),
    "table": _or_none(OBJECT),
    "memory": _or_none(OBJECT),
    "sharpness": _or_none(POSITIVE),
}
HISTORY: dict[str, Rule] = {
    "seconds": SIZE,
    "ending": _one_of(*ENDINGS),
    "best_epoch": _or_none(COUNT),
    "kept_epoch": _or_none(COUNT),
    "steps": COUNT,
    "skipped_steps": COUNT,
    "rate_cuts": COUNT,
    "events": TEXTS,
}
MEMORY: dict[str, Rule] = {
    "limit": COUNT,
    "is_cut": BOOL,
    "n_frozen": COUNT,
    "is_closed": BOOL,
}
OPTIONAL_MEMORY: dict[str, Rule] = {"fitted": SIZE, "n_calls": COUNT}
CLASSES: dict[str, Rule] = {
    "classes": (
        _list_of(lambda each: _is_number(each) or isinstance(each, bool | str)),
        "a list of numbers or texts",
    ),
    "classes_dtype": (
        lambda value: isinstance(value, str) and LABELS.fullmatch(value) is not None,
        "a type of labels",
    ),
}
TARGETS: dict[str, Rule] = {
    "centre": NUMBERS,
    "spread": SPREADS,
    "variance": SIZES,
    "is_column": BOOL,
    "loss": _one_of(*LOSSES),
}
BOUNDS: dict[str, Rule] = {"low": _or_none(NUMBERS), "high": _or_none(NUMBERS)}


def check_header(header: Mapping[str, Any]) -> None:
    """Raise UnfitError for a value that is missing, or of another kind than it must be."""
    _check("", header, HEADER, OPTIONAL)
    _check("history.", header["history"], HISTORY)
    if header.get("memory") is not None:
        _check("memory.", header["memory"], MEMORY, OPTIONAL_MEMORY)
    check_objective(header["task"], header["objective"])


def check_objective(task: str, described: Mapping[str, Any]) -> None:
    """Raise UnfitError unless outputs of a known task are described as they must be."""
    if task == "classification":
        _check("objective.", described, CLASSES)
        labels_of(described)
    elif task == "multi-label":
        _check("objective.", described, {"n_labels": COUNT})
    elif task == "regression":
        _check("objective.", described, TARGETS, BOUNDS)
        _check_targets(described)


def n_outputs(task: str, described: Mapping[str, Any]) -> int:
    """Of a network for this task, whose objective was checked."""
    if task == "classification":
        return len(described["classes"])
    return int(described["n_labels"]) if task == "multi-label" else len(described["centre"])


def labels_of(described: Mapping[str, Any]) -> NDArray[Any]:
    """Classes as the array they were: sorted, all different, of a type no wider than they are."""
    labels, dtype = described["classes"], described["classes_dtype"]
    if len(labels) < 2:
        raise UnfitError("it has fewer than two classes")
    array = np.array(labels, dtype=object)
    if dtype == "|O":
        if not all(isinstance(label, str) for label in labels):
            raise UnfitError("classes are not all texts, nor all numbers")
    else:
        array = _typed(array, dtype, labels)
    if array.dtype.kind == "f" and any(each % 1 or abs(each) >= 2**63 for each in labels):
        raise UnfitError("classes that are numbers with digits after the point")
    if any(not before < after for before, after in pairwise(labels)):
        raise UnfitError("a class appears twice, or they are not in order")
    return array


def _typed(array: NDArray[Any], dtype: str, labels: list[Any]) -> NDArray[Any]:
    try:
        kind = np.dtype(dtype)
        widest = np.array(labels).dtype if kind.kind == "U" else kind
        if kind.itemsize > widest.itemsize:
            raise UnfitError(f"labels of type {dtype!r:.20}")
        array = array.astype(kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnfitError(f"labels of type {dtype!r:.20}") from error
    if array.tolist() != labels:
        raise UnfitError("labels that are not of their type")
    return array


def _check_targets(described: Mapping[str, Any]) -> None:
    n, low, high = len(described["centre"]), described.get("low"), described.get("high")
    lists = [described["spread"], described["variance"], *(b for b in (low, high) if b is not None)]
    if not n or any(len(each) != n for each in lists):
        raise UnfitError("scales or bounds for other targets")
    if (low is None) != (high is None) or any(
        not a <= b for a, b in zip(low or (), high or (), strict=True)
    ):
        raise UnfitError("bounds of which the lower is above the upper, or is missing")
    if described["is_column"] and n != 1:
        raise UnfitError(f"{n} targets in a single column")


def _check(
    where: str,
    values: Mapping[str, Any],
    rules: Mapping[str, Rule],
    optional: Mapping[str, Rule] | None = None,
) -> None:
    for name, (test, words) in rules.items():
        if name not in values:
            raise UnfitError(f"{where}{name} is missing")
        _check_value(f"{where}{name}", values[name], test, words)
    for name, (test, words) in (optional or {}).items():
        if name in values:
            _check_value(f"{where}{name}", values[name], test, words)


def _check_value(name: str, value: Any, test: Callable[[Any], bool], words: str) -> None:
    if not test(value):
        raise UnfitError(f"{name} is {visible(f'{value!r:.40}')}, not {words}")
