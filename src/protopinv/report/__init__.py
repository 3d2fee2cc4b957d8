"""Figures, each returned as a matplotlib Figure."""

from protopinv.report.figures import Panel, Series, plot, save_figure
from protopinv.report.plots import (
    plot_calibration,
    plot_conditioning,
    plot_confusion,
    plot_history,
    plot_importance,
)
from protopinv.report.prototypes import Prototypes, plot_prototypes, prototypes_of

__all__ = [
    "Panel",
    "Prototypes",
    "Series",
    "plot",
    "plot_calibration",
    "plot_conditioning",
    "plot_confusion",
    "plot_history",
    "plot_importance",
    "plot_prototypes",
    "prototypes_of",
    "save_figure",
]
