"""docs/tables.md, from tables.txt and a dated record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from results_page import recipe

from benchmarks.tables.text import frame_tables
from benchmarks.text import markdown

TEXT = Path(__file__).with_name("tables.txt")
# Columns of a record that has seeds instead of folds.
TITLES = {
    "quick": 'effort="quick"',
    "balanced": 'effort="balanced"',
    "quick, numbers": "quick, text as 0 and 1",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}

COMMAND = """\
`python -m benchmarks frames --wheels FOLDER` measures these frames again, with more measures and
contestants, in three folds. With `--folder` it takes [Parquet files of your
own](choose.md#on-your-own-tables).\
""".splitlines()


def tables_page(newest: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    record = newest.get("frames-cpu")
    if record is not None:
        by_seed = "seeds" in record["plan"]
        lines += ["", "## What it is worth", "", *(_by_seed if by_seed else _by_fold)(record)]
        lines += ["", *COMMAND, "", f"<sub>{recipe(record)}</sub>"]
    return "\n".join(lines) + "\n"


def _by_fold(record: Mapping[str, Any]) -> list[str]:
    return [
        "Scores in cross-validation, every library with its defaults on frames as they are; times "
        "of one machine in one run:",
        "",
        *frame_tables(record),
    ]


def _by_seed(record: Mapping[str, Any]) -> list[str]:
    """A line a frame: what it is, and the score and time of every contestant over splits."""
    cells, plan = record["cells"], record["plan"]
    lines = []
    for table in plan["tables"]:
        about = cells[table]
        values = f"{about['categories']}, {about['most_values']}"
        line = [f"{table}, {about['rows']:,} rows", values]
        for who in TITLES:
            runs = [cells[f"{table}/{who}/{seed}"] for seed in range(plan["seeds"])]
            points = [100 * cell["score"] for cell in runs]
            time = np.median([cell["seconds"] for cell in runs])
            line.append(f"{np.mean(points):.2f} ± {np.std(points):.2f}, {time:.1f} s")
        lines.append(line)
    return [
        f"Accuracy in percent, R2 for interest and deliveries, mean ± deviation of {plan['seeds']} "
        "splits into four fifths and one fifth; median time of a fit on two cores. Everybody "
        "has its defaults and does with categories what it does; in the third column text "
        "became columns of 0 and 1 before, as is usual. Averages for numbers that repeat were "
        "found on adult, and their limits on tables of the development half of [the "
        "suite](accuracy.md), as the others here are:",
        "",
        *markdown(["", "categories, most values", *TITLES.values()], lines),
    ]
