"""Figures, each returned as a matplotlib Figure."""

from protopinv.report.figures import Panel, Series, plot, save_figure

__all__ = ["Panel", "Series", "plot", "save_figure"]
