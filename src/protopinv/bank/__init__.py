"""What is trained: prototype inputs, hidden targets, outputs and ridges; and how they begin."""

from protopinv.bank.bank import Bank
from protopinv.bank.start import (
    balanced_classes,
    balanced_outputs,
    normal_inputs,
    normal_outputs,
    start_bank,
    stratified_inputs,
)

__all__ = [
    "Bank",
    "balanced_classes",
    "balanced_outputs",
    "normal_inputs",
    "normal_outputs",
    "start_bank",
    "stratified_inputs",
]
