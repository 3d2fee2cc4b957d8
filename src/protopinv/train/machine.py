"""Where a training runs: its device, its threads, Ctrl-C for all of them, and the ranks of a job.

Small work is done sooner by one thread: those of a pool wait for each other by spinning. For small
products that costs more than it saves, and two programs that do so on the same cores stall each
other many times over.

Several processes (ranks) may train one bank: each reads its own rows, sums are shared. ``torchrun``
starts a job; a process alone pays nothing. No other module knows of torch.distributed.
"""

import atexit
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from threading import Event, Lock, current_thread, main_thread
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor

from protopinv.errors import ConfigError, RankError
from protopinv.plain import differences, first_line, shortened
from protopinv.rows import Block
from protopinv.train.config import TrainConfig
from protopinv.train.resolve import DataShape

# Multiplications a pass over the rows and the bank from which on a second thread pays.
WORK_FOR_THREADS = 2**30
# A rank that is silent for so long is lost. Reading a large block may take minutes.
PATIENCE = timedelta(minutes=10)

Thing = TypeVar("Thing")

_SETTING = Lock()


def _begin_child() -> None:
    """A forked child has none of its parent's OpenMP threads, and would wait for them for ever."""
    _SETTING.release()
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_SETTING.acquire, after_in_parent=_SETTING.release, after_in_child=_begin_child
    )


def resolve_device(name: str) -> torch.device:
    """The torch device behind "auto", "cpu", "cuda" or the number of a GPU as in "cuda:1"."""
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    numbered = kind == "cuda" and number.isdigit()
    if not (numbered or name in ("auto", "cpu", "cuda")):
        raise ConfigError(
            "device must be one of 'auto', 'cpu', 'cuda', or the number of a GPU as in 'cuda:1'. "
            f"Got {name!r}. Change it to 'auto'."
        )
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there == 0:
        raise ConfigError(
            f"device={name!r} needs a GPU that torch can use. torch sees none here. "
            "Use device='auto', or install a CUDA build of torch."
        )
    if numbered and int(number) >= there:
        raise ConfigError(
            f"device={name!r} needs GPU number {number}. torch sees {there}, counted from 0. "
            "Choose one of these."
        )
    return torch.device("cuda", int(number)) if numbered else torch.device("cuda")


@contextmanager
def threads_for(
    shape: DataShape, n_outputs: int, config: TrainConfig, device: torch.device
) -> Iterator[int]:
    """One thread in here for small work on a CPU; afterwards as many as before.

    What is given says how many such works may run side by side: as many as there were threads.
    These do not wait for each other, so they do not spin.
    """
    before, d, p = torch.get_num_threads(), shape.n_features, config.n_prototypes
    rows = shape.n_rows * (1 + config.image_copies)
    if config.batch_size is not None:
        rows = min(rows, config.batch_size)
    if config.projection != "none" and config.n_components is not None:
        d = min(d, config.n_components)
    sizes = (d, *config.widths, n_outputs)
    # about how many multiplications one step takes, for all members
    solves = len(config.widths) * p**2 * (p + max(sizes))
    work = config.n_members * (2 * rows * sum(a * b for a, b in pairwise(sizes)) + solves)
    if device.type != "cpu" or work >= WORK_FOR_THREADS or before == 1:
        yield 1
        return
    with one_thread():
        yield before


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread in here, for what the caller's own thread does; afterwards as many as before."""
    before = torch.get_num_threads()
    set_own_threads(1)
    try:
        yield
    finally:
        set_own_threads(before)


def set_own_threads(n: int) -> None:
    """So many threads for the work of the thread that calls this, and of no other.

    ``torch.set_num_threads`` sets that number, and beside it the one that every thread begins
    with. Only a new thread shows the latter, and can put it back without changing any other.
    """
    with _SETTING, ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        usual = first.submit(torch.get_num_threads).result()
        torch.get_num_threads()  # where a thread is new, this sets the usual number, once
        torch.set_num_threads(n)
        second.submit(torch.set_num_threads, usual).result()


@dataclass
class _Noted:
    """A handler that notes a signal, and passes it on; ``gently`` a second one interrupts."""

    before: Any
    gently: bool
    noted: Event

    def __call__(self, number: int, frame: Any) -> None:
        """The handler."""
        again = self.noted.is_set()
        self.noted.set()
        if not self.gently:
            self.before(number, frame)
        elif again:
            raise KeyboardInterrupt


@contextmanager
def control_c(*, gently: bool = False) -> Iterator[Event]:
    """An event that is set once Ctrl-C was pressed in here, for every thread of a training.

    Python tells the main thread alone, by a KeyboardInterrupt, and loses that inside a destructor.
    A program that handles Ctrl-C itself, or ignores it, is left to do so. Where the work ends
    ``gently``, with a checkpoint, the event is set by SIGTERM too, whoever else would handle it,
    and only a second signal raises KeyboardInterrupt.
    """
    noted, before = Event(), {}
    if current_thread() is main_thread():
        for kind in (signal.SIGINT, signal.SIGTERM) if gently else (signal.SIGINT,):
            handler = signal.getsignal(kind)
            ours = handler is signal.default_int_handler or isinstance(handler, _Noted)
            if ours or (gently and handler not in (None, signal.SIG_IGN)):
                before[kind] = signal.signal(kind, _Noted(handler, gently, noted))
    try:
        yield noted
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


@dataclass(frozen=True)
class Ranks:
    """This process among those of a job."""

    number: int = 0
    size: int = 1

    def agree(self, *wishes: bool) -> list[bool]:
        """For each wish whether any rank has it."""
        if self.size == 1:
            return list(wishes)
        votes = torch.tensor([float(wish) for wish in wishes])
        self.add_up([votes])
        return [bool(number) for number in votes.tolist()]

    @property
    def is_first(self) -> bool:
        """Whether this one writes files and speaks for all."""
        return self.number == 0

    def share(self, blocks: Sequence[Block]) -> list[Block]:
        """The blocks of this rank: each goes to the one that has the fewest rows so far."""
        rows, own = [0] * self.size, []
        for block in blocks:
            owner = rows.index(min(rows))  # the first of several
            rows[owner] += block.n_rows
            own += [block] if owner == self.number else []
        return own

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Every tensor becomes the sum over all ranks, by one message."""
        if self.size == 1:
            return
        import torch.distributed as dist

        flat = torch.cat([tensor.flatten() for tensor in tensors])
        with _named():
            dist.all_reduce(flat)
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()

    def gather(self, thing: Thing) -> list[Thing]:
        """The thing of every rank, in their order; for a few numbers or rows."""
        if self.size == 1:
            return [thing]
        import torch.distributed as dist

        things: list[Any] = [None] * self.size
        with _named():
            dist.all_gather_object(things, thing)
        return things

    def require_alike(self, brought: Mapping[str, Any]) -> None:
        """Raise RankError, on every rank, unless all of them bring the same rows and parameters."""
        first, *others = self.gather(brought)
        differing: dict[str, tuple[Any, dict[int, Any]]] = {}
        for number, theirs in enumerate(others, start=1):
            for name, here, there in differences(first, theirs):
                differing.setdefault(name, (here, {}))[1][number] = there
        if not differing:
            return
        name, (here, there) = next(iter(differing.items()))
        more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
        raise RankError(
            f"All ranks must train on the same rows with the same parameters. {name} is "
            f"{shortened(here)} on rank 0 and {shortened(next(iter(there.values())))} on rank "
            f"{', '.join(map(str, there))}{more}. Start all ranks with one command, on copies of "
            "the same data."
        )

    def require_same(self, tensors: Sequence[Tensor]) -> None:
        """Raise RankError unless all ranks hold the same numbers, bit for bit."""
        if self.size == 1:
            return
        mine = [_fingerprint(tensor) for tensor in tensors]
        others = self.gather(mine)
        for number, theirs in enumerate(others):
            if theirs != others[0]:
                raise RankError(
                    "All ranks must hold the same bank. That of rank "
                    f"{number} differs from that of rank 0. Use machines of one kind, with the "
                    "same versions and the same number of threads."
                )


ALONE = Ranks()


def _fingerprint(tensor: Tensor) -> int:
    raw = tensor.detach().cpu().contiguous().view(torch.uint8).to(torch.int64)
    places = torch.arange(1, raw.numel() + 1)
    return int((raw.flatten() * places).sum())


def expected() -> int:
    """How many ranks the job has that we were started in; 1 elsewhere."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def own_number() -> int:
    """The number of this process in its job."""
    return int(os.environ["RANK"]) if expected() > 1 else 0


def is_first() -> bool:
    """Whether this process speaks for the job, and writes its files."""
    return own_number() == 0


def join(device: torch.device) -> Ranks:
    """The ranks of the job that torchrun started us in; ALONE elsewhere."""
    if expected() == 1:
        return ALONE
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    if not dist.is_initialized():
        backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
        with _named():
            store, number, size = next(rendezvous("env://", timeout=PATIENCE))
            store = _fresh(store, number, size)
            dist.init_process_group(
                backend, store=store, rank=number, world_size=size, timeout=PATIENCE
            )
        atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size())


def _fresh(store: Any, number: int, size: int) -> Any:
    """A part of the job's key-value store that no earlier attempt has written to.

    torchrun keeps the store when it starts the ranks again, and what the dead ones wrote with it: a
    rank that is quick would find the address of a process that is gone. So the first rank makes up
    a name, and gives it to those who are there now.
    """
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]

    if number:
        me = uuid4().hex
        store.set(f"protopinv/here/{number}", me)
        name = store.get(f"protopinv/name-for/{me}").decode()  # waits until it is set
        store.set(f"protopinv/heard/{name}/{number}", "")
        return PrefixStore(name, store)
    name = uuid4().hex
    silent = set(range(1, size))
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while silent:
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank {min(silent)} never came")
        for other in [n for n in silent if store.check([f"protopinv/here/{n}"])]:
            # What is written there may be of a rank that is gone; only a living one answers.
            them = store.get(f"protopinv/here/{other}").decode()
            store.set(f"protopinv/name-for/{them}", name)
            if store.check([f"protopinv/heard/{name}/{other}"]):
                silent.remove(other)
        time.sleep(0.005)
    return PrefixStore(name, store)


def local_device(device: torch.device) -> torch.device:
    """The GPU of this process: each of a machine's ranks has its own."""
    local = os.environ.get("LOCAL_RANK")
    if local is None or str(device) != "cuda":
        return device
    mine = torch.device("cuda", int(local) % torch.cuda.device_count())
    torch.cuda.set_device(mine)
    return mine


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def _named() -> Any:
    """Raise RankError where torch says that another rank is gone."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise RankError(
            f"All ranks of a job must live until it is over. One was lost ({_reason(error)}). Look "
            "at its log; start again with resume=True to resume from the last checkpoint."
        ) from error


def _reason(error: Exception) -> str:
    """What torch says, without where in its source it says so."""
    first = first_line(error)
    text = first.rsplit("] ", 1)[-1] if first.startswith("[/") else first
    return "connection closed" if "by peer" in first else text[:120]
