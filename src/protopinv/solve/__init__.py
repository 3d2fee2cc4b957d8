"""Ridge regression in closed form, with its derivative. Torch only, silent, no host reads."""

from protopinv.solve.forms import FORMS
from protopinv.solve.ridge import LayerSolve, Solution, ridge_solve, solve_layers
from protopinv.solve.spread import spread
from protopinv.solve.systems import exact_type

__all__ = [
    "FORMS",
    "LayerSolve",
    "Solution",
    "exact_type",
    "ridge_solve",
    "solve_layers",
    "spread",
]
