"""Model files and checkpoints that were damaged at random, and what comes of reading them.

A damaged model file is refused by an error of ours. One that loads all the same must be of use: it
predicts, is saved again, inspected, described, exported, diagnosed, and learns more rows. A damaged
checkpoint is always refused.
"""

import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
import torch

from benchmarks.damage import kinds, mutated
from benchmarks.record import Cell, Content, Record, Records, Say
from benchmarks.text import markdown
from protopinv import ProtoPINVClassifier, evaluate, load
from protopinv.errors import CheckpointError, ModelFileError, ProtoPINVError
from protopinv.export.card import card
from protopinv.model_file.rules import DTYPES
from protopinv.model_file.saving import made_up
from protopinv.model_file.summary import summary
from protopinv.objective import Classes, Labels
from protopinv.report.page import render
from protopinv.tables import Category, Date
from protopinv.train.checkpoint import previous, read

# A file may take this much memory, however it is damaged.
MOST_MEMORY = 2**29
# Of the files that load this share goes through all that can be done with a model.
SHARE = 0.05


@dataclass(frozen=True)
class FuzzPlan:
    """How many files, the seed, and the share of those that load which goes through all stages."""

    files: int = 200_000
    seed: int = 0
    share: float = SHARE
    quick: bool = False


def loads(content: bytes, path: Path, *, through_all: bool = True) -> bool:
    """Whether a file loads; a file that does not must raise ModelFileError.

    A model that loads predicts, or goes through all stages; each may end in an error of ours.
    """
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(ModelFileError):
            summary(path)
        try:
            model = load(path)
        except ModelFileError:
            return False
        for _, stage in stages(model, path):
            with suppress(ProtoPINVError):
                stage()
            if not through_all:
                break
    return True


def stages(model: Any, path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """All that may be done with a model, by name; stages that change it come last."""
    X, y = rows_for(model)
    yield "predict", lambda: model.predict(X)
    yield "card", lambda: card(model.model_, "m", "1")
    yield "evaluate", lambda: evaluate(model, X, y)
    yield "inspect", lambda: summary(path)
    for dtype in DTYPES:
        yield f"save {dtype}", partial(again, model, path.with_name("a.safetensors"), dtype)
    for ending in ("c", "onnx", "mjs", "safetensors"):
        yield ending, partial(model.export, path.with_name(f"b.{ending}"))
    yield "c int8", lambda: model.export(path.with_name("b.c"), dtype="int8")
    yield "report", lambda: render(model, X, y, name="m", rows=True, today=date(2026, 1, 1))
    yield "to_sklearn", model.to_sklearn
    yield "to_torch", lambda: model.to_torch()(torch.zeros(2, model.n_features_in_))
    yield "diagnose", model.diagnose
    yield "lemma", model.check_lemma
    model.set_params(max_epochs=2, copies=None, device="cpu", verbose=0)
    yield "partial_fit", lambda: model.partial_fit(X, y)
    yield "grow", lambda: model.grow(2)
    yield "prune", lambda: model.prune(2)
    yield "freeze", lambda: model.freeze(1)
    if hasattr(model, "forget"):
        yield "forget", lambda: model.forget(model.classes_[0])
    yield "partial_fit again", lambda: model.partial_fit(X, y)
    yield "save at last", lambda: again(model, path.with_name("a.safetensors"), "float64")


def again(model: Any, path: Path, dtype: str) -> None:
    """Save a model, and read it back."""
    model.save(path, dtype=dtype)
    try:
        load(path)
    except ModelFileError as error:
        raise AssertionError("a file that was saved must load") from error


def rows_for(model: Any, n: int = 12) -> tuple[Any, Any]:
    """Rows like those of the training, and targets for them."""
    objective = model.objective_
    if model.table_ is None:
        X: Any = made_up(model.model_, n).double().numpy()
    else:
        cells = {column.name: _cells(column, n) for column in model.table_.columns}
        X = pl.DataFrame({name: cells.get(name, ["1"] * n) for name in model.table_.names})
    places = np.arange(n)
    if isinstance(objective, Classes):
        return X, objective.labels[places % len(objective.labels)]
    if isinstance(objective, Labels):
        return X, (places[:, None] + np.arange(objective.n_outputs)) % 2
    y = np.array(objective.centre) + np.array(objective.spread) * np.sin(places)[:, None]
    return X, y[:, 0] if objective.is_column else y


def _cells(column: Any, n: int) -> list[Any]:
    if isinstance(column, Category):
        return [column.values[place % len(column.values)] for place in range(n)]
    if isinstance(column, Date):
        return [date(2020, 3, 1) + timedelta(days=place) for place in range(n)]
    return [float(number) for number in np.linspace(column.low, column.high, n)]


def measure_fuzz(plan: FuzzPlan, records: Records) -> Record:
    """Damage and load all files in this process, whose memory is watched."""
    record = records.open("fuzz", plan=asdict(plan))
    record.cell("files", lambda: _fuzz(plan, records.say))
    record.finish()
    return record


def _fuzz(plan: FuzzPlan, say: Say) -> Cell:
    contents = list(kinds().values())
    with TemporaryDirectory() as place:
        path = Path(place) / "m.safetensors"
        for content in contents:
            if not loads(content, path):
                raise AssertionError("files that were not damaged must load")
        before = peak_memory()
        began, loaded, through = time.perf_counter(), 0, 0
        for number in range(plan.files):
            content, through_all = damaged_file(contents, plan, number)
            try:
                is_loaded = loads(content, path, through_all=through_all)
            except Exception as error:
                error.add_note(f"This was file {number} of seed {plan.seed}.")
                raise
            loaded, through = loaded + is_loaded, through + (is_loaded and through_all)
            if peak_memory() - before > MOST_MEMORY:
                raise AssertionError(f"file {number} took more memory than any may")
            if number % 5_000 == 0:
                say(f"{number} files, {loaded} of them loaded")
    return {
        "files": plan.files,
        "kinds": len(contents),
        "loaded": loaded,
        "through_all_stages": through,
        "refused": plan.files - loaded,
        "largest_file": max(map(len, contents)),
        "more_memory_bytes": peak_memory() - before,
        "seconds": time.perf_counter() - began,
    }


def damaged_file(contents: list[bytes], plan: FuzzPlan, number: int) -> tuple[bytes, bool]:
    """File ``number`` of a plan, and whether it goes through all stages if it loads."""
    random = np.random.default_rng((plan.seed, number))
    through_all = bool(random.random() < plan.share)
    return mutated(contents[number % len(contents)], random), through_all


def peak_memory() -> int:
    """The peak memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzz_table(record: Content) -> list[str]:
    """One line."""
    cell = record["cells"]["files"]
    columns = {
        "damaged files": f"{cell['files']:,}",
        "refused": f"{cell['refused']:,}",
        "loaded all the same": f"{cell['loaded']:,}",
        "more memory": f"{cell['more_memory_bytes'] / 2**20:.1f} MB",
    }
    # an earlier version only loaded them
    if "through_all_stages" in cell:
        columns["of these through all stages"] = f"{cell['through_all_stages']:,}"
    return markdown(list(columns), [list(columns.values())])


@dataclass(frozen=True)
class CheckpointFuzzPlan:
    """How many files, and the seed."""

    files: int = 20_000
    seed: int = 0
    quick: bool = False


def damaged_checkpoint(content: bytes, random: np.random.Generator) -> bytes:
    """The checkpoint with something changed; half of the time a single bit."""
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
    """The content if such a checkpoint is read, None if it is refused by our own error."""
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            state, _ = read(path)
        except CheckpointError:
            return None
    return content if state else None


def measure_checkpoint_fuzz(plan: CheckpointFuzzPlan, records: Records) -> Record:
    """Damage and read a checkpoint in this process, whose memory is watched."""
    record = records.open("fuzz-checkpoints", plan=asdict(plan))
    record.cell("files", lambda: _fuzz_checkpoints(plan, records.say))
    record.finish()
    return record


def sound_checkpoint(path: Path) -> bytes:
    """A checkpoint that a short fit has written."""
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 4))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    model = ProtoPINVClassifier(n_prototypes=10, hidden_sizes=8, max_epochs=10, random_state=0)
    model.fit(X, y, checkpoint=path, checkpoint_every=10)
    previous(path).unlink(missing_ok=True)  # it would be read in place of a damaged one
    return path.read_bytes()


def _fuzz_checkpoints(plan: CheckpointFuzzPlan, say: Say) -> Cell:
    random = np.random.default_rng(plan.seed)
    with TemporaryDirectory() as place:
        path = Path(place) / "run.checkpoint"
        content = sound_checkpoint(path)
        if read_again(content, path) is None:
            raise AssertionError("a checkpoint that was not damaged must be read")
        before = peak_memory()
        began, refused = time.perf_counter(), 0
        for number in range(plan.files):
            refused += read_again(damaged_checkpoint(content, random), path) is None
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


def checkpoint_fuzz_table(record: Content) -> list[str]:
    """One line."""
    cell = record["cells"]["files"]
    memory = f"{cell['more_memory_bytes'] / 2**20:.1f} MB"
    row = [f"{cell['files']:,}", f"{cell['refused']:,}", f"{cell['read']:,}", memory]
    return markdown(["damaged checkpoints", "refused", "read all the same", "more memory"], [row])
