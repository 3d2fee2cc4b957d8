"""What is remembered of rows that are gone: Gaussians, from which rows like them can be drawn."""

from protopinv.memory.gaussians import Gaussians
from protopinv.memory.memory import MEMORY, Memory, begin_memory, checked_limit, least_limit

__all__ = ["MEMORY", "Gaussians", "Memory", "begin_memory", "checked_limit", "least_limit"]
