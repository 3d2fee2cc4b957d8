"""What is remembered of rows that are gone: Gaussians, from which rows like them can be drawn."""

from protopinv.memory.memory import Memory, begin_memory, checked_limit, least_limit

__all__ = ["Memory", "begin_memory", "checked_limit", "least_limit"]
