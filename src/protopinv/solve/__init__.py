"""Ridge regression in closed form, with its derivative. Torch only, silent, no host reads."""

from protopinv.solve.ridge import FORMS, Solution, choose_form, ridge_solve, solve_layers

__all__ = ["FORMS", "Solution", "choose_form", "ridge_solve", "solve_layers"]
