"""Checkpoints: the whole state of a training as a file, from which it resumes bit for bit.

Safetensors, with everything that is not a tensor as JSON in its header, and a checksum of the whole
file beside it. Written to a temporary file, synced and renamed; the previous one stays beside it.
"""

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from protopinv.errors import CheckpointError, CheckpointWarning, ConfigError, OutputError
from protopinv.files import replacing, require_file
from protopinv.plain import differences, first_line, shortened
from protopinv.train.loop import Run
from protopinv.train.machine import ALONE, Ranks

FORMAT = 4
# Where the checksum stands in the header; it counts as zeros when it is made.
CHECKSUM = b'"sha256":"'
ZEROS = "0" * 64
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
# The fields of a fingerprint that are compared, and what they are called in messages.
PARTS = {"rows": "other rows", "configuration": "another configuration"}


@dataclass(frozen=True)
class Every:
    """After so many epochs, or so many seconds."""

    epochs: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, interval: int | str) -> "Every":
        """From a number of epochs, or a time such as "30s", "10min" or "1h"."""
        is_plain = isinstance(interval, int | str) and not isinstance(interval, bool)
        text = str(interval).strip() if is_plain else ""
        if text.isdigit() and int(text) >= 1:
            return cls(epochs=int(text))
        for unit, factor in UNITS.items():
            with suppress(ValueError):
                if text.endswith(unit) and float(text.removesuffix(unit)) > 0:
                    return cls(seconds=float(text.removesuffix(unit)) * factor)
        raise ConfigError(
            "checkpoint_every must be a number of epochs or a time such as '30s', '10min' or '1h'. "
            f"Got {interval!r}. Change it."
        )


@dataclass
class Checkpoints:
    """Where checkpoints go, how often, and whether to resume from the existing one.

    ``spent`` are the seconds of training before this one resumed.
    """

    path: Path
    every: Every
    resume: bool = False
    ranks: Ranks = ALONE
    clock: Callable[[], float] = field(default=lambda: 0.0)
    spent: float = 0.0
    _fingerprint: dict[str, Any] = field(default_factory=dict)
    _runs: dict[int, Run] = field(default_factory=dict)
    _screened: dict[int, float] = field(default_factory=dict)
    _saved: dict[str, Any] = field(default_factory=dict)
    _last: float = 0.0
    _epochs: int = 0
    # whether the file at ``path`` is sound, and why the last one could not be written
    _is_whole: bool = True
    _trouble: str = ""

    def saved_seed(self) -> int | None:
        """The seed of the training to resume, if there is one; the first rank reads for all."""
        if self.resume and not self._saved:
            state: dict[str, Any] | Exception = {}
            if self.ranks.is_first:
                try:
                    state, self._is_whole = read(self.path)
                except CheckpointError as error:
                    state = error
            (state, *_) = self.ranks.gather(state)
            if isinstance(state, Exception):
                raise state
            self._saved = state
        return int(self._saved["seed"]) if self._saved else None

    def begin(self, fingerprint: dict[str, Any], seed: int, *, keep_seed: bool) -> None:
        """Before training: refuse a file that cannot be written, or is of another training."""
        if self.ranks.is_first:
            require_file(self.path)
        self._fingerprint = {**fingerprint, "seed": seed}
        self._last = self.clock()
        if self.saved_seed() is not None:
            theirs = dict(self._saved["fingerprint"])
            if not keep_seed:
                theirs["seed"] = seed
            _require_same(self.path, theirs, json.loads(json.dumps(self._fingerprint)))
            self.spent = float(self._saved["seconds"])
            self._screened = {int(k): v for k, v in self._saved["screened"].items()}

    def watch(self, number: int, run: Run) -> Run:
        """Watch the training of candidate ``number``, resumed if the checkpoint holds its state."""
        state = self._saved.get("runs", {}).get(str(number))
        if state is not None:
            device, augment = run.step.trained[0].device, run.step.augment
            state = _mapped(state, lambda x, _: x.to(device) if isinstance(x, Tensor) else x)
            run.restore(state)
            own = state["ranks"].get(str(self.ranks.number))
            if own and augment is not None and len(state["ranks"]) == self.ranks.size:
                augment.restore(own)
        self._runs[number] = run
        return run

    def screened(self, number: int, loss: float) -> float:
        """The out-of-fold loss of a candidate; the first one that was reported stays."""
        return self._screened.setdefault(number, loss)

    def loss_of_dropped(self, number: int) -> float | None:
        """The loss of a candidate that was dropped before the interruption; None for any other."""
        dropped = bool(self._saved) and str(number) not in self._saved["runs"]
        return self._screened.get(number) if dropped else None

    def drop(self, number: int) -> None:
        """Write only the loss of this candidate from now on."""
        self._runs.pop(number, None)

    def after_step(self, run: Run, *, stopping: bool) -> bool:
        """Write a checkpoint if it is time, or training is to stop; whether it is on any rank."""
        if self.every.seconds is not None:
            due = self.clock() - self._last >= self.every.seconds
        elif due := not run.is_within_epoch:
            self._epochs += 1
            due = self._epochs % (self.every.epochs or 1) == 0
        stops, due = self.ranks.agree(stopping, due)
        if due or stops:
            self.write()
        return stops

    def write(self) -> None:
        """Write a checkpoint now."""
        runs = {}
        for number, run in self._runs.items():
            self.ranks.require_same(run.step.trained)
            # the state of augmentation, which every rank has for itself
            augment = run.step.augment
            own = self.ranks.gather({} if augment is None else augment.dump())
            ranks = {str(rank): each for rank, each in enumerate(own)}
            runs[str(number)] = {**run.dump(), "ranks": ranks}
        self._last = self.clock()
        if not self.ranks.is_first:
            return
        state = {
            "format": FORMAT,
            "fingerprint": self._fingerprint,
            "seed": self._fingerprint["seed"],
            "seconds": self.spent + self._last,
            "screened": {str(number): loss for number, loss in self._screened.items()},
            "runs": runs,
        }
        try:
            with replacing(self.path) as temporary:
                temporary.write_bytes(_packed(state))
                if self._is_whole:
                    _keep_previous(self.path)
        except OutputError as error:
            self._warn_of(first_line(error))
        else:
            self._is_whole, self._trouble = True, ""

    def _warn_of(self, trouble: str) -> None:
        """Warn that a checkpoint was not written; once for one reason."""
        if trouble != self._trouble:
            self._trouble = trouble
            warnings.warn(
                CheckpointWarning(
                    f"A checkpoint was not written to {self.path} ({trouble}). Training "
                    "continues and tries again; the previous checkpoint can still be resumed. Free "
                    "some space."
                ),
                stacklevel=2,
            )


def previous(path: Path) -> Path:
    """The path of the previous checkpoint."""
    return path.with_name(path.name + ".previous")


def _keep_previous(path: Path) -> None:
    if not path.exists():
        return
    last = previous(path)
    link = last.with_name(last.name + ".new")
    link.unlink(missing_ok=True)
    try:
        try:
            os.link(path, link)
        except OSError:  # a file system without links
            shutil.copyfile(path, link)
        link.replace(last)
    finally:
        link.unlink(missing_ok=True)


def read(path: Path) -> tuple[dict[str, Any], bool]:
    """The last checkpoint, or the one before where the last is damaged; {} without any.

    Also whether it was the last.
    """
    reasons: list[str] = []
    nowhere = 0
    for each in (path, previous(path)):
        try:
            state = _read(each)
        except FileNotFoundError:
            nowhere += 1
            reasons.append("there is none")
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reasons.append(first_line(error))
        else:
            if reasons:
                warnings.warn(
                    CheckpointWarning(
                        f"{path} cannot be used ({reasons[0]}). Resumed from {each}, the "
                        "previous one."
                    ),
                    stacklevel=2,
                )
            return state, not reasons
    if nowhere == 2:
        return {}, True
    raise CheckpointError(
        f"A checkpoint must be whole. {path} cannot be used ({reasons[0]}), nor can "
        f"{previous(path)} ({reasons[1]}). Put back a copy, or start anew (resume=False)."
    )


def _read(path: Path) -> dict[str, Any]:
    """The state in a file; nothing of it is used before its checksum is right."""
    content = path.read_bytes()
    if _sealed(content) != content:
        raise ValueError("damaged: its checksum is another")
    header = json.loads(content[8 : _header_end(content)])
    plain, tensors = json.loads(header["__metadata__"]["protopinv"]), load(content)
    state: dict[str, Any] = _mapped(plain, lambda leaf, name: tensors.get(name, leaf))
    if state.get("format") != FORMAT:
        raise ValueError(
            f"of format {state.get('format')!r}, where this version reads {FORMAT}; resume with "
            "the version that wrote it"
        )
    return state


def _packed(state: Mapping[str, Any]) -> bytes:
    """A file with the state: tensors by their names in it, all else as JSON."""
    tensors: dict[str, Tensor] = {}

    def moved(leaf: Any, name: str) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        tensors[name] = leaf.detach().cpu().contiguous().clone()
        return None

    text = json.dumps(_mapped(state, moved))
    return _sealed(save(tensors, {"protopinv": text, "sha256": ZEROS}))


def _sealed(content: bytes) -> bytes:
    """A file with its checksum in place; ValueError where it has no place for one."""
    at = content.find(CHECKSUM, 8, _header_end(content))
    if at < 0:
        raise ValueError("damaged, or written by a version that gave it no checksum")
    before, after = content[: at + len(CHECKSUM)], content[at + len(CHECKSUM) + len(ZEROS) :]
    checksum = hashlib.sha256(before + ZEROS.encode() + after).hexdigest()
    return before + checksum.encode() + after


def _header_end(content: bytes) -> int:
    return 8 + int.from_bytes(content[:8], "little")


def _mapped(value: Any, change: Callable[[Any, str], Any], name: str = "") -> Any:
    """Nested lists and dicts, in which every other value is changed, by what leads there."""
    if isinstance(value, Mapping):
        pairs = ((str(key), f"{name}.{key}".strip(".")) for key in value)
        return {key: _mapped(value[key], change, inner) for key, inner in pairs}
    if isinstance(value, list | tuple):
        return [_mapped(each, change, f"{name}.{i}") for i, each in enumerate(value)]
    return change(value, name)


def _require_same(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Raise CheckpointError that says what differs."""
    differing = list(differences(theirs, ours))
    if not differing:
        return
    name, there, here = differing[0]
    kind = PARTS.get(name.split(".")[0], "another training")
    more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
    raise CheckpointError(
        f"A checkpoint is resumed with the same rows and configuration. {path} is of {kind}: "
        f"{name.split('.', 1)[-1]} was {shortened(there)} and is {shortened(here)}{more}. Give "
        "what it was made with, or start anew (resume=False)."
    )
