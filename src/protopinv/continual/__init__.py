"""Continual learning: new rows and classes without the old ones; banks grow and shrink."""

from protopinv.continual.learning import LearnOptions, Pruned, forget, freeze, grow, learn, prune

__all__ = ["LearnOptions", "Pruned", "forget", "freeze", "grow", "learn", "prune"]
