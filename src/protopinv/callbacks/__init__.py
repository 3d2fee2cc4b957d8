"""What may watch a training: ready-made callbacks for ``fit(..., callbacks=[...])``."""

from protopinv.callbacks.callback import Callback, Callbacks, TrainingStart
from protopinv.callbacks.early_stop import EarlyStop
from protopinv.callbacks.history_file import HistoryFile
from protopinv.callbacks.mlflow import MLflow
from protopinv.callbacks.tensorboard import TensorBoard

__all__ = [
    "Callback",
    "Callbacks",
    "EarlyStop",
    "HistoryFile",
    "MLflow",
    "TensorBoard",
    "TrainingStart",
]
