"""One update: new rows, rows drawn from the memory of old ones, and a short training on both.

What drawn rows should be answered is what the network said before, and with a new class half of it
what their group says. So the network keeps what it learned from real rows, and the memory says
where.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from protopinv.bank import Bank, pick_rows
from protopinv.continual.banks import (
    answers,
    ends_of,
    grown,
    hidden_of,
    importances,
    left_with,
)
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.objective import Classes, Labels, Objective
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.loop import Observer
from protopinv.train.model import Model, Start, Training
from protopinv.train.prepare import Prepared
from protopinv.train.rows import Rows

# Rows that are drawn for every new one, how many at least, and what each counts at most.
DRAWN_FOR_ONE, LEAST_DRAWN, MOST_WEIGHT = 2.0, 2_000, 2.0
# How much of what a drawn row should be answered the network says that there was, once a new class
# comes; before, it says all.
FROM_NETWORK = 0.5
# Drawn rows on which prototypes are weighed.
WEIGHED_ROWS = 500
# Prototypes for a new class.
GROWTH = 10


@dataclass(frozen=True)
class State:
    """What a model knows: banks, with a column for every output, and the memory of its rows.

    The first ``n_frozen`` prototypes of every bank stay where they are.
    """

    bank: Bank
    memory: Memory
    objective: Objective
    n_frozen: int = 0


@dataclass(frozen=True)
class New:
    """New rows as the network sees them, targets as the objective has them, and weights."""

    Z: Float[Tensor, "n m"]
    targets: Shaped[Tensor, "n *target"]
    weight: Float[Tensor, " n"]


@dataclass(frozen=True)
class Settings:
    """How to learn: the configuration, where, and by which random numbers.

    ``factors`` say what rows of each group count beside their weight. ``most_prototypes`` limits
    growth.
    """

    config: TrainConfig
    device: torch.device
    seed: int
    clock: Callable[[], float]
    factors: Float[Tensor, " g"] | None = None
    most_prototypes: int | None = None
    observer: Observer | None = None


@dataclass(frozen=True)
class Updated:
    """What an update leaves."""

    bank: Bank
    memory: Memory
    history: History


def update(state: State, new: New, known: Bool[Tensor, " g"], settings: Settings) -> Updated:
    """Learn from new rows without losing what was learned from those that are gone.

    Groups that are ``known`` have had rows before; for the others the banks grow.
    """
    objective, n_groups = state.objective, state.objective.n_groups
    generator = Generator().manual_seed(settings.seed)
    groups = objective.groups(new.targets.cpu())
    memory, bank = state.memory, state.bank
    unknown = torch.tensor([g for g in groups.unique().tolist() if not known[g]], dtype=torch.long)
    if len(unknown):
        memory = opened(memory, new)
        bank = _grown(bank, memory, new, groups, unknown, settings, state.n_frozen)
    rows = _together(
        state.bank, memory, new, known, objective, settings, generator, grows=len(unknown) > 0
    )
    if settings.factors is not None:
        factor = settings.factors[objective.groups(rows.y.cpu())].to(rows.X)
        weight = factor if rows.weight is None else rows.weight[0] * factor
        rows = replace(rows, weight=(weight / weight.mean())[None])
    model = _trained(bank, rows, objective, settings, state.n_frozen)
    added = memory.added(new.Z, groups.to(new.Z.device), new.weight, n_groups, generator)
    return Updated(model.bank, added, model.history)


def drawn_rows(n_new: int, mass: float) -> int:
    """How many rows are drawn beside new ones: not more than there have been."""
    return min(round(mass), max(LEAST_DRAWN, round(DRAWN_FOR_ONE * n_new)))


def opened(memory: Memory, new: New) -> Memory:
    """The memory for new classes: directions that serve them too, and no tails any more."""
    return replace(memory.turned(new.Z, new.weight), is_cut=memory.basis is not None)


def _trained(
    bank: Bank, rows: Rows, objective: Objective, settings: Settings, n_frozen: int
) -> Model:
    """The bank after a short training on rows that need no projection any more."""
    device, d = settings.device, rows.X.shape[1]
    same = FeatureMap(torch.zeros(d).double(), torch.ones(d).double())
    started = settings.clock()
    training = Training(
        objective,
        settings.seed,
        device,
        lambda: settings.clock() - started,
        start=Start(bank, None, same, n_frozen),
    )
    prepared = Prepared(None, same, rows, None, rows)
    # labels of new rows are smoothed already, and the network has said how sure to be of others
    config = replace(
        settings.config,
        n_prototypes=bank.n_prototypes,
        label_smoothing=0.0,
        early_stopping=False,
        row_dtype="same",
    )
    return training(prepared, (config,), settings.observer)


def _together(
    teacher: Bank,
    memory: Memory,
    new: New,
    known: Tensor,
    objective: Objective,
    settings: Settings,
    generator: Generator,
    *,
    grows: bool,
) -> Rows:
    """New rows with their targets, and drawn ones with theirs."""
    device, dtype = settings.device, getattr(torch, settings.config.dtype)
    Z = memory.cut(new.Z).to(device, dtype)
    wanted = _wanted(new.targets, objective, settings.config).to(device, dtype)
    mass = float(memory.parts.mass.sum())
    n = drawn_rows(len(Z), mass)
    weight = new.weight.to(device, dtype)
    if n == 0:
        return Rows(Z, wanted, (weight / weight.mean())[None])
    drawn, groups = memory.drawn(n, generator)
    drawn = drawn.to(device, dtype)
    said = answers(teacher, architecture_of(settings.config), drawn)
    remembered = _remembered(said, groups.to(device), known.to(device), objective, grows=grows)
    weight = torch.cat([weight, weight.new_full((n,), min(mass / n, MOST_WEIGHT))])
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
    said: Float[Tensor, "n k"],
    groups: Int[Tensor, " n"],
    known: Tensor,
    objective: Objective,
    *,
    grows: bool,
) -> Float[Tensor, "n k"]:
    """Targets of drawn rows."""
    if isinstance(objective, Labels):
        return torch.sigmoid(said)
    if not isinstance(objective, Classes):
        return said
    shares = torch.softmax(said.masked_fill(~known, -torch.inf), dim=1)
    labels = one_hot(groups, objective.n_outputs).to(shares)
    return torch.lerp(labels, shares, FROM_NETWORK if grows else 1.0)


def shrunk(
    bank: Bank,
    memory: Memory,
    n_prototypes: int,
    config: TrainConfig,
    generator: Generator,
    *,
    n_frozen: int = 0,
) -> Bank:
    """With the prototypes that matter most, in the order they had; frozen ones stay."""
    if bank.n_prototypes <= n_prototypes:
        return bank
    rows = memory.drawn(WEIGHED_ROWS, generator)[0]
    worth = importances(bank, architecture_of(config), rows)
    worth[:, :n_frozen] = torch.inf
    kept = worth.argsort(1, descending=True)[:, :n_prototypes]
    return left_with(bank, kept.sort(1).values)


def _grown(
    bank: Bank,
    memory: Memory,
    new: New,
    groups: Int[Tensor, " n"],
    unknown: Int[Tensor, " c"],
    settings: Settings,
    n_frozen: int,
) -> Bank:
    """With prototypes of the new classes, which start as rows of theirs."""
    most = settings.most_prototypes
    each = GROWTH if most is None else max(1, min(GROWTH, most // (2 * len(unknown))))
    wanted = unknown.repeat_interleave(each)
    if most is not None:
        generator = Generator().manual_seed(settings.seed)
        n_left = max(1, n_frozen, most - len(wanted))
        bank = shrunk(bank, memory, n_left, settings.config, generator, n_frozen=n_frozen)
    Z = memory.cut(new.Z).float().cpu()
    picked = [
        Z[pick_rows(Z, wanted, groups, Generator().manual_seed(settings.seed + member))]
        for member in range(bank.n_members)
    ]
    inputs = torch.stack(picked)
    hidden, _ = hidden_of(bank, architecture_of(settings.config), inputs)
    low, high = ends_of(bank)
    outputs = torch.full((len(picked), len(wanted), bank.outputs.shape[2]), low)
    outputs[:, torch.arange(len(wanted)), wanted] = high
    return grown(bank, inputs, hidden, outputs)
