"""Is anything slower than it was? Two source trees do the same work in turns, on one machine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.against import work
from benchmarks.plans import require_some
from benchmarks.record import Cell, Content, Record, Records
from benchmarks.text import markdown
from protopinv.errors import ConfigError

TASKS = tuple(work.TASKS)
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class AgainstPlan:
    """Which tasks, how often each, and the commit of the older source tree."""

    before: str
    tasks: tuple[str, ...] = TASKS
    repeats: int = 7

    def __post_init__(self) -> None:
        require_some("tasks", self.tasks, TASKS)


def measure_against(
    before: Path, records: Records, *, tasks: tuple[str, ...] = TASKS, repeats: int = 7
) -> Record:
    """Every task in turns with the source tree ``before`` and with this one."""
    plan = AgainstPlan(commit_of(before), tasks, repeats)
    record = records.open("against", plan=asdict(plan))
    for task in tasks:
        cell = record.cell(task, partial(_compared, task, before, repeats))
        for name, *_, ratio in _rows(task, cell):
            record.say(f"{name}: {ratio}")
    record.finish()
    return record


def _compared(task: str, before: Path, repeats: int) -> Cell:
    """Seconds of every part, before and now; who comes first changes."""
    now = ROOT / "src"
    seconds: Cell = {}
    for repeat in range(repeats):
        order = [("before", before), ("now", now)]
        for name, tree in order if repeat % 2 else order[::-1]:
            for part, value in _run(task, tree).items():
                seconds.setdefault(part, {"before": [], "now": []})[name].append(value)
    return seconds


def _run(task: str, tree: Path) -> work.Seconds:
    seconds: work.Seconds = run_with(tree, work.__name__, task)
    return seconds


def run_with(tree: Path, module: str, *arguments: str) -> Any:
    """What a module prints as JSON when it is run with another source tree."""
    path = os.pathsep.join([str(tree), str(ROOT)])
    result = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise RuntimeError(f"{module} with {tree} failed: {result.stderr[-2_000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def _rows(task: str, cell: Mapping[str, Any]) -> list[list[str]]:
    """Medians, and the median of the ratios of each turn with its quartiles."""
    rows = []
    for part, seconds in cell.items():
        before, now = (np.array(seconds[name]) for name in ("before", "now"))
        low, middle, high = np.quantile(now / before, (0.25, 0.5, 0.75))
        medians = [f"{1e3 * np.median(each):,.1f} ms" for each in (before, now)]
        rows.append([f"{task}, {part}", *medians, f"{middle:.2f} [{low:.2f}, {high:.2f}]"])
    return rows


def against_table(record: Content) -> list[str]:
    """A line for every part of every task."""
    rows = [row for task, cell in record["cells"].items() for row in _rows(task, cell)]
    return markdown(["", "before", "now", "ratio, with quartiles"], rows)


def commit_of(tree: Path) -> str:
    """Which commit a source tree is at."""
    command = ["git", "rev-parse", "--short=10", "HEAD"]
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if result.returncode or not (tree / "protopinv").is_dir():
        raise ConfigError(
            f"--before must be the folder src of another checkout. {tree} is none. Make one with "
            "'git worktree add'."
        )
    return result.stdout.strip()
