"""Ctrl-C at random moments of ``protopinv train``: how soon it ends, and what it leaves behind."""

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.text import markdown
from protopinv.files import TEMPORARY

# Seconds after the start of the process between which the moments lie; quick is done sooner.
MOMENTS = {"quick": (0.1, 8.0), "balanced": (0.1, 30.0), "best": (0.1, 30.0)}


@dataclass(frozen=True)
class InterruptPlan:
    """How often a training of each effort is interrupted, and the seed of the moments."""

    times: int = 20
    rows: int = 100_000
    columns: int = 30
    seed: int = 0
    quick: bool = False


def measure_interrupts(plan: InterruptPlan, records: Records) -> Record:
    """Every effort in turn, over a model that is there."""
    record = records.open("interrupts", plan=asdict(plan))
    with tempfile.TemporaryDirectory() as place:
        table = _written(plan, Path(place) / "rows.csv")
        for effort in MOMENTS:
            cell = record.cell(effort, partial(_interrupted, plan, table, effort))
            record.say(f"{effort}: {cell}")
    record.finish()
    return record


def _written(plan: InterruptPlan, path: Path) -> Path:
    """Classes by the sign of a wave over some of the columns, with noise."""
    rng = np.random.default_rng(plan.seed)
    X = rng.normal(size=(plan.rows, plan.columns))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=plan.rows) > 0
    names = ",".join([*(f"x{i}" for i in range(plan.columns)), "y"])
    values = np.column_stack([X, y])
    np.savetxt(path, values, delimiter=",", fmt="%.5g", header=names, comments="")
    return path


def _interrupted(plan: InterruptPlan, table: Path, effort: str) -> Cell:
    """Times from the signal to the end of the process, and what became of the model."""
    model = table.with_name("m.safetensors")
    small = ["--effort", "quick", "--max-epochs", "1"]
    _train(table, model, *small).wait()
    before = (model.read_bytes(), model.stat().st_ino)
    moments = np.random.default_rng(plan.seed).uniform(*MOMENTS[effort], plan.times)
    waits, ends, changed, left = [], [], 0, 0
    for moment in moments.tolist():
        process = _train(table, model, "--effort", effort)
        try:
            process.wait(moment)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        sent = time.perf_counter()
        ends.append(process.wait())
        if ends[-1] != 0:
            waits.append(time.perf_counter() - sent)
            changed += (model.read_bytes(), model.stat().st_ino) != before
        left += len([*table.parent.glob(f"{TEMPORARY}*")])
        before = (model.read_bytes(), model.stat().st_ino)
    return {
        "interrupts": sum(end != 0 for end in ends),
        "ended_before": sum(end == 0 for end in ends),
        "exit_codes": sorted(set(ends)),
        "median_seconds": statistics.median(waits) if waits else None,
        "longest_seconds": max(waits, default=None),
        "models_changed": changed,
        "files_left": left,
    }


def _train(table: Path, model: Path, *options: str) -> subprocess.Popen[bytes]:
    """``protopinv train`` as a program of its own, with Ctrl-C as a terminal has it."""
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from protopinv.cli import main; main()"
    )
    arguments = ["train", str(table), "--target", "y", "-o", str(model), *options]
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def interrupts_table(record: Content) -> list[str]:
    """A line an effort."""
    rows = [
        [
            effort,
            str(cell["interrupts"]),
            *(_seconds(cell[f"{name}_seconds"]) for name in ("median", "longest")),
            str(cell["models_changed"]),
            str(cell["files_left"]),
        ]
        for effort, cell in record["cells"].items()
    ]
    header = ["effort", "interrupts", "end after, median", "longest", "models changed"]
    return markdown([*header, "temporary files left"], rows)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"
