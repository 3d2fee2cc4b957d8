"""One update: new rows, replayed rows of old ones, and a short training on both.

Training continues from the bank of the last call, and predictions are those of the mean over the
last calls: with rows like those before it errs less. Rows of the next call, which neither has seen,
say whether that is still right: where the last bank alone is better, the mean begins anew with it.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Generator, Tensor

from protopinv.bank import Bank, pick_rows
from protopinv.continual.banks import answers, ends_of, grown, hidden_of, importances, left_with
from protopinv.continual.replay import Call, New, State, together
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.network import Architecture
from protopinv.objective import Objective
from protopinv.train.config import TrainConfig
from protopinv.train.history import History
from protopinv.train.prepare import Prepared
from protopinv.train.rows import Rows
from protopinv.train.training import Job, Start, Trained, train

# What the bank of a call counts for in the mean at least: about the last ten calls are in it.
LEAST_SHARE = 0.1
# A difference of so many standard errors is no chance.
CLEAR = 2.0
# With a new class, or rows unlike all others: shares of the epochs and of the rate of a fit of as
# many rows.
EPOCHS, RATE = 0.4, 0.3
# With rows like those before: passes over them by the share of all rows so far that came after the
# fit, and the least of them; the rate by that share and the share of those that are new, and the
# most it can be.
PASSES, LEAST_PASSES, FRESH_RATE, MOST_RATE = 8, 2, 3.0, 1.0
# Few rows are learned in so many batches, of so many rows at least: a step of all of them at once
# would be one of too few.
LEAST_BATCHES, LEAST_BATCH = 8, 256
# Drawn rows on which prototypes are weighed.
WEIGHED_ROWS = 500
# Prototypes for a new class.
GROWTH = 10


@dataclass(frozen=True)
class Settings:
    """How to learn: the configuration, and where and by which random numbers it is trained.

    ``factors`` say what rows of each group count beside their weight. ``max_prototypes`` limits
    growth. ``config`` is that of a fit of as many rows; ``batch_is_free`` leaves its batches open.
    With ``is_wider`` the network has an input that old rows did not have. ``decay`` is the share of
    the replay memory to forget first.
    """

    config: TrainConfig
    job: Job
    batch_is_free: bool = False
    is_wider: bool = False
    decay: float = 0.0
    factors: Float[Tensor, " g"] | None = None
    max_prototypes: int | None = None


def update(state: State, new: New, settings: Settings) -> tuple[State, History]:
    """Learn from new rows without losing what was learned from those that are gone."""
    generator = Generator().manual_seed(settings.job.seed)
    call = _compared(state, new, settings)
    rows = together(call, settings.config, settings.job.device, generator)
    if settings.factors is not None:
        rows = _weighted(rows, state.objective, settings.factors)
    trained = _trained(call, rows, settings)
    memory = call.state.memory.added(
        new.Z, call.groups.to(new.Z.device), new.weight, state.objective.n_groups, generator
    )
    learned = replace(call.state, memory=memory)
    if call.grows:
        return learned.with_bank(trained.bank), trained.history
    # the mean over calls forgets what the memory forgets
    least = max(call.share, settings.decay)
    return followed_by(learned, trained.bank, least), trained.history


def _compared(state: State, new: New, settings: Settings) -> Call:
    """New rows beside old ones, of which ``decay`` are forgotten."""
    n_groups = state.objective.n_groups
    groups = state.objective.groups(new.targets.cpu())
    known = state.memory.masses(n_groups) > 0  # what is forgotten only now is not new
    if settings.decay:
        state = replace(state, memory=state.memory.weakened(1 - settings.decay))
    if not bool(known[groups].all()):
        state = replace(state.with_bank(state.bank), memory=opened(state.memory, new))
    new = replace(new, Z=state.memory.cut(new.Z))
    state = reviewed(state, new, settings.config.architecture)
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
    bank, d = call.state.to_train, rows.X.shape[1]
    if call.grows:
        bank = _grown(bank, call, settings)
    same = FeatureMap(torch.zeros(d).double(), torch.ones(d).double())
    config = scheduled(settings.config, call, len(rows), batch_is_free=settings.batch_is_free)
    # labels of new rows are smoothed already, and replayed ones have the network's probabilities
    config = replace(
        config,
        n_prototypes=bank.n_prototypes,
        label_smoothing=0.0,
        early_stopping=False,
        row_dtype="same",
    )
    start = Start(bank, call.state.n_frozen)
    prepared = Prepared(None, same, rows, rows)
    return train(prepared, call.state.objective, [config], settings.job, start)


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
    worth = importances(bank, config.architecture, rows)
    worth[:, :n_frozen] = torch.inf
    kept = worth.argsort(1, descending=True)[:, :n_prototypes]
    return left_with(bank, kept.sort(1).values)


def _grown(bank: Bank, call: Call, settings: Settings) -> Bank:
    """With prototypes of the new classes, which start as rows of theirs."""
    state, unknown = call.state, call.unknown
    most, n_frozen = settings.max_prototypes, state.n_frozen
    each = GROWTH if most is None else max(1, min(GROWTH, most // (2 * len(unknown))))
    wanted = unknown.repeat_interleave(each)
    if most is not None:
        generator = Generator().manual_seed(settings.job.seed)
        n_left = max(1, n_frozen, most - len(wanted))
        bank = shrunk(bank, state.memory, n_left, settings.config, generator, n_frozen=n_frozen)
    Z = call.new.Z.float().cpu()
    picked = [
        Z[pick_rows(Z, wanted, call.groups, Generator().manual_seed(settings.job.seed + member))]
        for member in range(bank.n_members)
    ]
    inputs = torch.stack(picked)
    hidden, _ = hidden_of(bank, settings.config.architecture, inputs)
    low, high = ends_of(bank)
    outputs = torch.full((len(picked), len(wanted), bank.outputs.shape[2]), low)
    outputs[:, torch.arange(len(wanted)), wanted] = high
    return grown(bank, inputs, hidden, outputs)


def scheduled(config: TrainConfig, call: Call, n_rows: int, *, batch_is_free: bool) -> TrainConfig:
    """For so many rows, new and drawn, from what a fit of as many new ones would have."""
    rate, epochs = RATE, EPOCHS * config.max_epochs
    if not call.grows:
        gently, passes = gentle(call.state.memory, float(call.new.weight.sum()))
        rate = max(RATE * call.share, gently)
        epochs = (1 - call.share) * min(passes, config.max_epochs) + call.share * epochs
    if batch_is_free:
        small = max(LEAST_BATCH, math.ceil(n_rows / LEAST_BATCHES))
        config = replace(config, batch_size=min(small, config.batch_size or small))
    n_epochs = math.ceil(round(epochs, 6))  # sums of weights are off by their rounding
    return replace(
        config,
        max_epochs=n_epochs,
        warmup_epochs=min(config.warmup_epochs, n_epochs // 4),
        lr=rate * config.lr,
    )


def gentle(memory: Memory, mass: float) -> tuple[float, float]:
    """The share of the rate of a fit, and the passes, for rows like those before of this mass.

    A network that was fitted is as good as its rows allow, and a large step would only shake it.
    One that has learned from small calls is behind a fit of all their rows, and has to catch up.
    """
    total = mass + float(memory.parts.mass.sum())
    fresh = (total - memory.fitted) / total
    rate = min(MOST_RATE, FRESH_RATE * fresh * mass / total)
    return rate, max(LEAST_PASSES, PASSES * fresh)


def reviewed(state: State, new: New, architecture: Architecture) -> State:
    """The same, or with the last bank alone if rows that neither has seen are clearly for it."""
    if state.last is None:
        return state
    targets = state.objective.dense(new.targets, new.Z.dtype)
    mean, last = (
        state.objective.judge(answers(bank, architecture, new.Z).T[None], targets).plain[0]
        for bank in (state.bank, state.last)
    )
    gain, weight = (mean - last).double(), new.weight.to(mean.device).double()
    total = float(weight.sum())
    average = float(weight @ gain) / total
    variance = float(weight @ (gain - average).square()) / total
    # a weight counts as so many rows, whatever its unit
    if not average > CLEAR * math.sqrt(variance * state.memory.unit / total):
        return state
    return replace(state, bank=state.last, last=None, n_calls=1)


def followed_by(state: State, trained: Bank, least: float) -> State:
    """With the bank of one more call, which counts for its share of all calls, or for ``least``."""
    share = max(LEAST_SHARE, 1 / (state.n_calls + 1), least)
    if share >= 1:
        return replace(state.with_bank(trained), n_calls=1)
    mean = between(state.bank, trained, share)
    return replace(state, bank=mean, last=trained, n_calls=state.n_calls + 1)


def between(first: Bank, second: Bank, share: float) -> Bank:
    """(1 - share) first + share second, number by number."""
    pairs = zip(first.trained, second.trained, strict=True)
    mixed = [torch.lerp(a.to(b), b, share) for a, b in pairs]
    return second.with_trained(mixed, second.learnable_ridge.clone())
