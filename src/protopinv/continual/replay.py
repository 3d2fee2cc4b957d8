"""What an update trains on: new rows, and replayed ones where new rows say nothing.

Replayed rows are drawn from the replay memory and labelled with the predictions of the network
before the update (knowledge distillation); with a new class half of the label is the group they
were drawn for. So the network keeps what it learned from real rows, and the memory says where. New
rows that are like old ones keep what these have taught, and none are replayed.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from protopinv.bank import Bank
from protopinv.continual.banks import answers
from protopinv.memory import Memory
from protopinv.objective import Classes, Labels, Objective
from protopinv.train.config import TrainConfig
from protopinv.train.rows import Rows

# Rows that are drawn for every new one, how many at least, and what each counts at most beside a
# new one.
DRAWN_FOR_ONE, LEAST_DRAWN, MOST_WEIGHT = 2.0, 2_000, 2.0
# How much of what a drawn row should be answered the network says that there was, once a new class
# comes; before, it says all.
FROM_NETWORK = 0.5


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


@dataclass(frozen=True)
class Call:
    """What a call brings, beside what there is: new rows as the network will see them.

    ``groups`` are those of the rows, ``known`` the groups that had rows before, and ``unlike`` says
    how unlike the new rows of each are to the old ones.
    """

    state: State
    new: New
    groups: Int[Tensor, " n"]
    known: Bool[Tensor, " g"]
    unlike: Float[Tensor, " g"]

    @property
    def unknown(self) -> Int[Tensor, " c"]:
        """Groups that come for the first time."""
        found: Tensor = self.groups.unique()
        return found[~self.known[found]]

    @property
    def grows(self) -> bool:
        """Whether there are any."""
        return len(self.unknown) > 0

    @property
    def masses(self) -> Float[Tensor, " g"]:
        """What the old rows of each group count."""
        return self.state.memory.masses(self.state.objective.n_groups)

    @property
    def share(self) -> float:
        """Of all old rows, those that new ones are unlike to."""
        return float(self.unlike @ self.masses / self.masses.sum())


def drawn_rows(n_new: int, n_old: float) -> int:
    """How many rows are drawn beside new ones at most: no more than there have been."""
    return min(round(n_old), max(LEAST_DRAWN, round(DRAWN_FOR_ONE * n_new)))


def together(call: Call, config: TrainConfig, device: torch.device, generator: Generator) -> Rows:
    """New rows with their targets, and drawn ones with theirs, of groups that need them."""
    state, new, dtype = call.state, call.new, getattr(torch, config.dtype)
    Z, weight = new.Z.to(device, dtype), new.weight.to(device, dtype)
    wanted = _wanted(new.targets, state.objective, config).to(device, dtype)
    mass, unit = float(call.masses.sum()), float(new.weight.mean())
    # heavy rows count as many
    most = drawn_rows(len(Z), max(float(state.memory.gaussians.rows.sum()), mass / unit))
    n = round(most * call.share)
    if n == 0:
        return Rows(Z, wanted, (weight / weight.mean())[None])
    drawn, groups = state.memory.drawn(n, generator, call.unlike)
    drawn = drawn.to(device, dtype)
    said = answers(state.bank, config.architecture, drawn)
    remembered = _remembered(said, groups.to(device), call)
    each = min(mass / most, MOST_WEIGHT * unit)
    weight = torch.cat([weight, weight.new_full((n,), each)])
    return Rows(
        torch.cat([Z, drawn]), torch.cat([wanted, remembered]), (weight / weight.mean())[None]
    )


def _wanted(targets: Tensor, objective: Objective, config: TrainConfig) -> Float[Tensor, "n k"]:
    """Targets of real rows; classes as shares of all of them, smoothed as in the fit."""
    if not isinstance(objective, Classes):
        return targets
    smoothing = config.label_smoothing
    shares = one_hot(targets, objective.n_outputs).float()
    return shares * (1 - smoothing) + smoothing / objective.n_outputs


def _remembered(
    said: Float[Tensor, "n k"], groups: Int[Tensor, " n"], call: Call
) -> Float[Tensor, "n k"]:
    """Targets of drawn rows."""
    objective = call.state.objective
    if isinstance(objective, Labels):
        return torch.sigmoid(said)
    if not isinstance(objective, Classes):
        return said
    known = call.known.to(said.device)
    shares = torch.softmax(said.masked_fill(~known, -torch.inf), dim=1)
    labels = one_hot(groups, objective.n_outputs).to(shares)
    return torch.lerp(labels, shares, FROM_NETWORK if call.grows else 1.0)
