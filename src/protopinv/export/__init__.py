"""A trained network in formats of others: ONNX, C99, JavaScript, torch, scikit-learn.

All are written from one description of the network (``description.py``, ``steps.py``). What a
format cannot hold it says before anything is written.
"""

from protopinv.export.description import Description, describe
from protopinv.export.exporting import Exported, export
from protopinv.export.objects import to_sklearn, to_torch
from protopinv.export.quantise import Quantised, quantise

__all__ = [
    "Description",
    "Exported",
    "Quantised",
    "describe",
    "export",
    "quantise",
    "to_sklearn",
    "to_torch",
]
