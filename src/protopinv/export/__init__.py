"""A trained network in formats of others: ONNX, C99, JavaScript, torch.

All are written from one description of the network (``description.py``, ``steps.py``). What a
format cannot hold it says before anything is written.
"""

from protopinv.export.description import Description, describe
from protopinv.export.quantise import Quantised, quantise
from protopinv.export.torch_module import to_torch
from protopinv.export.writing import SUFFIXES, Exported, write

__all__ = [
    "SUFFIXES",
    "Description",
    "Exported",
    "Quantised",
    "describe",
    "quantise",
    "to_torch",
    "write",
]
