"""What is remembered of rows that are gone: Gaussians, from which rows like them can be drawn."""

from protopinv.memory.memory import MEMORY, Memory, begin_memory, least_limit, require_room
from protopinv.memory.parts import Parts

__all__ = ["MEMORY", "Memory", "Parts", "begin_memory", "least_limit", "require_room"]
