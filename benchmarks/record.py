"""A dated file of measurements: where, with what and from which commit they were made.

A record is a set of cells, each written to the file as soon as it is finished, so that a run that
was interrupted resumes where it stopped.
"""

import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import torch

import protopinv
from protopinv.errors import DataFileError, OutputError
from protopinv.files import replacing
from protopinv.plain import plain

Cell = dict[str, Any]
Content = Mapping[str, Any]  # of a record's file
Say = Callable[[str], None]
Job = TypeVar("Job")
# Works on jobs in any order and grouping; yields the place of each with its cell when finished.
Work = Callable[[Sequence[Job]], Iterable[tuple[int, Mapping[str, Any]]]]

# What decides a number: the packages that compute, and all peers.
PACKAGES = (
    "torch",
    "numpy",
    "scikit-learn",
    "scipy",
    "triton",
    "catboost",
    "emlearn",
    "lightgbm",
    "onnxruntime",
    "pytabkit",
    "river",
    "xgboost",
    "xrfm",
)

PACKAGE = Path(protopinv.__file__)


def environment(device: str) -> dict[str, Any]:
    """Device with its driver, threads, the versions of all that is installed, and commit."""
    return {
        "device": device_name(device),
        **(_gpu() if device == "cuda" else {}),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: number for name in PACKAGES if (number := _installed(name))},
        "commit": commit(),
    }


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _gpu() -> dict[str, Any]:
    """The CUDA that torch was built with, and the driver it meets."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        answer = ""
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": answer.split("\n")[0].strip() or None,
    }


def device_name(device: str) -> str:
    """The name of the GPU, or of the processor with its cores."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{_processor()}, {os.cpu_count()} cores"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    names = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return " / ".join(sorted(names)) or platform.machine()


def commit() -> str:
    """The commit measured: PROTOPINV_COMMIT, what git says, or the version that is installed."""
    if named := os.environ.get("PROTOPINV_COMMIT"):
        return named
    try:
        _git("ls-files", "--error-unmatch", PACKAGE.name)  # another project's repository
        changes = _git("diff", "HEAD")
        name = _git("rev-parse", "--short=10", "HEAD").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return f"protopinv {protopinv.__version__}"
    return f"{name}-dirty-{sha256(changes).hexdigest()[:6]}" if changes else name


def _git(*command: str) -> bytes:
    run = ["git", *command]
    return subprocess.run(run, cwd=PACKAGE.parent, capture_output=True, check=True).stdout


class Record:
    """Cells under names, in one JSON file.

    A record of the same name, plan and environment is continued, finished or not, and ``say``
    reports it; ``fresh`` begins a new one in any case. No other record is ever written over, nor is
    a finished one to which nothing is added.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        plan: Mapping[str, Any],
        device: str,
        *,
        fresh: bool = False,
        say: Say = lambda _: None,
    ) -> None:
        self.content: dict[str, Any] = {
            "name": name,
            "date": date.today().isoformat(),
            "plan": plain(plan),
            "environment": environment(device),
            "finished": False,
            "cells": {},
        }
        _make(folder)
        self.path = _free_path(folder, self.content["date"], name)
        self.say = say
        self.kept = 0
        self._begun = False
        self._lines: dict[str, str] = {}
        if not fresh:
            self._continue(folder)
        if self.kept:
            say(f"continuing {self.path}: {self.kept} cells are kept")

    @property
    def cells(self) -> dict[str, Cell]:
        """Everything that is finished."""
        cells: dict[str, Cell] = self.content["cells"]
        return cells

    def cell(self, key: str, work: Callable[[], Mapping[str, Any]]) -> Cell:
        """The cell of this name: from the file, or measured now and written to it."""
        if key not in self.cells:
            self.cells[key] = plain(work())
            self._write()
        return self.cells[key]

    def cells_of(self, jobs: Mapping[str, Job], work: Work[Job]) -> list[Cell]:
        """The cell of every job, by name: from the file, or measured now and written to it."""
        missing = [key for key in jobs if key not in self.cells]
        for place, cell in work([jobs[key] for key in missing]) if missing else ():
            self.cells[missing[place]] = plain(cell)
            self._write()
        return [self.cells[key] for key in jobs]

    def keep(self, cells: Mapping[str, Mapping[str, Any]]) -> None:
        """Add cells of another record; those that are here stay as they are."""
        missing = {key: plain(cell) for key, cell in cells.items() if key not in self.cells}
        if missing:
            self.cells.update(missing)
            self._write()

    def finish(self) -> None:
        """Mark that nothing is missing, and say where the record is."""
        if not self.content["finished"]:
            self.content["finished"] = True
            self._write()
        self.say(f"record: {self.path}")

    def _continue(self, folder: Path) -> None:
        for path in reversed(_by_age(folder.glob(f"*-{self.content['name']}.json"))):
            record = read_record(path)
            if all(record[part] == self.content[part] for part in ("name", "plan", "environment")):
                self.content, self.path, self.kept = record, path, len(record["cells"])
                self._begun = True
                return

    def _write(self) -> None:
        if not self._begun:
            self._begin()
        with replacing(self.path) as temporary:
            temporary.write_text(self._text(), encoding="utf-8")

    def _begin(self) -> None:
        """Write under a name that is still free: a link is never put over a file."""
        folder, draft = self.path.parent, self.path.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(self._text(), encoding="utf-8")
        try:
            while not self._begun:
                self.path = _free_path(folder, self.content["date"], self.content["name"])
                try:
                    os.link(draft, self.path)
                except FileExistsError:
                    continue
                self._begun = True
        finally:
            draft.unlink()

    def _text(self) -> str:
        """JSON with one cell a line, so that a change shows as what it is."""
        head = {name: value for name, value in self.content.items() if name != "cells"}
        for key, cell in self.cells.items():
            if key not in self._lines:
                self._lines[key] = f"  {json.dumps(key)}: {json.dumps(cell)}"
        body = json.dumps(head, indent=1).removesuffix("\n}")
        cells = ",\n".join(self._lines[key] for key in self.cells)
        return body + ',\n "cells": {\n' + cells + "\n }\n}\n"


@dataclass(frozen=True)
class Records:
    """The folder of records, whether to begin new ones, and what is called with progress."""

    folder: Path
    fresh: bool = False
    say: Say = lambda _: None

    def open(self, kind: str, *parts: str, plan: Mapping[str, Any], device: str = "cpu") -> Record:
        """The record of a plan; its name says the kind, what is measured on, and a smoke run."""
        name = "-".join([kind, *(["quick"] if plan.get("quick") else []), *parts, device])
        return Record(self.folder, name, plan, device, fresh=self.fresh, say=self.say)


def read_record(path: Path) -> dict[str, Any]:
    """The content of a file, if it is a record."""
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        complete = {"name", "date", "plan", "environment", "finished", "cells"} <= set(record)
    except (OSError, ValueError, TypeError):
        complete = False
    if not complete:
        raise DataFileError(
            f"A folder of records must hold records only. {path} is none. Move it elsewhere."
        )
    return record


def newest_records(folder: Path) -> dict[str, dict[str, Any]]:
    """The newest finished record of every name, with its file's name under ``file``."""
    newest: dict[str, dict[str, Any]] = {}
    for path in _by_age(folder.glob("*.json")):
        record = read_record(path)
        if record["finished"]:
            newest[record["name"]] = {**record, "file": path.name}
    return newest


def _by_age(paths: Iterable[Path]) -> list[Path]:
    """Oldest first: by day, and by number within a day."""

    def age(path: Path) -> tuple[str, int, str]:
        day, _, number = path.name[:10], *path.name[10:].partition("-")[0].partition(".")[1:]
        return day, int(number) if number.isdigit() else 1, path.name

    return sorted(paths, key=age)


def _free_path(folder: Path, day: str, name: str) -> Path:
    """No record is ever written over: the second of a day is called 2026-11-15.2-..."""
    path, number = folder / f"{day}-{name}.json", 1
    while path.exists():
        number += 1
        path = folder / f"{day}.{number}-{name}.json"
    return path


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"Records need a folder. {folder} cannot be made ({error.strerror}). Choose another."
        ) from error
