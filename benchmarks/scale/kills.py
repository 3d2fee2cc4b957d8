"""Training killed at random moments and resumed: is the bank that of a run left alone?

python -m benchmarks.scale.kills KIND FOLDER CHECKPOINT OUT trains one model, and is what is killed.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.record import Cell, Content, Record, Records
from benchmarks.scale.rows import make_rows, write_rows
from benchmarks.text import markdown
from protopinv import ProtoPINVClassifier, open_rows
from protopinv.errors import TrainingError

ROWS = 20_000
KINDS: dict[str, dict[str, Any]] = {
    "full batch": {"batch_size": None, "early_stopping": False, "max_epochs": 60},
    "mini-batches": {
        "batch_size": 500,
        "early_stopping": True,
        "max_epochs": 12,
        "input_noise": 0.1,
        "hidden_dropout": 0.1,
        "averaging": 0.9,
    },
    "folds": {"early_stopping": "cross", "max_epochs": 8, "batch_size": 2000},
    "members": {
        "n_members": 3,
        "early_stopping": False,
        "max_epochs": 20,
        "batch_size": 2000,
        "optimizer": "muon",
    },
    "streamed": {
        "batch_size": 2000,
        "early_stopping": True,
        "max_epochs": 12,
        "input_noise": 0.1,
    },
}


@dataclass(frozen=True)
class KillPlan:
    """How often each kind is killed, and the seed of the moments."""

    kills: int = 20
    seed: int = 0
    quick: bool = False


def measure_kills(plan: KillPlan, records: Records) -> Record:
    """Every kind alone, and the streamed one with two ranks."""
    content = {"task": f"{ROWS:,} rows of 100 features", "kinds": KINDS, **asdict(plan)}
    record = records.open("kills", plan=content)
    with tempfile.TemporaryDirectory() as place:
        rows = write_rows(Path(place), ROWS)
        for kind, ranks in [*((kind, 1) for kind in KINDS), ("streamed", 2)]:
            job = _Job(kind, ranks, rows, Path(place) / f"{kind} {ranks}")
            cell = record.cell(f"{kind}/{ranks}", partial(job.survive, plan))
            record.say(f"{kind}, {ranks} ranks: {cell}")
    record.finish()
    return record


@dataclass
class _Job:
    """One kind of training, in processes of its own."""

    kind: str
    ranks: int
    rows: Path
    place: Path

    def survive(self, plan: KillPlan) -> Cell:
        """Kill and resume as often as planned; count the finished runs that were as one alone."""
        self.place.mkdir()
        began = self._start(None, self.place / "alone")
        began.wait_for_first_word()
        start = time.perf_counter()
        began.end()
        length = time.perf_counter() - start
        alone = load_file(self.place / "alone")
        moments = np.random.default_rng(plan.seed)
        kills = runs = same = 0
        while kills < plan.kills or (self.place / "run").exists():
            process = self._start(self.place / "run", self.place / "out")
            process.wait_for_first_word()
            if kills < plan.kills and not process.ends_within(moments.uniform(0, length / 4)):
                process.kill()
                kills += 1
                continue
            process.end()
            resumed = load_file(self.place / "out")
            runs += 1
            same += all(torch.equal(resumed[name], alone[name]) for name in alone)
            for left in self.place.glob("run*"):
                left.unlink()
        return {"kills": kills, "runs": runs, "same_bit_for_bit": same, "seconds_alone": length}

    def _start(self, checkpoint: Path | None, out: Path) -> "_Process":
        start = [sys.executable, "-m"]
        if self.ranks > 1:
            start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={self.ranks}"]
            start += ["-m"]
        path = str(checkpoint) if checkpoint else "-"
        return _Process([*start, __name__, self.kind, str(self.rows), path, str(out)])


class _Process:
    """A training process with all its children."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def wait_for_first_word(self) -> None:
        """Until training begins: the moments before it are those of importing libraries."""
        if self.process.stdout is not None:
            self.process.stdout.readline()

    def ends_within(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        if self.process.wait() != 0:
            raise TrainingError("A run that is not killed must end well. This one did not.")

    def kill(self) -> None:
        """SIGKILL to the whole family, youngest first."""
        for number in reversed(_family(self.process.pid)):
            try:
                os.kill(number, signal.SIGKILL)
            except ProcessLookupError:  # it fell with another
                continue
        self.process.wait()


def _family(parent: int) -> list[int]:
    ps = shutil.which("ps") or "ps"
    command = [ps, "--ppid", str(parent), "-o", "pid="]
    children = map(int, subprocess.run(command, capture_output=True, check=False).stdout.split())
    return [parent, *(number for child in children for number in _family(child))]


def kills_table(record: Content) -> list[str]:
    """A line for each kind."""
    lines = []
    for key, cell in record["cells"].items():
        kind, ranks = key.split("/")
        name = kind if ranks == "1" else f"{kind}, {ranks} ranks"
        same = f"{cell['same_bit_for_bit']} of {cell['runs']}"
        lines.append([name, str(cell["kills"]), same])
    return markdown(["", "killed", "runs that ended, and gave the bits of one left alone"], lines)


def train(kind: str, rows: Path, checkpoint: str, out: Path) -> None:
    """One model; its bank and weights are written by the first rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    model = ProtoPINVClassifier(random_state=1, n_prototypes=40, hidden_sizes=32, **KINDS[kind])
    data: tuple[Any, ...] = (
        (open_rows(rows, "y", memory=0),) if kind == "streamed" else make_rows(ROWS, 0)
    )
    first = os.environ.get("RANK", "0") == "0"
    if first:
        print("training", flush=True)
    path = None if checkpoint == "-" else checkpoint
    model.fit(*data, checkpoint=path, checkpoint_every="0.05s", resume=path is not None)
    if first:
        parts = [model.bank_.inputs, *model.bank_.hidden, model.bank_.outputs]
        tensors = {str(place): part.contiguous() for place, part in enumerate(parts)}
        tensors["history"] = torch.from_numpy(np.array(model.history_.loss))
        save_file(tensors, out)


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
