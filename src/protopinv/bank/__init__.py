"""What is trained: prototype inputs, hidden targets, outputs and ridges; and how they begin."""

from protopinv.bank.bank import Bank
from protopinv.bank.start import balanced_classes, normal_inputs, start_bank, stratified_inputs

__all__ = ["Bank", "balanced_classes", "normal_inputs", "start_bank", "stratified_inputs"]
