"""What is asked of the outputs: classes, several labels at once, or numbers.

Nothing else below the doors knows a class from a number.
"""

from protopinv.objective.classes import Classes
from protopinv.objective.labels import Labels
from protopinv.objective.numbers import Numbers
from protopinv.objective.objective import Judged, Knob, Objective, Outputs

__all__ = ["Classes", "Judged", "Knob", "Labels", "Numbers", "Objective", "Outputs"]
