"""docs/tables.md, from tables.txt and a dated record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from results_page import recipe

from benchmarks.tables.frames import frame_table

TEXT = Path(__file__).with_name("tables.txt")


def tables_page(newest: Mapping[str, Mapping[str, Any]]) -> str:
    """The page."""
    lines = TEXT.read_text(encoding="utf-8").splitlines()
    record = newest.get("frames-cpu")
    if record is not None:
        seeds = record["plan"]["seeds"]
        lines += [
            "",
            "## What it is worth",
            "",
            f"Accuracy in percent, R2 for interest and deliveries, mean ± deviation of {seeds} "
            "splits into four fifths and one fifth; median time of a fit on two cores. Everybody "
            "has its defaults and does with categories what it does; in the third column text "
            "became columns of 0 and 1 before, as is usual. Averages for numbers that repeat were "
            "found on adult, and their limits on tables of the development half of [the "
            "suite](accuracy.md), as the others here are:",
            "",
            *frame_table(record),
            "",
            "`python -m benchmarks frames --wheels FOLDER` makes it.",
            "",
            f"<sub>{recipe(record)}</sub>",
        ]
    return "\n".join(lines) + "\n"
