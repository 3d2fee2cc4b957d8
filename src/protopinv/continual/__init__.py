"""Learning that continues: new rows and classes without the old ones; banks grow and shrink."""

from protopinv.continual.banks import (
    answers,
    grown,
    hidden_of,
    importances,
    left_with,
    widened,
    with_outputs,
)
from protopinv.continual.learning import (
    GROWTH,
    Settings,
    Updated,
    shrunk,
    update,
)
from protopinv.continual.state import New, State

__all__ = [
    "GROWTH",
    "New",
    "Settings",
    "State",
    "Updated",
    "answers",
    "grown",
    "hidden_of",
    "importances",
    "left_with",
    "shrunk",
    "update",
    "widened",
    "with_outputs",
]
