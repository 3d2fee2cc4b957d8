"""Which classes the prototypes speak for, before and after training."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Allocation:
    """One number a class: prototypes whose largest output is that class, at the start and the end.

    ``mass`` is the class's share of all squared outputs at the end. ``moved`` counts prototypes
    that changed their class. ``ambiguity`` is the class's share of rows confused with another,
    either way round, among rows that are or were taken for it.
    """

    start: tuple[int, ...]
    end: tuple[int, ...]
    mass: tuple[float, ...]
    moved: int
    ambiguity: tuple[float, ...]


def measure_allocation(
    first: Float[Tensor, "p k"], last: Float[Tensor, "p k"], confusion: Sequence[Sequence[int]]
) -> Allocation:
    """Compare the outputs of a bank before and after training, next to a confusion matrix."""
    before, after = first.argmax(dim=1), last.argmax(dim=1)
    k = first.shape[1]
    squares = last.square().sum(dim=0)
    return Allocation(
        start=tuple(before.bincount(minlength=k).tolist()),
        end=tuple(after.bincount(minlength=k).tolist()),
        mass=tuple((squares / squares.sum()).tolist()),
        moved=int((before != after).sum()),
        ambiguity=tuple(_ambiguity(confusion, label) for label in range(k)),
    )


def _ambiguity(confusion: Sequence[Sequence[int]], label: int) -> float:
    is_it = sum(confusion[label])
    taken_for_it = sum(row[label] for row in confusion)
    right = confusion[label][label]
    return (is_it + taken_for_it - 2 * right) / max(1, is_it + taken_for_it - right)
