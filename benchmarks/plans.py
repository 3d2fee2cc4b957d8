"""What plans of measurements check."""

from collections.abc import Sequence
from typing import Any

from protopinv.errors import ConfigError


def require_counts(plan: Any, *names: str) -> None:
    """Raise ConfigError unless these fields are 1 or more; a smoke run has one of each."""
    for name in names:
        if getattr(plan, name) < 1:
            raise ConfigError(f"{name} must be 1 or more. Got {getattr(plan, name)}. Raise it.")
        if plan.quick:
            object.__setattr__(plan, name, 1)


def require_some(name: str, values: Sequence[str], choices: Sequence[str]) -> None:
    """Raise ConfigError unless there are values and all of them are among the choices."""
    unknown = [value for value in values if value not in choices]
    if unknown or not values:
        raise ConfigError(
            f"{name} must be some of {', '.join(choices)}. "
            f"Got {', '.join(unknown) or 'none'}. Change it."
        )
