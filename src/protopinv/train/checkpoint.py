"""Checkpoints: the whole state of a training as a file, from which it resumes bit for bit.

Safetensors, with everything that is not a tensor as JSON in its header, and a checksum of the whole
file beside it. Written to a temporary file, synced and renamed; the previous one stays
beside it.
"""

import hashlib
import json
import mmap
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from protopinv.errors import CheckpointError, CheckpointWarning, ConfigError, OutputError
from protopinv.files import replacing, require_file
from protopinv.plain import differences, shortened
from protopinv.train.loop import Run, StopTraining
from protopinv.train.ranks import ALONE, Ranks

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
        if isinstance(interval, int) and not isinstance(interval, bool) and interval >= 1:
            return cls(epochs=interval)
        text = interval.strip() if isinstance(interval, str) else ""
        for unit, seconds in sorted(UNITS.items(), key=lambda item: -len(item[0])):
            if text.endswith(unit):
                try:
                    time = float(text.removesuffix(unit)) * seconds
                except ValueError:
                    break
                if time > 0:
                    return cls(seconds=time)
        if text.isdigit() and int(text) >= 1:
            return cls(epochs=int(text))
        raise ConfigError(
            "checkpoint_every must be a number of epochs or a time such as '30s', '10min' or '1h'. "
            f"Got {interval!r}. Change it."
        )


@dataclass
class Checkpoints:
    """Where checkpoints go, how often, and whether to resume from the existing one."""

    path: Path
    every: Every
    resume: bool = False
    ranks: Ranks = ALONE
    clock: Callable[[], float] = field(default=lambda: 0.0)
    _fingerprint: dict[str, Any] = field(default_factory=dict)
    _runs: dict[int, Run] = field(default_factory=dict)
    _screened: dict[int, float] = field(default_factory=dict)
    _saved: dict[str, Any] = field(default_factory=dict)
    _last: float = 0.0
    _spent: float = 0.0
    _epochs: int = 0
    _signalled: int = 0
    # whether the file at ``path`` is sound, and why the last one could not be written
    _is_whole: bool = True
    _trouble: str = ""

    def saved_seed(self) -> int | None:
        """The seed of the training to resume, if there is one."""
        if not self._saved and self.resume:
            self._saved = self._read_by_first()
        return None if not self._saved else int(self._saved["seed"])

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
            self._spent = float(self._saved["seconds"])
            self._screened = {int(k): v for k, v in self._saved["screened"].items()}

    @property
    def spent(self) -> float:
        """Seconds of training before this one resumed."""
        return self._spent

    def watch(self, number: int, run: Run) -> Run:
        """Watch the training of candidate ``number``, resumed if the checkpoint holds its state."""
        state = self._saved.get("runs", {}).get(str(number)) if self._saved else None
        if state is not None:
            device = run.step.trained[0].device
            placed = _on(state, device)
            run.restore(placed)
            own = placed["ranks"].get(str(self.ranks.number))
            augment = run.step.augment
            if own and augment is not None and len(placed["ranks"]) == self.ranks.size:
                augment.restore(own)
        self._runs[number] = run
        run.after_step = self._after_step
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

    def _after_step(self, run: Run) -> None:
        due = self._is_due(run)
        stop, save = self.ranks.agree(self._signalled > 0, due)
        if save or stop:
            self.write()
        if stop:
            raise StopTraining

    def _is_due(self, run: Run) -> bool:
        if self.every.seconds is not None:
            return self.clock() - self._last >= self.every.seconds
        if run.is_within_epoch:
            return False
        self._epochs += 1
        return self._epochs % (self.every.epochs or 1) == 0

    def write(self) -> None:
        """Write a checkpoint now."""
        runs = {}
        for number, run in self._runs.items():
            self.ranks.require_same(run.step.trained)
            # the state of augmentation, which every rank has for itself
            augment = run.step.augment
            own = self.ranks.gather({} if augment is None else augment.dump())
            runs[str(number)] = {
                **run.dump(),
                "ranks": {str(rank): each for rank, each in enumerate(own)},
            }
        self._last = self.clock()
        if not self.ranks.is_first:
            return
        state = {
            "format": FORMAT,
            "fingerprint": self._fingerprint,
            "seed": self._fingerprint["seed"],
            "seconds": self._spent + self._last,
            "screened": {str(number): loss for number, loss in self._screened.items()},
            "runs": runs,
        }
        try:
            self._put(state)
        except (OutputError, SafetensorError) as error:
            self._warn_of(_first_line(error))
        else:
            self._is_whole, self._trouble = True, ""

    def _put(self, state: dict[str, Any]) -> None:
        tensors: dict[str, Tensor] = {}
        text = json.dumps(_flattened(state, "", tensors))
        with replacing(self.path) as temporary:
            save_file(tensors, temporary, metadata={"protopinv": text, "sha256": ZEROS})
            _seal(temporary)
            if self._is_whole:
                _keep_previous(self.path)

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

    def _read_by_first(self) -> dict[str, Any]:
        """The state that the first rank reads, for all ranks."""
        state: dict[str, Any] | Exception = {}
        if self.ranks.is_first:
            try:
                state, self._is_whole = read(self.path)
            except CheckpointError as error:
                state = error
        (first, *_) = self.ranks.gather(state)
        if isinstance(first, Exception):
            raise first
        return first

    @contextmanager
    def signals(self) -> Iterator[threading.Event]:
        """In here Ctrl-C and SIGTERM end the training after the next step, with a checkpoint.

        A second Ctrl-C ends it at once. A signal that this process ignores stays ignored. The event
        is for those who must end sooner than the next checkpoint.
        """
        ends = threading.Event()
        if threading.current_thread() is not threading.main_thread():
            yield ends
            return

        def stop(_: int, __: Any) -> None:
            self._signalled += 1
            if self._signalled > 1:
                raise KeyboardInterrupt

        both = (signal.SIGINT, signal.SIGTERM)
        kinds = [kind for kind in both if signal.getsignal(kind) is not signal.SIG_IGN]
        before = [signal.signal(kind, stop) for kind in kinds]
        try:
            yield ends
        finally:
            for kind, handler in zip(kinds, before, strict=True):
                signal.signal(kind, handler)


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
            reasons.append(_first_line(error))
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


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _read(path: Path) -> dict[str, Any]:
    """The state in a file; nothing of it is used before its checksum is right."""
    with path.open("rb") as file:
        at, expected = _checksum(file.fileno())
        file.seek(at)
        if file.read(len(expected)) != expected:
            raise ValueError("damaged: its checksum is another")
    with safe_open(path, "pt") as opened:
        text = (opened.metadata() or {})["protopinv"]
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    state: dict[str, Any] = _nested(json.loads(text), tensors)
    if state.get("format") != FORMAT:
        raise ValueError(
            f"of format {state.get('format')!r}, where this version reads {FORMAT}; resume with "
            "the version that wrote it"
        )
    return state


def _seal(path: Path) -> None:
    """Write the checksum in place of the zeros."""
    with path.open("r+b") as file:
        at, checksum = _checksum(file.fileno())
        file.seek(at)
        file.write(checksum)


def _checksum(file: int) -> tuple[int, bytes]:
    """Where a file has its checksum, and what that must be; ValueError without such a place."""
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content:
        length = int.from_bytes(content[:8], "little")
        fits = length <= len(content) - 8
        at = content.find(CHECKSUM, 8, 8 + length) if fits else -1
        if at < 0:
            raise ValueError("damaged, or written by a version that gave it no checksum")
        start = at + len(CHECKSUM)
        digest = hashlib.sha256()
        with memoryview(content) as view, view[:start] as before:
            digest.update(before)
            digest.update(ZEROS.encode())
            with view[start + len(ZEROS) :] as after:
                digest.update(after)
    return start, digest.hexdigest().encode()


def _flattened(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Plain JSON: every tensor is moved to ``tensors``, with its name in its place."""
    if isinstance(value, Tensor):
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {
            key: _flattened(each, f"{name}.{key}".strip("."), tensors)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_flattened(each, f"{name}.{i}", tensors) for i, each in enumerate(value)]
    return value


def _nested(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: _nested(each, tensors) for key, each in value.items()}
    if isinstance(value, list):
        return [_nested(each, tensors) for each in value]
    return value


def _on(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _on(each, device) for key, each in value.items()}
    return [_on(each, device) for each in value] if isinstance(value, list) else value


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
