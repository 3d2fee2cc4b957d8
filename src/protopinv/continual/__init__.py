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
    New,
    Settings,
    State,
    Updated,
    drawn_rows,
    shrunk,
    update,
)

__all__ = [
    "GROWTH",
    "New",
    "Settings",
    "State",
    "Updated",
    "answers",
    "drawn_rows",
    "grown",
    "hidden_of",
    "importances",
    "left_with",
    "shrunk",
    "update",
    "widened",
    "with_outputs",
]
