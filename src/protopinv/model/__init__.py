"""A fitted model as one value, and the functions that make one from rows."""

from protopinv.model.fitting import FitOptions, Saving, fit_rows
from protopinv.model.model import Model, merged_network, torch_ready

__all__ = ["FitOptions", "Model", "Saving", "fit_rows", "merged_network", "torch_ready"]
