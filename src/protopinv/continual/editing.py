"""Models whose prototypes, classes or inputs change, and what a user may change without rows."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Generator, Tensor

from protopinv.continual.banks import (
    grown,
    mean_outputs,
    shrunk,
    widened,
    with_outputs,
)
from protopinv.errors import ConfigError, DataError
from protopinv.features import FeatureMap, TailTransform
from protopinv.memory import Memory
from protopinv.model import Model, merged_network
from protopinv.objective import Classes, Objective
from protopinv.plain import require_rule
from protopinv.tables import Table
from protopinv.train.config import COUNT, NATURAL
from protopinv.train.targets import classes_of, few

# A column is rescaled once all rows so far spread so many times as far as its scale says.
WIDER = 2.0
# A standard deviation below this share of a column's unit is none: the column was constant.
CONSTANT = 1e-6
# Drawn rows on which a change is measured.
JUDGED_ROWS = 5_000


def renewed(model: Model) -> Model:
    """The model with the network that its banks make; raises DataError for what cannot be saved."""
    memory, bank = model.replay, model.prototypes
    fault = memory.fault(model.features.n_components, model.objective.n_outputs)
    if fault is not None:
        raise DataError(
            f"A model must be of a kind that can be saved and learn further. Here {fault}. Scale "
            "the rows, or fit again."
        )
    config = replace(model.config, n_prototypes=bank.n_prototypes)
    steps, features = model.steps, None
    if steps is None:
        features = without_ignored(model.features, memory)
    else:
        steps = replace(steps, inside=memory.basis if memory.is_cut else None)
    network = merged_network(bank, features, model.objective, config, model.calibration)
    return replace(model, network=network, config=config, steps=steps)


def without_ignored(features: FeatureMap, memory: Memory) -> FeatureMap:
    """The feature map without the directions that the network ignores since a class was added."""
    if not memory.is_cut or memory.basis is None:
        return features
    inside = memory.basis @ memory.basis.T
    return replace(features, basis=inside if features.basis is None else features.basis @ inside)


# What rows that are learned bring with them. The network of the model is still the old one.


def with_classes(model: Model, objective: Classes, labels: NDArray[Any]) -> Model:
    """The model with an output for every class, in their order."""
    if len(labels) == objective.n_outputs:
        return model
    places = torch.from_numpy(np.searchsorted(labels, objective.labels))
    bank = with_outputs(model.prototypes, places, len(labels))
    memory = model.replay.renumbered(places, len(labels))
    return replace(model.with_bank(bank), memory=memory, objective=classes_of(labels))


def widened_to(model: Model, table: Table) -> Model:
    """The model for a table that has grown; every new column of it is an input of the banks.

    All rows so far are zero there, and no prediction changes.
    """
    old = model.table
    if old is None or table.n_features == old.n_features:
        return replace(model, table=table)
    places, scale = _placed(old, table, model.features.scale)
    features, components = model.features.widened(places, scale)
    front = model.front
    if isinstance(front, TailTransform):
        front = front.widened(places, table.n_features)
    memory = model.replay.widened(components, features.n_components)
    steps, width = model.steps, features.n_components
    if steps is not None:
        steps, components = replace(steps, inside=None).widened(components, width)
        width = steps.n_outputs
    wider = model.with_bank(widened(model.prototypes, components, width))
    return replace(wider, table=table, front=front, features=features, memory=memory, steps=steps)


def _placed(old: Table, new: Table, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Where every feature is now, and the factors of all.

    A new one has the median of the factors in its column of the table: with unit variances a rare
    value would have a large one, but whether the new value stays rare nobody knows.
    """
    places, factors, start, end = [], [], 0, 0
    for before, after in zip(old.columns, new.columns, strict=True):
        own = scale[end : end + len(before.names)]
        places.append(start + torch.arange(len(own)))
        more = len(after.names) - len(own)
        factors += [own, *[own.median().expand(more)] * bool(more)]
        start, end = start + len(after.names), end + len(own)
    return torch.cat(places), torch.cat(factors)


def in_one_scale(
    model: Model, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
) -> tuple[Model, Float[Tensor, "n m"]]:
    """Unit variance over all rows so far for every column that is far from it by now.

    Such a column was all but constant before, so its old values hardly matter: prototypes and
    replay memory have them in the new unit. Other columns stay as they are, and so do features
    that have no scale of their own.
    """
    has_scales = model.config.scaling == "feature" or model.config.compresses_tails
    if not has_scales or model.features.basis is not None:
        return model, Z
    factors = _factors(model.replay, Z.double(), weight.double())
    if bool((factors == 1).all()):
        return model, Z
    steps, own = model.steps, factors
    if steps is not None:
        steps, own = steps.rescaled(factors), torch.ones(steps.n_outputs, dtype=torch.float64)
        own[: len(steps.raw)] = factors[steps.raw]
    bank, last_bank = (
        each and replace(each, inputs=each.inputs * own.to(each.inputs))
        for each in (model.prototypes, model.last_bank)
    )
    changed = replace(
        model,
        features=replace(model.features, scale=model.features.scale * factors),
        bank=bank,
        last_bank=last_bank,
        steps=steps,
        memory=model.replay.rescaled(factors),
    )
    return changed, Z * factors.to(Z)


def _factors(
    memory: Memory, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
) -> Float[Tensor, " m"]:
    """What the scale of each column is multiplied by."""
    mass = float(weight.sum())
    mean, square = (weight @ Z / mass).cpu(), (weight @ Z.square() / mass).cpu()
    old_mass, old_mean, old_variance = memory.moments()
    share = mass / (mass + old_mass)
    centre = torch.lerp(old_mean, mean, share)
    raw = torch.lerp(old_variance + old_mean.square(), square, share)
    deviation = (raw - centre.square()).clamp_min(0).sqrt()
    old = old_variance.clamp_min(0).sqrt()
    begins = (old < CONSTANT) & (deviation > CONSTANT)
    return torch.where(begins | (deviation > WIDER), deviation, 1.0).reciprocal()


# What a user may change without rows.


@dataclass(frozen=True)
class Pruned:
    """How many prototypes every bank had and has, and what their removal cost.

    ``change`` is how far outputs for rows drawn from the replay memory moved, root mean square, in
    standard deviations of the outputs; ``agreement`` is the share of these rows with the same
    prediction as before: the same class, the same labels, a number within a tenth of a deviation.
    """

    n_before: int
    n_prototypes: int
    change: float
    agreement: float


def grow(model: Model, n: int, seed: int) -> Model:
    """The model with ``n`` more prototypes in every bank, at rows drawn from the replay memory."""
    require_rule("n", n, COUNT)
    return model.changed(partial(_with_more, n=n, seed=seed))


def _with_more(model: Model, n: int, seed: int) -> Model:
    bank, architecture = model.prototypes, model.config.architecture
    members, generator = bank.n_members, Generator().manual_seed(seed)
    drawn, _ = model.replay.drawn(max(n * members * 10, 100), generator)
    picked = torch.randperm(len(drawn), generator=generator)[: n * members]
    inputs = model.seen(drawn[picked]).view(members, n, -1)
    return renewed(model.with_bank(grown(bank, architecture, inputs)))


def freeze(model: Model, n: int | None = None) -> Model:
    """The model with the first ``n`` prototypes of every bank fixed; None: all, 0: none."""
    if n is not None:
        require_rule("n", n, NATURAL)

    def frozen(part: Model) -> Model:
        most = part.prototypes.n_prototypes
        return replace(part, n_frozen=most if n is None else min(n, most), last_bank=None)

    return model.changed(frozen)


def prune(model: Model, n_prototypes: int, seed: int) -> tuple[Model, Pruned]:
    """The model with so many prototypes in every bank, the most important, and what that cost."""
    require_rule("n_prototypes", n_prototypes, COUNT)
    generator = Generator().manual_seed(seed)

    def pruned(part: Model) -> Model:
        n_frozen = min(part.n_frozen, n_prototypes)
        smaller = shrunk(part, part.prototypes, n_prototypes, generator)
        return renewed(replace(part.with_bank(smaller), n_frozen=n_frozen))

    changed = model.changed(pruned)
    rows = model.replay.drawn(JUDGED_ROWS, generator)[0].double()
    before, after = (_outputs(each, rows) for each in (model, changed))
    n_before, n_after = (each.prototypes.n_prototypes for each in (model, changed))
    return changed, Pruned(n_before, n_after, *_moved(before, after, model.objective))


def _outputs(model: Model, Z: Float[Tensor, "n m"]) -> Float[Tensor, "n k"]:
    """Outputs for projected rows in the units of training, the mean over an ensemble."""
    return torch.stack(
        [
            part.weight
            * part.calibration
            * mean_outputs(part.prototypes, part.config.architecture, part.seen(Z))
            for part in model.parts
        ]
    ).sum(0)


def _moved(before: Tensor, after: Tensor, objective: Objective) -> tuple[float, float]:
    """How far outputs moved, in deviations, and the share of rows with the same prediction."""
    deviation = float(before.std(0, correction=0).square().mean().sqrt())
    change = float((after - before).square().mean().sqrt()) / (deviation or 1.0)
    if objective.are_odds:
        old, new = (objective.decode(each.numpy()) for each in (before, after))
        same = np.asarray(old == new).reshape(len(before), -1).all(1)
        return change, float(same.mean())
    near = (after - before).abs() <= 0.1 * before.std(0, correction=0)
    return change, float(near.all(1).double().mean())


def forget(model: Model, label: Any) -> Model:
    """The model without a class: its replay memory and its output go, others are as they were.

    Rows of this class have still shaped the hidden units; of the memory nothing of it is left.
    Training rows in ``examples`` go too, all of them: their classes are not stored.
    """
    return model.changed(partial(_without, label=label))


def _without(model: Model, label: Any) -> Model:
    bank, memory, objective = model.prototypes, model.replay, model.objective
    if not isinstance(objective, Classes):
        raise ConfigError("A class can be forgotten. This model has several labels a row.")
    places = np.flatnonzero(objective.labels == label)
    if not len(places) or objective.n_outputs < 3:
        raise DataError(
            "A class of the model can be forgotten while two others are left. Got "
            f"{label!r}, and there are {few(objective.labels.tolist())}. Choose one of these."
        )
    number = int(places[0])
    memory = memory.without(number)
    if not len(memory.gaussians):
        raise DataError(
            "A class can be forgotten while the memory has rows of others. That of this model "
            f"has rows of {few(objective.labels[places].tolist())} alone. Fit again without them."
        )
    others = torch.arange(objective.n_outputs) != number
    smaller = replace(
        model.with_bank(replace(bank, outputs=bank.outputs[:, :, others])),
        memory=memory,
        objective=classes_of(objective.labels[others.numpy()]),
        examples=model.examples[:0].copy(),
    )
    return renewed(smaller)
