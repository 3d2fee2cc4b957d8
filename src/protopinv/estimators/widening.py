"""More inputs for a fitted network: all rows so far are zero there, and no answer changes."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from protopinv.continual import State, widened
from protopinv.features import Bent, FeatureMap, Front
from protopinv.tables import Table


@dataclass(frozen=True)
class Inputs:
    """All that lies between the rows of a user and the banks."""

    table: Table | None
    front: Front | None
    features: FeatureMap


def with_table(inputs: Inputs, state: State, table: Table | None) -> tuple[Inputs, State]:
    """The same for a table that has grown; every new column of it is an input of the banks."""
    known = inputs.table
    if known is None or table is None or table.n_features == known.n_features:
        return replace(inputs, table=table), state
    places, scale = _placed(known, table, inputs.features.scale)
    features, components = inputs.features.widened(places, scale)
    front = inputs.front
    if isinstance(front, Bent):
        front = front.widened(places, table.n_features)
    wider = state.with_bank(widened(state.bank, components, features.n_components))
    memory = state.memory.widened(components, features.n_components)
    return Inputs(table, front, features), replace(wider, memory=memory)


def _placed(known: Table, table: Table, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Where every feature is now, and the factors of all.

    A new one has the median of the factors in its column of the table: with unit variances a rare
    value would have a large one, but whether the new value stays rare nobody knows.
    """
    places, factors, start, end = [], [], 0, 0
    for old, new in zip(known.columns, table.columns, strict=True):
        own = scale[end : end + len(old.names)]
        places.append(start + torch.arange(len(own)))
        more = len(new.names) - len(own)
        factors += [own, *[own.median().expand(more)] * bool(more)]
        start, end = start + len(new.names), end + len(own)
    return torch.cat(places), torch.cat(factors)
