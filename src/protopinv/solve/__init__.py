"""Ridge regression in closed form, with its derivative. Torch only, silent, no host reads."""

from protopinv.solve.gram import solve_gram
from protopinv.solve.ridge import (
    FORMS,
    LayerSolve,
    Solution,
    choose_form,
    ridge_solve,
    solve_layers,
)
from protopinv.solve.spread import spread

__all__ = [
    "FORMS",
    "LayerSolve",
    "Solution",
    "choose_form",
    "ridge_solve",
    "solve_gram",
    "solve_layers",
    "spread",
]
