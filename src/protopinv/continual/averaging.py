"""The mean of the banks of the last calls: with rows like those before it errs less than the last.

Training goes on from the bank of the last call, and what is predicted is the mean. Rows of the next
call, which neither has seen, say whether that is still right: where the last bank alone is better,
the mean begins anew with it.
"""

import math
from dataclasses import replace

import torch

from protopinv.bank import Bank
from protopinv.continual.banks import answers
from protopinv.continual.state import New, State
from protopinv.network import Architecture

# What the bank of a call counts for in the mean at least: about the last ten calls are in it.
LEAST_SHARE = 0.1
# A difference of so many standard errors is no chance.
CLEAR = 2.0


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
