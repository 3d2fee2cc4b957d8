"""Inputs of a fitted model that change: new columns, and columns that begin to vary."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank
from protopinv.continual.banks import widened
from protopinv.continual.replay import State
from protopinv.features import FeatureMap, TailTransform
from protopinv.model import Model
from protopinv.tables import Table
from protopinv.train.config import TrainConfig

# A column is rescaled once all rows so far spread so many times as far as its scale says.
WIDER = 2.0
# A standard deviation below this share of a column's unit is none: the column was constant.
CONSTANT = 1e-6


def widened_to(model: Model, table: Table) -> Model:
    """The model for a table that has grown; every new column of it is an input of the banks.

    All rows so far are zero there, and no prediction changes. The network is still the old one.
    """
    old = model.table
    if old is None or table.n_features == old.n_features:
        return replace(model, table=table)
    places, scale = _placed(old, table, model.features.scale)
    features, components = model.features.widened(places, scale)
    front = model.front
    if isinstance(front, TailTransform):
        front = front.widened(places, table.n_features)
    bank = widened(model.prototypes, components, features.n_components)
    memory = model.replay.widened(components, features.n_components)
    wider = model.with_bank(bank)
    return replace(wider, table=table, front=front, features=features, memory=memory)


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
    features: FeatureMap,
    state: State,
    Z: Float[Tensor, "n m"],
    weight: Float[Tensor, " n"],
    config: TrainConfig,
) -> tuple[FeatureMap, State, Float[Tensor, "n m"]]:
    """Unit variance over all rows so far for every column that is far from it by now.

    Such a column was all but constant before, so its old values hardly matter: prototypes and
    replay memory have them in the new unit. Other columns stay as they are, and so do features
    that have no scale of their own.
    """
    has_scales = config.scaling == "feature" or config.compresses_tails
    factors = _factors(state, Z, weight) if has_scales and features.basis is None else None
    if factors is None:
        return features, state, Z
    features = replace(features, scale=features.scale * factors)
    last = None if state.last is None else _in_units(state.last, factors)
    bank, memory = _in_units(state.bank, factors), state.memory.rescaled(factors)
    return features, replace(state, bank=bank, last=last, memory=memory), Z * factors.to(Z)


def _factors(
    state: State, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
) -> Float[Tensor, " m"] | None:
    """What the scale of each column is multiplied by; None where all stay."""
    weight = weight.double()
    mass = float(weight.sum())
    mean = (weight @ Z.double() / mass).cpu()
    square = (weight @ Z.double().square() / mass).cpu()
    old_mass, old_mean, old_variance = state.memory.moments()
    share = mass / (mass + old_mass)
    centre = torch.lerp(old_mean, mean, share)
    raw = torch.lerp(old_variance + old_mean.square(), square, share)
    deviation = (raw - centre.square()).clamp_min(0).sqrt()
    old = old_variance.clamp_min(0).sqrt()
    begins = (old < CONSTANT) & (deviation > CONSTANT)
    factors = torch.where(begins | (deviation > WIDER), deviation, 1.0).reciprocal()
    return None if bool((factors == 1).all()) else factors


def _in_units(bank: Bank, factors: Float[Tensor, " m"]) -> Bank:
    return replace(bank, inputs=bank.inputs * factors.to(bank.inputs))
