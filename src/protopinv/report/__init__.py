"""Figures, each returned as a matplotlib Figure, and a page about a model."""

from protopinv.report.figures import Panel, Series, plot, save_figure
from protopinv.report.page import write_report
from protopinv.report.plots import (
    plot_calibration,
    plot_conditioning,
    plot_confusion,
    plot_history,
    plot_importance,
    plot_predictions,
    plot_prototypes,
)
from protopinv.report.prototypes import Prototypes, prototypes_of

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
    "plot_predictions",
    "plot_prototypes",
    "prototypes_of",
    "save_figure",
    "write_report",
]
