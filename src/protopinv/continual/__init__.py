"""Continual learning: new rows and classes without the old ones; banks grow and shrink."""

from protopinv.continual.editing import Pruned, forget, freeze, grow, prune
from protopinv.continual.learning import learn
from protopinv.continual.update import LearnOptions

__all__ = ["LearnOptions", "Pruned", "forget", "freeze", "grow", "learn", "prune"]
