"""Figures of speed with their recipes: tasks, steps, timing, and records of what was measured."""
