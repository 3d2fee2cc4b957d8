"""How many files and functions the four calls of most users pass through, now and before."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.against import calls
from benchmarks.against.study import ROOT, commit_of, run_with
from benchmarks.record import Content, Record, Records
from benchmarks.text import markdown

MEASURES = ("files", "functions", "depth")


@dataclass(frozen=True)
class TracePlan:
    """The commit of the older source tree, if there is one to compare with."""

    before: str | None = None


def measure_trace(records: Records, before: Path | None = None) -> Record:
    """Trace this source tree and, with ``before``, an older one."""
    plan = TracePlan(None if before is None else commit_of(before))
    record = records.open("trace", plan=vars(plan))
    trees = {"now": ROOT / "src"} if before is None else {"before": before, "now": ROOT / "src"}
    for name, tree in trees.items():
        record.cell(name, partial(_counts, tree))
    record.finish()
    return record


def _counts(tree: Path) -> dict[str, object]:
    files = list(tree.rglob("*.py"))
    lines = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    return {"files": len(files), "lines": lines, "calls": run_with(tree, calls.__name__)}


def trace_table(record: Content) -> list[str]:
    """A line for every call; before and now where there are both."""
    trees = record["cells"]
    rows = [
        [
            f"`{call}`",
            *(_text([tree["calls"][call][m] for tree in trees.values()]) for m in MEASURES),
        ]
        for call in trees["now"]["calls"]
    ]
    sizes = {name: [tree[name] for tree in trees.values()] for name in ("files", "lines")}
    last = f"`src` has {_text(sizes['lines'])} lines in {_text(sizes['files'])} files."
    return [*markdown(["call", *MEASURES], rows), "", last]


def _text(numbers: list[int]) -> str:
    """One number, or that of before and that of now."""
    return " → ".join(f"{number:,}" for number in numbers)
