"""Continual learning: new rows and classes without the old ones; banks grow and shrink."""

from protopinv.continual.editing import Pruned, forget, freeze, grow, prune, without_ignored
from protopinv.continual.learning import LearnOptions, learn

__all__ = [
    "LearnOptions",
    "Pruned",
    "forget",
    "freeze",
    "grow",
    "learn",
    "prune",
    "without_ignored",
]
