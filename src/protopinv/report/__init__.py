"""Figures, each returned as a matplotlib Figure."""
