"""What every value of our header must be: its type and its range, by name."""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from protopinv.plain import UnfitError, visible
from protopinv.train.config import RegressionLoss, Rule

DTYPES = ("float64", "float32", "float16", "int8")
ENDINGS = ("finished", "stopped early", "interrupted")
# Types of labels, as NumPy writes them.
LABEL_TYPE = re.compile(r"[<>|=]?[biufU]\d{1,9}|\|O")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e300


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _list_of(test: Callable[[Any], bool], words: str) -> Rule:
    return Rule(
        lambda value: isinstance(value, list) and all(map(test, value)), f"a list of {words}"
    )


def _or_none(rule: Rule) -> Rule:
    return Rule(lambda value: value is None or rule.test(value), f"{rule.text}, or null")


def _one_of(*values: str) -> Rule:
    return Rule(lambda value: _is_text(value) and value in values, f"one of {', '.join(values)}")


_ANY = Rule(lambda _: True, "anything")
_TEXT = Rule(_is_text, "a text")
_BOOL = Rule(lambda value: isinstance(value, bool), "true or false")
# beyond 2**53 there is no count of anything
_COUNT = Rule(lambda v: type(v) is int and 0 <= v <= 2**53, "a whole number, 0 or more")
_SIZE = Rule(lambda value: _is_number(value) and value >= 0, "a number, 0 or more")
_POSITIVE = Rule(lambda value: _is_number(value) and value > 0, "a positive number")
_SEED = Rule(lambda value: type(value) is int and 0 <= value < 2**32, "a seed")
_OBJECT = Rule(lambda value: isinstance(value, dict), "an object")
_TEXTS = _list_of(_is_text, "texts")
_NUMBERS = _list_of(_is_number, "numbers")
_LABELS = _list_of(lambda v: _is_number(v) or isinstance(v, bool | str), "numbers or texts")
_LABEL_TYPE = Rule(lambda v: _is_text(v) and bool(LABEL_TYPE.fullmatch(v)), "a type of labels")
_RANGE = Rule(
    lambda value: _NUMBERS.test(value) and len(value) == 2 and value[0] <= value[1],
    "two numbers, the least first",
)

_HEADER = {
    "needs": _TEXTS,
    "task": _TEXT,
    "objective": _OBJECT,
    "feature_names": _or_none(_TEXTS),
    "activation": _TEXT,
    "network_dtype": _one_of(*DTYPES),
    "parameters": _OBJECT,
    "config": _OBJECT,
    "history": _OBJECT,
}
# What files of an earlier version may lack.
_OPTIONAL = {
    "target_names": _or_none(_TEXTS),
    "examples": _or_none(_one_of("made-up", "training")),
    "image_range": _or_none(_RANGE),
    "table": _or_none(_OBJECT),
    "memory": _or_none(_OBJECT),
    "sharpness": _or_none(_POSITIVE),
}
_HISTORY = {
    "seconds": _SIZE,
    "ending": _one_of(*ENDINGS),
    "best_epoch": _or_none(_COUNT),
    "kept_epoch": _or_none(_COUNT),
    "steps": _COUNT,
    "skipped_steps": _COUNT,
    "rate_cuts": _COUNT,
    "events": _TEXTS,
}
_MEMORY = {"limit": _COUNT, "is_cut": _BOOL, "n_frozen": _COUNT, "is_closed": _BOOL}
_OPTIONAL_MEMORY = {"fitted": _SIZE, "n_calls": _COUNT}
OBJECTIVES = {
    "classification": {"classes": _LABELS, "classes_dtype": _LABEL_TYPE},
    "multi-label": {"n_labels": _COUNT},
    "regression": {
        "centre": _NUMBERS,
        "spread": _list_of(_POSITIVE.test, "positive numbers"),
        "variance": _list_of(_SIZE.test, "numbers, 0 or more"),
        "is_column": _BOOL,
        "loss": _one_of(*get_args(RegressionLoss)),
    },
}
_BOUNDS = {"low": _or_none(_NUMBERS), "high": _or_none(_NUMBERS)}
# Parameters that are no hyperparameters. The estimators check the others as a fit does.
PARAMETERS = {
    "columns": _or_none(_OBJECT),
    "device": _one_of("auto", "cpu"),
    "random_state": _or_none(_SEED),
}
PARAMETERS |= dict.fromkeys(("class_weight", "memory", "max_prototypes"), _ANY)
PARAMETERS |= dict.fromkeys(("warm_start", "bounded", "verbose"), _ANY)


def check_values(header: Mapping[str, Any]) -> None:
    """Raise UnfitError for a value that is missing, or of another kind than it must be."""
    _check("", header, _HEADER, _OPTIONAL)
    _check("history.", header["history"], _HISTORY)
    _check("parameters.", header["parameters"], {}, PARAMETERS)
    if header.get("memory") is not None:
        _check("memory.", header["memory"], _MEMORY, _OPTIONAL_MEMORY)
    task, described = header["task"], header["objective"]
    bounds = _BOUNDS if task == "regression" else {}
    _check("objective.", described, OBJECTIVES.get(task, {}), bounds)
    if task == "classification":
        labels_of(described)
    elif task == "regression":
        _check_targets(described)


def _check(
    where: str, values: Any, rules: Mapping[str, Rule], optional: Mapping[str, Rule] | None = None
) -> None:
    if not isinstance(values, dict):
        raise UnfitError(f"{where.rstrip('.')} is {visible(f'{values!r:.40}')}, not an object")
    for name, rule in {**rules, **(optional or {})}.items():
        if name in values and not rule.test(values[name]):
            raise UnfitError(
                f"{where}{name} is {visible(f'{values[name]!r:.40}')}, not {rule.text}"
            )
        if name in rules and name not in values:
            raise UnfitError(f"{where}{name} is missing")


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
