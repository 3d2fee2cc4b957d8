"""What is asked of the outputs: classes, several labels at once, or numbers.

Nothing else below the doors knows a class from a number.
"""

from protopinv.objective.classes import Classes, Labels
from protopinv.objective.numbers import Numbers
from protopinv.objective.objective import Judged, Objective, Outputs

__all__ = ["Classes", "Judged", "Labels", "Numbers", "Objective", "Outputs"]
