"""One update: new rows, rows drawn from the memory of old ones, and a short training on both."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank, pick_rows
from protopinv.continual.averaging import followed_by, reviewed
from protopinv.continual.banks import (
    ends_of,
    grown,
    hidden_of,
    importances,
    left_with,
)
from protopinv.continual.rehearsal import Call, together
from protopinv.continual.schedule import scheduled
from protopinv.continual.state import New, State
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.objective import Objective
from protopinv.train.bank_step import architecture_of
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.loop import Observer
from protopinv.train.model import Start, Trained, Training
from protopinv.train.prepare import Prepared
from protopinv.train.rows import Rows

# Drawn rows on which prototypes are weighed.
WEIGHED_ROWS = 500
# Prototypes for a new class.
GROWTH = 10


@dataclass(frozen=True)
class Settings:
    """How to learn: the configuration, where, and by which random numbers.

    ``factors`` say what rows of each group count beside their weight. ``most_prototypes`` limits
    growth. ``config`` is that of a fit of as many rows; ``batch_is_free`` leaves its batches open.
    With ``is_wider`` the network has an input that old rows did not have. ``decay`` is the share of
    the memory to forget first.
    """

    config: TrainConfig
    device: torch.device
    seed: int
    clock: Callable[[], float]
    batch_is_free: bool = False
    is_wider: bool = False
    decay: float = 0.0
    factors: Float[Tensor, " g"] | None = None
    most_prototypes: int | None = None
    observer: Observer | None = None


@dataclass(frozen=True)
class Updated:
    """What an update leaves."""

    state: State
    history: History


def update(state: State, new: New, settings: Settings) -> Updated:
    """Learn from new rows without losing what was learned from those that are gone."""
    generator = Generator().manual_seed(settings.seed)
    call = _understood(state, new, settings)
    rows = together(call, settings.config, settings.device, generator)
    if settings.factors is not None:
        rows = _weighted(rows, state.objective, settings.factors)
    trained = _trained(call, rows, settings)
    memory = call.state.memory.added(
        new.Z, call.groups.to(new.Z.device), new.weight, state.objective.n_groups, generator
    )
    learned = replace(call.state, memory=memory)
    if call.grows:
        return Updated(learned.with_bank(trained.bank), trained.history)
    # the mean over calls forgets what the memory forgets
    least = max(call.share, settings.decay)
    return Updated(followed_by(learned, trained.bank, least), trained.history)


def _understood(state: State, new: New, settings: Settings) -> Call:
    """What the call brings, once old rows are forgotten as was asked for."""
    n_groups = state.objective.n_groups
    groups = state.objective.groups(new.targets.cpu())
    known = state.memory.masses(n_groups) > 0  # what is forgotten only now is not new
    if settings.decay:
        state = replace(state, memory=state.memory.weakened(1 - settings.decay))
    if not bool(known[groups].all()):
        state = replace(state.with_bank(state.bank), memory=opened(state.memory, new))
    new = replace(new, Z=state.memory.cut(new.Z))
    state = reviewed(state, new, architecture_of(settings.config))
    # with an input that starts at zero there is as much to learn as with a class
    unlike = torch.ones(n_groups, dtype=torch.float64)
    if not settings.is_wider:
        unlike = state.memory.unlike(new.Z, groups.to(new.Z.device), new.weight, n_groups)
    return Call(state, new, groups, known, unlike)


def opened(memory: Memory, new: New) -> Memory:
    """The memory for new classes: directions that serve them too, and no tails any more."""
    return replace(memory.turned(new.Z, new.weight), is_cut=memory.basis is not None)


def _weighted(rows: Rows, objective: Objective, factors: Float[Tensor, " g"]) -> Rows:
    """Rows that count as their groups say, too."""
    factor = factors[objective.groups(rows.y.cpu())].to(rows.X)
    weight = factor if rows.weight is None else rows.weight[0] * factor
    return replace(rows, weight=(weight / weight.mean())[None])


def _trained(call: Call, rows: Rows, settings: Settings) -> Trained:
    """The bank after a short training on rows that need no projection any more."""
    bank, device, d = call.state.to_train, settings.device, rows.X.shape[1]
    if call.grows:
        bank = _grown(bank, call, settings)
    same = FeatureMap(torch.zeros(d).double(), torch.ones(d).double())
    started = settings.clock()
    training = Training(
        call.state.objective,
        settings.seed,
        device,
        lambda: settings.clock() - started,
        start=Start(bank, None, same, call.state.n_frozen),
    )
    prepared = Prepared(None, same, rows, None, rows)
    config = scheduled(settings.config, call, len(rows), batch_is_free=settings.batch_is_free)
    # labels of new rows are smoothed already, and the network has said how sure to be of others
    config = replace(
        config,
        n_prototypes=bank.n_prototypes,
        label_smoothing=0.0,
        early_stopping=False,
        row_dtype="same",
    )
    return training.trained(prepared, (config,), settings.observer)


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


def _grown(bank: Bank, call: Call, settings: Settings) -> Bank:
    """With prototypes of the new classes, which start as rows of theirs."""
    state, unknown = call.state, call.unknown
    most, n_frozen = settings.most_prototypes, state.n_frozen
    each = GROWTH if most is None else max(1, min(GROWTH, most // (2 * len(unknown))))
    wanted = unknown.repeat_interleave(each)
    if most is not None:
        generator = Generator().manual_seed(settings.seed)
        n_left = max(1, n_frozen, most - len(wanted))
        bank = shrunk(bank, state.memory, n_left, settings.config, generator, n_frozen=n_frozen)
    Z = call.new.Z.float().cpu()
    picked = [
        Z[pick_rows(Z, wanted, call.groups, Generator().manual_seed(settings.seed + member))]
        for member in range(bank.n_members)
    ]
    inputs = torch.stack(picked)
    hidden, _ = hidden_of(bank, architecture_of(settings.config), inputs)
    low, high = ends_of(bank)
    outputs = torch.full((len(picked), len(wanted), bank.outputs.shape[2]), low)
    outputs[:, torch.arange(len(wanted)), wanted] = high
    return grown(bank, inputs, hidden, outputs)
