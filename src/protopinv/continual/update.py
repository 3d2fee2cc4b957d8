"""One update: new rows, replayed ones where new rows say nothing, and a short training on both.

Replayed rows are drawn from the replay memory and labelled with the predictions of the network
before the update (knowledge distillation); with a new class half of the label is the group they
were drawn for. So the network keeps what it learned from real rows, and the memory says where. New
rows that are like old ones keep what these have taught, and none are replayed.

Training continues from the bank of the last call, and predictions are those of the mean over the
last calls: with rows like those before it errs less. Rows of the next call, which neither has seen,
say whether that is still right: where the last bank alone is better, the mean begins anew with it.
"""

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Generator, Tensor
from torch.nn.functional import one_hot

from protopinv.bank import Bank, pick_rows
from protopinv.continual.banks import ends_of, grown, mean_outputs, shrunk
from protopinv.features import FeatureMap
from protopinv.memory import Memory
from protopinv.model import Model
from protopinv.objective import Classes, Labels
from protopinv.train.config import TrainConfig
from protopinv.train.history import Observer
from protopinv.train.prepare import Prepared
from protopinv.train.rows import Rows
from protopinv.train.targets import Targets
from protopinv.train.training import Job, Start, Trained, train

# Rows that are drawn for every new one, how many at least, and what each counts at most beside a
# new one.
DRAWN_FOR_ONE, LEAST_DRAWN, MOST_WEIGHT = 2.0, 2_000, 2.0
# How much of the target of a drawn row is the prediction of the network, once a new class comes;
# before, it is all.
FROM_NETWORK = 0.5
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
# Prototypes for a new class.
GROWTH = 10


@dataclass(frozen=True)
class New:
    """New rows as the network sees them, targets as the objective has them, and weights."""

    Z: Float[Tensor, "n m"]
    targets: Shaped[Tensor, "n *target"]
    weight: Float[Tensor, " n"]


@dataclass(frozen=True)
class LearnOptions:
    """How to learn: the share of the replay memory to forget first, and a limit of growth.

    Of ``targets`` only the settings matter: classes that are listed, numbers that are bounded.
    """

    targets: Targets
    decay: float = 0.0
    observer: Observer | None = None
    max_prototypes: int | None = None


@dataclass(frozen=True)
class Settings:
    """How an update trains: the configuration of a fit of as many rows, and where it runs.

    ``batch_is_free`` leaves the batches open. With ``is_wider`` the network has an input that old
    rows did not have. ``factors`` say what rows of each group count beside their weight.
    """

    config: TrainConfig
    job: Job
    how: LearnOptions
    batch_is_free: bool = False
    is_wider: bool = False
    factors: Float[Tensor, " g"] | None = None


@dataclass(frozen=True)
class Call:
    """What a call brings, beside what there is: new rows as the network will see them.

    ``groups`` are those of the rows. ``is_old`` marks the groups that had rows before, and
    ``unlike`` says how unlike the new rows of each are to the old ones.
    """

    model: Model
    new: New
    settings: Settings
    groups: Int[Tensor, " n"]
    is_old: Bool[Tensor, " g"]
    unlike: Float[Tensor, " g"]

    @property
    def unknown(self) -> Int[Tensor, " c"]:
        """Groups that come for the first time."""
        groups: Tensor = self.groups.unique()
        return groups[~self.is_old[groups]]

    @property
    def grows(self) -> bool:
        """Whether there are any."""
        return len(self.unknown) > 0

    @property
    def masses(self) -> Float[Tensor, " g"]:
        """What the old rows of each group count."""
        return self.model.replay.masses(self.model.objective.n_groups)

    @property
    def share(self) -> float:
        """Of all old rows, those that new ones are unlike to."""
        return float(self.unlike @ self.masses / self.masses.sum())


def update(model: Model, new: New, settings: Settings) -> Model:
    """Learn from new rows without losing what was learned from those that are gone.

    The network of the model is still the old one.
    """
    generator = Generator().manual_seed(settings.job.seed)
    call = _compared(model, new, settings)
    trained = _trained(call, together(call, generator))
    memory = call.model.replay.added(
        new.Z, call.groups.to(new.Z.device), new.weight, model.objective.n_groups, generator
    )
    learned = replace(call.model, memory=memory, history=trained.history)
    if call.grows:
        return learned.with_bank(trained.bank)
    # the mean over calls forgets what the memory forgets
    return followed_by(learned, trained.bank, max(call.share, settings.how.decay))


def _compared(model: Model, new: New, settings: Settings) -> Call:
    """New rows beside old ones, of which ``decay`` are forgotten."""
    n_groups, memory = model.objective.n_groups, model.replay
    groups = model.objective.groups(new.targets.cpu())
    is_old = memory.masses(n_groups) > 0  # what is forgotten only now is not new
    if settings.how.decay:
        memory = memory.weakened(1 - settings.how.decay)
    if not bool(is_old[groups].all()):
        model, memory = model.with_bank(model.prototypes), opened(memory, new)
    new = replace(new, Z=memory.cut(new.Z))
    model = reviewed(replace(model, memory=memory), new)
    # with an input that starts at zero there is as much to learn as with a class
    unlike = torch.ones(n_groups, dtype=torch.float64)
    if not settings.is_wider:
        unlike = memory.unlike(new.Z, groups.to(new.Z.device), new.weight, n_groups)
    return Call(model, new, settings, groups, is_old, unlike)


def opened(memory: Memory, new: New) -> Memory:
    """The memory for new classes: directions that serve them too, and no tails any more."""
    return replace(memory.turned(new.Z, new.weight), is_cut=memory.tail is not None)


def together(call: Call, generator: Generator) -> Rows:
    """New rows with their targets, and drawn ones with theirs, of groups that need them."""
    model, new, settings = call.model, call.new, call.settings
    device, dtype = settings.job.device, getattr(torch, settings.config.dtype)
    Z, weight = new.Z.to(device, dtype), new.weight.to(device, dtype)
    targets = _real_targets(call).to(device, dtype)
    mass, unit = float(call.masses.sum()), float(new.weight.mean())
    # no more than there have been; heavy rows count as many
    n_old = max(float(model.replay.gaussians.rows.sum()), mass / unit)
    most = min(round(n_old), max(LEAST_DRAWN, round(DRAWN_FOR_ONE * len(Z))))
    n = round(most * call.share)
    if n > 0:
        drawn, groups = model.replay.drawn(n, generator, call.unlike)
        drawn = drawn.to(device, dtype)
        Z = torch.cat([Z, drawn])
        targets = torch.cat([targets, _distilled_targets(call, drawn, groups.to(device))])
        weight = torch.cat([weight, weight.new_full((n,), min(mass / most, MOST_WEIGHT * unit))])
    if settings.factors is not None:
        weight = weight * settings.factors[model.objective.groups(targets.cpu())].to(weight)
    return Rows(model.seen(Z), targets, (weight / weight.mean())[None])


def _real_targets(call: Call) -> Float[Tensor, "n k"]:
    """Targets of real rows; classes as shares of all of them, smoothed as in the fit."""
    objective, targets = call.model.objective, call.new.targets
    if not isinstance(objective, Classes):
        return targets
    shares, smoothing = one_hot(targets, objective.n_outputs), call.settings.config.label_smoothing
    return shares.float() * (1 - smoothing) + smoothing / objective.n_outputs


def _distilled_targets(
    call: Call, drawn: Float[Tensor, "n m"], groups: Int[Tensor, " n"]
) -> Float[Tensor, "n k"]:
    """Targets of drawn rows: what the network before the update predicts."""
    model, objective = call.model, call.model.objective
    outputs = mean_outputs(model.prototypes, model.config.architecture, model.seen(drawn))
    if isinstance(objective, Labels):
        return torch.sigmoid(outputs)
    if not isinstance(objective, Classes):
        return outputs
    is_old = call.is_old.to(outputs.device)
    shares = torch.softmax(outputs.masked_fill(~is_old, -torch.inf), dim=1)
    labels = one_hot(groups, objective.n_outputs).to(shares)
    return torch.lerp(labels, shares, FROM_NETWORK if call.grows else 1.0)


def _trained(call: Call, rows: Rows) -> Trained:
    """The bank after a short training on rows that need no projection any more."""
    bank, d = call.model.last_bank or call.model.prototypes, rows.X.shape[1]
    if call.grows:
        bank = _grown(bank, call)
    same = FeatureMap(torch.zeros(d).double(), torch.ones(d).double())
    # labels of new rows are smoothed already, and replayed ones have the network's probabilities
    config = replace(
        scheduled(call, len(rows)),
        n_prototypes=bank.n_prototypes,
        label_smoothing=0.0,
        row_dtype="same",
        number_encoding="raw",  # these rows are encoded
    )
    start = Start(bank, call.model.n_frozen)
    prepared = Prepared(None, same, rows, rows)
    (trained,), _ = train(prepared, call.model.objective, [config], call.settings.job, [start])
    return trained


def _grown(bank: Bank, call: Call) -> Bank:
    """With prototypes of the new classes, which start as rows of theirs."""
    model, unknown, architecture = call.model, call.unknown, call.model.config.architecture
    most, seed = call.settings.how.max_prototypes, call.settings.job.seed
    each = GROWTH if most is None else max(1, min(GROWTH, most // (2 * len(unknown))))
    classes = unknown.repeat_interleave(each)
    if most is not None:
        n_left, rng = max(1, model.n_frozen, most - len(classes)), Generator().manual_seed(seed)
        bank = shrunk(model, bank, n_left, rng)
    Z = model.seen(call.new.Z).float().cpu()
    picked = [
        Z[pick_rows(Z, classes, call.groups, Generator().manual_seed(seed + member))]
        for member in range(bank.n_members)
    ]
    inputs = torch.stack(picked)
    low, high = ends_of(bank)
    outputs = bank.outputs.new_full((len(picked), len(classes), bank.outputs.shape[2]), low)
    outputs[:, torch.arange(len(classes)), classes] = high
    return grown(bank, architecture, inputs, outputs)


def scheduled(call: Call, n_rows: int) -> TrainConfig:
    """For so many rows, new and drawn, from what a fit of as many new ones would have."""
    config = call.settings.config
    rate, epochs = RATE, EPOCHS * config.max_epochs
    if not call.grows:
        gently, passes = gentle(call.model.replay, float(call.new.weight.sum()))
        rate = max(RATE * call.share, gently)
        epochs = (1 - call.share) * min(passes, config.max_epochs) + call.share * epochs
    if call.settings.batch_is_free:
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
    total = mass + float(memory.gaussians.mass.sum())
    fresh = (total - memory.fitted) / total
    rate = min(MOST_RATE, FRESH_RATE * fresh * mass / total)
    return rate, max(LEAST_PASSES, PASSES * fresh)


def reviewed(model: Model, new: New) -> Model:
    """With the last bank in place of the mean, if rows new to both are clearly for it."""
    if model.last_bank is None:
        return model
    architecture, objective, seen = model.config.architecture, model.objective, model.seen(new.Z)
    mean, last = (
        objective.judge(mean_outputs(bank, architecture, seen).T[None], new.targets).plain[0]
        for bank in (model.prototypes, model.last_bank)
    )
    gain, weight = (mean - last).double(), new.weight.to(mean.device).double()
    total = float(weight.sum())
    average = float(weight @ gain) / total
    variance = float(weight @ (gain - average).square()) / total
    # a weight counts as so many rows, whatever its unit
    if not average > CLEAR * math.sqrt(variance * model.replay.unit / total):
        return model
    return replace(model, bank=model.last_bank, last_bank=None, n_calls=1)


def followed_by(model: Model, trained: Bank, least: float) -> Model:
    """With the bank of one more call, which counts for its share of all calls, or for ``least``."""
    share = max(LEAST_SHARE, 1 / (model.n_calls + 1), least)
    if share >= 1:
        return replace(model.with_bank(trained), n_calls=1)
    mean = between(model.prototypes, trained, share)
    return replace(model, bank=mean, last_bank=trained, n_calls=model.n_calls + 1)


def between(first: Bank, second: Bank, share: float) -> Bank:
    """(1 - share) first + share second, number by number."""
    pairs = zip(first.trained, second.trained, strict=True)
    mixed = [torch.lerp(a.to(b), b, share) for a, b in pairs]
    return second.with_trained(mixed, second.learnable_ridge.clone())
