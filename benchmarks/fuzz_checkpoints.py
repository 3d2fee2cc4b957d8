"""Checkpoints that were damaged at random, and what reading them says."""

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.damage import mutated
from benchmarks.fuzz import peak_memory
from protopinv import ProtoPINVClassifier
from protopinv.bench.markdown import markdown
from protopinv.bench.plans import record_name
from protopinv.bench.record import Cell, Record, Say
from protopinv.errors import CheckpointError
from protopinv.train.checkpoint import read


@dataclass(frozen=True)
class CheckpointFuzzPlan:
    """How many files, and the seed."""

    files: int = 20_000
    seed: int = 0
    quick: bool = False


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """The file with something changed; half of the time a single bit."""
    changed = content
    while changed == content:
        if random.random() < 0.5:
            place, bit = int(random.integers(len(content))), int(random.integers(8))
            bytes_of = bytearray(content)
            bytes_of[place] ^= 1 << bit
            changed = bytes(bytes_of)
        else:
            changed = mutated(content, random)
    return changed


def read_again(content: bytes, path: Path) -> bytes | None:
    """The content if a checkpoint like this is read, None if it is refused by our own error."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            state, _ = read(path)
        except CheckpointError:
            return None
    return content if state else None


def measure_checkpoint_fuzz(
    plan: CheckpointFuzzPlan, *, folder: Path, fresh: bool = False, say: Say = lambda _: None
) -> Record:
    """All of it in this process, whose memory is watched."""
    name = record_name("fuzz-checkpoints", "cpu", quick=plan.quick)
    record = Record(folder, name, asdict(plan), "cpu", fresh=fresh, say=say)
    record.cell("files", lambda: _fuzz(plan, say))
    record.finish()
    return record


def sound_checkpoint(path: Path) -> bytes:
    """One that was written by a short fit."""
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = ProtoPINVClassifier(n_prototypes=10, hidden_sizes=8, max_epochs=10, random_state=0)
    model.fit(X, y, checkpoint=path, checkpoint_every=10)
    return path.read_bytes()


def _fuzz(plan: CheckpointFuzzPlan, say: Say) -> Cell:
    random = np.random.default_rng(plan.seed)
    with TemporaryDirectory() as place:
        path = Path(place) / "run.checkpoint"
        content = sound_checkpoint(path)
        if read_again(content, path) is None:
            raise AssertionError("a checkpoint that was not damaged must be read")
        before = peak_memory()
        began, refused = time.perf_counter(), 0
        for number in range(plan.files):
            refused += read_again(damaged(content, random), path) is None
            if number % 5_000 == 0:
                say(f"{number} files, {refused} of them refused")
    return {
        "files": plan.files,
        "refused": refused,
        "read": plan.files - refused,
        "file_bytes": len(content),
        "more_memory_bytes": peak_memory() - before,
        "seconds": time.perf_counter() - began,
    }


def checkpoint_fuzz_table(record: Mapping[str, Any]) -> list[str]:
    """One line."""
    cell = record["cells"]["files"]
    memory = f"{cell['more_memory_bytes'] / 2**20:.1f} MB"
    row = [f"{cell['files']:,}", f"{cell['refused']:,}", f"{cell['read']:,}", memory]
    return markdown(["damaged checkpoints", "refused", "read all the same", "more memory"], [row])
