"""What may watch a training: ready-made callbacks for ``fit(..., callbacks=[...])``."""

from protopinv.callbacks.callback import Callback, Callbacks, EarlyStop, TrainingStart
from protopinv.callbacks.recording import HistoryFile, MLflow, TensorBoard

__all__ = [
    "Callback",
    "Callbacks",
    "EarlyStop",
    "HistoryFile",
    "MLflow",
    "TensorBoard",
    "TrainingStart",
]
