"""Messy tables through every command: each works, or is refused in one line.

Columns, targets, names and the format of a file are drawn at random; the rows that a model is used
on are drawn anew, with values that it has never seen.
"""

import contextlib
import csv
import io
import json
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.record import Cell, Content, Record, Records, Say
from benchmarks.text import markdown
from protopinv.cli.app import app, run
from protopinv.cli.output import ExitCode

Column = list[str]
SHORT = ["--effort", "quick", "--max-epochs", "3", "--quiet"]
WORDS = ("a", "b ", "Ä", "0", "007", "x,y", 'say "hi"', "two\nlines", "\t", "<b>&amp;</b>", "', [")
NAMES = (
    "",
    "a b",
    "naïve",
    "x",
    "y,z",
    '"',
    "<script>",
    "row\nbreak",
    "1",
    "int",
    "=1+1",
    "é" * 300,
)
GAPS = ("", "NA", "?", "null", "nan", " ")
DATES = ("%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y %H:%M", "%b %d, %Y")


def _numbers(n: int, rng: Generator) -> Column:
    scale = 10.0 ** rng.integers(-12, 13)
    return [f"{value:.6g}" for value in rng.normal(size=n) * scale]


def _tails(n: int, rng: Generator) -> Column:
    return [f"{value:.17g}" for value in np.exp(rng.normal(size=n) * rng.choice([1, 40, 200]))]


def _whole(n: int, rng: Generator) -> Column:
    most = int(rng.choice([2, 9, 10**6, 2**53, 2**62]))
    return [str(value) for value in rng.integers(0, most, n)]


def _words(n: int, rng: Generator) -> Column:
    return [str(value) for value in rng.choice(WORDS, n)]


def _own(n: int, rng: Generator) -> Column:
    return [f"name {value}" for value in rng.permutation(n)]


def _mixed(n: int, rng: Generator) -> Column:
    odd = ("60kg", "inf", "-inf", "1e999", "12:30", "$5", "1,5", "--", "1_000", "0x10", "٣")
    return [str(rng.choice(odd)) if rng.random() < 0.2 else cell for cell in _numbers(n, rng)]


def _dates(n: int, rng: Generator) -> Column:
    form = rng.choice(DATES, 1 if rng.random() < 0.7 else n)
    days = np.datetime64("1999-12-25") + rng.integers(0, 9_000, n)
    moments = days.astype("datetime64[s]").tolist()
    return [moment.strftime(str(form[i % len(form)])) for i, moment in enumerate(moments)]


def _answers(n: int, rng: Generator) -> Column:
    pair = (("True", "False"), ("yes", "no"), ("0", "1"), ("TRUE", "false"))[rng.integers(4)]
    return [pair[i] for i in rng.integers(0, 2, n)]


def _constant(n: int, rng: Generator) -> Column:
    return [str(rng.choice(["", "1", "same", "NA"]))] * n


def _long(n: int, rng: Generator) -> Column:
    return ["z" * int(rng.choice([1, 100, 200_000])) if i < 2 else "z" for i in range(n)]


KINDS: tuple[Callable[[int, Generator], Column], ...] = (
    *(_numbers, _tails, _whole, _words, _own, _mixed, _dates, _answers, _constant, _long),
)


@dataclass(frozen=True)
class Drawn:
    """A table drawn at random: its names, the kinds of its columns, and the format of files."""

    names: list[str]
    kinds: list[int]
    target: str
    gaps: float
    form: dict[str, Any]

    @classmethod
    def by(cls, rng: Generator) -> "Drawn":
        """Up to ten columns, the last of which is the target."""
        n = int(rng.integers(1, 11))
        names = [str(name) for name in rng.choice(NAMES, n)]
        if rng.random() < 0.9:  # mostly each has a name of its own
            names = [f"{name}{number}" for number, name in enumerate(names)]
        names.append("target" if rng.random() < 0.95 else names[-1])
        form = {
            "delimiter": str(rng.choice([",", ";", "\t", "|"])),
            "lineterminator": str(rng.choice(["\n", "\r\n", "\r"], p=[0.7, 0.2, 0.1])),
            "encoding": str(
                rng.choice(["utf-8", "utf-8-sig", "cp1252", "utf-16"], p=[0.6, 0.2, 0.1, 0.1])
            ),
            "suffix": str(rng.choice([".csv", ".csv", ".tsv", ".txt", ".csv.gz", ".parquet"])),
        }
        gaps = float(rng.choice([0, 0.1, 0.9], p=[0.4, 0.4, 0.2]))
        return cls(names, rng.integers(0, len(KINDS), n + 1).tolist(), names[-1], gaps, form)

    def written(self, folder: Path, stem: str, n: int, rng: Generator) -> Path:
        """A file of ``n`` rows."""
        columns = []
        for number, kind in enumerate(self.kinds):
            cells = KINDS[kind](n, rng)
            share = self.gaps if number < len(self.kinds) - 1 else 0.01 * (rng.random() < 0.1)
            columns.append([str(rng.choice(GAPS)) if rng.random() < share else c for c in cells])
        rows = [list(row) for row in zip(*columns, strict=True)]
        if rng.random() < 0.05 and rows:
            rows[-1].append("one too many")
        path = folder / f"{stem}{self.form['suffix']}"
        if path.suffix == ".parquet":
            _write_parquet(path, self.names, columns)
            return path
        text = io.StringIO(newline="")
        ends = {name: self.form[name] for name in ("delimiter", "lineterminator")}
        csv.writer(text, **ends).writerows([self.names, *rows])
        raw = text.getvalue().encode(self.form["encoding"], errors="replace")
        if path.suffix == ".gz":
            import gzip

            raw = gzip.compress(raw)
        path.write_bytes(raw)
        return path


def _write_parquet(path: Path, names: list[str], columns: list[Column]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [pa.array([None if cell == "" else cell for cell in each]) for each in columns]
    pq.write_table(pa.Table.from_arrays(arrays, names=names), path)


def commands(table: Drawn, folder: Path, rng: Generator) -> list[list[str]]:
    """The commands for a table, in order; later ones need the model of the first."""
    sizes = [1, 3, 20, 60, 150]
    rows = table.written(folder, "rows", int(rng.choice(sizes, p=[0.05, 0.05, 0.2, 0.4, 0.3])), rng)
    other = table.written(folder, "other", int(rng.choice(sizes)), rng)
    model, target = str(folder / "m.safetensors"), ["--target", table.target]
    encoding = ["--encoding", "utf-16"] if table.form["encoding"] == "utf-16" else []
    if rows.suffix == ".parquet":
        encoding = []
    calls = [
        ["train", str(rows), *target, "-o", model, *encoding, *SHORT],
        ["inspect", model],
        ["evaluate", model, str(other), *encoding],
        ["predict", model, str(other), "-o", str(folder / "p.csv"), *encoding],
        ["report", model, "--data", str(other), "-o", str(folder / "r.html"), *encoding],
        ["report", model, "-o", str(folder / "plain.html")],
        ["diagnose", model],
    ]
    endings = ("m.onnx", "m.c", "m.mjs", "small.safetensors")
    return [*calls, *(["export", model, str(folder / name)] for name in endings)]


def outcome(arguments: list[str]) -> tuple[int, str]:
    """The exit code of a command and what it wrote on stderr, or a traceback."""
    errors, before = io.StringIO(), sys.argv
    sys.argv = ["protopinv", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            run(app)
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()
        except BaseException:
            return ExitCode.DEFECT, traceback.format_exc()
        finally:
            sys.argv = before
    return ExitCode.OK, errors.getvalue()


def fault(code: int, errors: str) -> str | None:
    """The fault of a command, if any: a traceback, or an error that is not one line."""
    if code == ExitCode.OK:
        return None
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    if code == ExitCode.DEFECT or "Traceback" in errors:
        return " | ".join(errors.strip().splitlines()[-5:])[-900:]
    return None if len(lines) == 1 else f"exit {code} without one line: {errors[-500:]}"


def one_table(seed: int, folder: Path) -> tuple[Counter[str], list[str]]:
    """All commands on one table: how they ended, and what was wrong."""
    rng = np.random.default_rng(seed)
    table, ends, faults = Drawn.by(rng), Counter[str](), []
    for arguments in commands(table, folder, rng):
        code, errors = outcome(arguments)
        ends[f"{arguments[0]}: {'done' if code == 0 else 'refused'}"] += 1
        if (wrong := fault(code, errors)) is not None:
            faults.append(f"table {seed}, {json.dumps(arguments)}: {wrong}")
        if arguments[0] == "train" and code != 0:
            break
    return ends, faults


@dataclass(frozen=True)
class HostilePlan:
    """How many tables, and the seed of the first."""

    tables: int = 200
    seed: int = 0
    quick: bool = False


def measure_hostile(plan: HostilePlan, records: Records) -> Record:
    """Run all tables through all commands in this process."""
    record = records.open("hostile", plan=asdict(plan))
    record.cell("tables", lambda: _all(plan, records.say))
    record.finish()
    return record


def _all(plan: HostilePlan, say: Say) -> Cell:
    start, ends, faults = time.perf_counter(), Counter[str](), []
    shown = warnings.showwarning
    for seed in range(plan.seed, plan.seed + plan.tables):
        with TemporaryDirectory() as folder:
            more, wrong = one_table(seed, Path(folder))
        ends += more
        faults += wrong
        for each in wrong:
            say(each)
    warnings.showwarning = shown
    seconds = time.perf_counter() - start
    return {"ends": dict(sorted(ends.items())), "faults": faults, "seconds": seconds}


def hostile_table(record: Content) -> list[str]:
    """How commands ended."""
    cell = record["cells"]["tables"]
    rows = [[name, str(count)] for name, count in cell["ends"].items()]
    return markdown(["command", "times"], [*rows, ["faults", str(len(cell["faults"]))]])
