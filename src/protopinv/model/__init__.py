"""A fitted model as one value, and the functions that make one from rows."""

from protopinv.model.fitting import FitOptions, fit_rows
from protopinv.model.model import Model, torch_ready
from protopinv.model.resuming import Saving

__all__ = ["FitOptions", "Model", "Saving", "fit_rows", "torch_ready"]
