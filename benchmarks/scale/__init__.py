"""Rows that do not fit in memory: how fast, how much memory, and against whom."""
