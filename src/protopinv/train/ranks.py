"""Several processes (ranks) that train one bank: each reads its own rows, sums are shared.

The only module that knows of ranks and of torch.distributed. ``torchrun`` starts a job; a process
alone pays nothing.
"""

import atexit
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import Tensor

from protopinv.errors import RankError
from protopinv.plain import differences, shortened
from protopinv.rows import Block

Thing = TypeVar("Thing")

# A rank that is silent for so long is lost. Reading a large block may take minutes.
PATIENCE = timedelta(minutes=10)


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
        return [
            block
            for block, owner in zip(blocks, owners(blocks, self.size), strict=True)
            if owner == self.number
        ]

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


def owners(blocks: Sequence[Block], size: int) -> list[int]:
    """Which rank reads each block: the one with the fewest rows so far, the first of several."""
    rows = [0] * size
    of_blocks = []
    for block in blocks:
        owner = rows.index(min(rows))
        rows[owner] += block.n_rows
        of_blocks.append(owner)
    return of_blocks


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
    first = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
    text = first.rsplit("] ", 1)[-1] if first.startswith("[/") else first
    return "connection closed" if "by peer" in first else text[:120]
