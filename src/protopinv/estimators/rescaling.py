"""Columns that begin to vary: their scale belongs to all rows so far, not to those of the fit."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from protopinv.bank import Bank
from protopinv.continual import State
from protopinv.estimators.widening import Inputs
from protopinv.features import FeatureMap
from protopinv.train.config import TrainConfig

# A column is rescaled once all rows so far spread so many times as far as its scale says.
WIDER = 2.0
# A standard deviation below this share of a column's unit is none: the column was constant.
CONSTANT = 1e-6


def rescaled(
    inputs: Inputs, state: State, Z: Float[Tensor, "n m"], weight: Float[Tensor, " n"]
) -> tuple[Inputs, State, Float[Tensor, "n m"]]:
    """Unit variance over all rows so far for every column that is far from it by now.

    Such a column was all but constant before, so its old values hardly matter: prototypes and
    memory have them in the new unit. Other columns stay as they are.
    """
    factors = _factors(state, Z, weight)
    if factors is None:
        return inputs, state, Z
    features = replace(inputs.features, scale=inputs.features.scale * factors)
    last = None if state.last is None else _in_units(state.last, factors)
    state = replace(
        state,
        bank=_in_units(state.bank, factors),
        last=last,
        memory=state.memory.rescaled(factors),
    )
    return replace(inputs, features=features), state, Z * factors.to(Z)


def scales_columns(features: FeatureMap, config: TrainConfig) -> bool:
    """Whether every column the network sees has a scale of its own."""
    alone = config.scaling == "feature" or config.bends_columns
    return alone and features.basis is None


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
