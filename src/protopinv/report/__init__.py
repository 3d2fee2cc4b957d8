"""Figures, each returned as a matplotlib Figure, and a page about a model."""

from typing import TYPE_CHECKING, Any

from protopinv.report.figures import Panel, Series, plot, save_figure

if TYPE_CHECKING:
    from protopinv.report.page import write_report

__all__ = ["Panel", "Series", "plot", "save_figure", "write_report"]


def __getattr__(name: str) -> Any:
    """The page is imported when it is first asked for: figures need none of it."""
    if name != "write_report":
        raise AttributeError(f"module 'protopinv.report' has no attribute {name!r}")
    from protopinv.report.page import write_report

    return write_report
