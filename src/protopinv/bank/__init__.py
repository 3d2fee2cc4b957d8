"""What is trained: prototype inputs, hidden targets, outputs and ridges; and how they begin."""

from protopinv.bank.bank import Bank, population
from protopinv.bank.start import (
    balanced_groups,
    normal_inputs,
    normal_outputs,
    pick_rows,
    start_bank,
)

__all__ = [
    "Bank",
    "balanced_groups",
    "normal_inputs",
    "normal_outputs",
    "pick_rows",
    "population",
    "start_bank",
]
