"""What a claim is held against: records, the comparisons made in them, and a rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.paper.comparison import Named
from benchmarks.paper.deciding import Decide, Judgement
from benchmarks.paper.evidence import Ablations
from benchmarks.record import Content
from benchmarks.tasks import NAMES


class MissingRecordError(Exception):
    """There is no record of this kind yet; the message is the command that makes one."""


@dataclass(frozen=True)
class Sources:
    """The newest record of every name, as findings ask for them."""

    newest: Mapping[str, Content]

    def record(self, name: str, command: str) -> Content:
        """That of a name, or a word on how to make it."""
        if name not in self.newest:
            raise MissingRecordError(command)
        return self.newest[name]

    @property
    def table(self) -> Content:
        """Table 1 on a GPU."""
        return self.record("paper-cuda", "make paper")

    @property
    def speed(self) -> Content:
        """Times on a GPU."""
        return self.record("speed-cuda", "python -m benchmarks speed --device cuda")

    @cached_property
    def ablations(self) -> dict[str, Ablations]:
        """Those of every data set."""
        return {
            dataset: Ablations(self.record(f"nested-{dataset}-cuda", "make ablations"))
            for dataset in NAMES
        }


@dataclass(frozen=True)
class Finding:
    """Comparisons by name, the rule that judges them, and what else was measured."""

    decide: Decide
    compared: Named = field(default_factory=dict)
    note: str = ""


Find = Callable[[Sources], Finding]


def settled(judgement: Judgement, note: str) -> Finding:
    """A judgement that needs no comparison."""
    return Finding(lambda _: judgement, note=note)
