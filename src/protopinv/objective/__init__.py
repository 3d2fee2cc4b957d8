"""What is asked of the outputs: classes, several labels at once, or numbers.

Below the estimators and the command line, only this package tells classes from numbers.
"""

from protopinv.objective.classes import Classes, Labels
from protopinv.objective.numbers import Numbers
from protopinv.objective.objective import Judged, Objective, Outputs

__all__ = ["Classes", "Judged", "Labels", "Numbers", "Objective", "Outputs"]
