"""What every value of our header must be: its type and its range, by name."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from protopinv.plain import (
    ANY,
    BOOL,
    COUNT,
    NUMBER,
    NUMBERS,
    OBJECT,
    POSITIVE,
    SIZE,
    TEXT,
    TEXTS,
    Rule,
    UnfitError,
    check,
    list_of,
    one_of,
    or_none,
)
from protopinv.train.config import RegressionLoss

DTYPES = ("float64", "float32", "float16", "int8")
ENDINGS = ("finished", "stopped early", "interrupted")
# Types of labels, as NumPy writes them.
LABEL_TYPE = re.compile(r"[<>|=]?[biufU]\d{1,9}|\|O")


_SEED = Rule(lambda value: type(value) is int and 0 <= value < 2**32, "a seed")
_LABEL = Rule(lambda v: NUMBER.test(v) or isinstance(v, bool | str), "a number or a text")
_LABELS = list_of(_LABEL, "numbers or texts")
_LABEL_TYPE = Rule(lambda v: TEXT.test(v) and bool(LABEL_TYPE.fullmatch(v)), "a type of labels")
_RANGE = Rule(
    lambda value: NUMBERS.test(value) and len(value) == 2 and value[0] <= value[1],
    "two numbers, the least first",
)

_HEADER = {
    "needs": TEXTS,
    "task": TEXT,
    "objective": OBJECT,
    "feature_names": or_none(TEXTS),
    "activation": TEXT,
    "network_dtype": one_of(*DTYPES),
    "parameters": OBJECT,
    "config": OBJECT,
    "history": OBJECT,
}
# What files of an earlier version may lack.
_OPTIONAL = {
    "target_names": or_none(TEXTS),
    "examples": or_none(one_of("made-up", "training")),
    "image_range": or_none(_RANGE),
    "table": or_none(OBJECT),
    "memory": or_none(OBJECT),
    "sharpness": or_none(POSITIVE),
    "weight": POSITIVE,
    "ensemble": list_of(OBJECT, "objects"),
}
# What each further model of an ensemble has for its own.
_OTHER = {
    "activation": TEXT,
    "config": OBJECT,
    "history": OBJECT,
    "sharpness": POSITIVE,
    "weight": POSITIVE,
    "n_frozen": COUNT,
    "n_calls": COUNT,
}
_HISTORY = {
    "seconds": SIZE,
    "ending": one_of(*ENDINGS),
    "best_epoch": or_none(COUNT),
    "kept_epoch": or_none(COUNT),
    "steps": COUNT,
    "skipped_steps": COUNT,
    "rate_cuts": COUNT,
    "events": TEXTS,
}
_MEMORY = {"limit": COUNT, "is_cut": BOOL, "n_frozen": COUNT, "is_closed": BOOL}
_OPTIONAL_MEMORY = {"fitted": SIZE, "n_calls": COUNT}
OBJECTIVES = {
    "classification": {"classes": _LABELS, "classes_dtype": _LABEL_TYPE},
    "multi-label": {"n_labels": COUNT},
    "regression": {
        "centre": NUMBERS,
        "spread": list_of(POSITIVE, "positive numbers"),
        "variance": list_of(SIZE, "numbers, 0 or more"),
        "is_column": BOOL,
        "loss": one_of(*get_args(RegressionLoss)),
    },
}
_BOUNDS = {"low": or_none(NUMBERS), "high": or_none(NUMBERS)}
# Parameters that are no hyperparameters. The estimators check the others as a fit does.
PARAMETERS = {
    "columns": or_none(OBJECT),
    "device": one_of("auto", "cpu"),
    "random_state": or_none(_SEED),
}
PARAMETERS |= dict.fromkeys(("class_weight", "memory", "max_prototypes"), ANY)
PARAMETERS |= dict.fromkeys(("warm_start", "bounded", "verbose"), ANY)


def check_values(header: Mapping[str, Any]) -> None:
    """Raise UnfitError for a value that is missing, or of another kind than it must be."""
    check("", header, _HEADER, _OPTIONAL)
    check("history.", header["history"], _HISTORY)
    for number, other in enumerate(header.get("ensemble", ()), start=1):
        check(f"ensemble {number}.", other, _OTHER)
        check(f"ensemble {number}.history.", other["history"], _HISTORY)
    check("parameters.", header["parameters"], {}, PARAMETERS)
    if header.get("memory") is not None:
        check("memory.", header["memory"], _MEMORY, _OPTIONAL_MEMORY)
    task, described = header["task"], header["objective"]
    bounds = _BOUNDS if task == "regression" else {}
    check("objective.", described, OBJECTIVES.get(task, {}), bounds)
    if task == "classification":
        labels_of(described)
    elif task == "regression":
        _check_targets(described)


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
