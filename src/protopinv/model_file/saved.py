"""What a model file holds."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from protopinv.bank import Bank
from protopinv.features import FeatureMap, Front
from protopinv.memory import Memory
from protopinv.network import Network
from protopinv.tables import Table

# Examples are sent through the network in pieces of so many numbers, where maps are widest.
PIECE_NUMBERS = 2**20


@dataclass(frozen=True)
class SavedModel:
    """All that a file holds.

    ``objective``, ``parameters``, ``config`` and ``history`` are plain JSON values: what the
    outputs stand for, the parameters as they were given and as they were used, what happened.
    ``table`` says what becomes of the columns of a frame; None where rows were numbers.
    ``examples`` are a few rows, those of a frame coded; ``made_up`` says that they are no training
    rows. ``target_names`` are the columns that are predicted, ``image_range`` the least and the
    largest pixel. ``dtype`` is the type of number that the network is stored in. ``sharpness`` is
    the factor of the network's outputs that held-out rows have chosen; None in a file from before
    it was stored. ``memory`` is what is known of the rows, ``last_bank`` where learning goes on
    from if that is not ``bank``, and ``continuing`` how it may go on: plain JSON values. A file of
    a newer version ``is_newer``. Without a ``bank`` it predicts, and cannot be trained further.
    """

    task: str
    objective: dict[str, Any]
    feature_names: list[str] | None
    parameters: dict[str, Any]
    config: dict[str, Any]
    history: dict[str, Any]
    bank: Bank | None
    features: FeatureMap
    network: Network
    front: Front | None
    examples: Tensor
    sharpness: float | None = None
    table: Table | None = None
    memory: Memory | None = None
    last_bank: Bank | None = None
    continuing: dict[str, Any] = field(default_factory=dict)
    made_up: bool = False
    target_names: list[str] | None = None
    image_range: tuple[float, float] | None = None
    dtype: str = "float64"
    is_newer: bool = False

    @property
    def n_features(self) -> int:
        """Numbers of a row as examples hold it: one for each column that is used."""
        if self.table is not None:
            return len(self.table.columns)
        return self.n_inputs

    @property
    def n_inputs(self) -> int:
        """Numbers that go into the front, or into the network where there is none."""
        return self.network.sizes[0] if self.front is None else self.front.n_inputs

    def outputs(self, rows: Tensor) -> Tensor:
        """What the network answers to rows like the examples, in float64."""
        widest = max(self.network.sizes)
        if self.front is not None:
            widest = max(widest, getattr(self.front, "widest", 0))
        found = []
        if self.table is not None:
            rows = torch.from_numpy(self.table.features(rows.double().numpy()))
        for piece in rows.split(max(1, PIECE_NUMBERS // widest)):
            seen = piece if self.front is None else self.front.features(piece)
            found.append(self.network(seen.double()))
        return torch.cat(found)
