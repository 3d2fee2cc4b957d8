"""What an update begins with: all that a model knows, and new rows."""

from dataclasses import dataclass, replace

from jaxtyping import Float, Shaped
from torch import Tensor

from protopinv.bank import Bank
from protopinv.memory import Memory
from protopinv.objective import Objective


@dataclass(frozen=True)
class State:
    """What a model knows: banks, with a column for every output, and the memory of its rows.

    The first ``n_frozen`` prototypes of every bank stay where they are. ``bank`` may be the mean
    over ``n_calls`` calls; then ``last`` is that of the last one, from which training goes on.
    """

    bank: Bank
    memory: Memory
    objective: Objective
    n_frozen: int = 0
    last: Bank | None = None
    n_calls: int = 0

    @property
    def to_train(self) -> Bank:
        """Where training goes on from."""
        return self.bank if self.last is None else self.last

    def with_bank(self, bank: Bank) -> "State":
        """The same with another bank, which is the mean of nothing."""
        return replace(self, bank=bank, last=None, n_calls=0)


@dataclass(frozen=True)
class New:
    """New rows as the network sees them, targets as the objective has them, and weights."""

    Z: Float[Tensor, "n m"]
    targets: Shaped[Tensor, "n *target"]
    weight: Float[Tensor, " n"]
