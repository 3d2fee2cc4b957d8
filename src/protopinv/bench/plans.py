"""What all plans ask for, and how the record of one is called."""

from typing import Any

from protopinv.errors import ConfigError


def require_counts(plan: Any, *names: str) -> None:
    """Raise ConfigError unless these fields are 1 or more; a smoke run has one of each."""
    for name in names:
        if getattr(plan, name) < 1:
            raise ConfigError(f"{name} must be 1 or more. Got {getattr(plan, name)}. Raise it.")
        if plan.quick:
            object.__setattr__(plan, name, 1)


def record_name(kind: str, *parts: str, quick: bool) -> str:
    """The kind, what it was measured on, and whether it was a smoke run."""
    return "-".join([kind, *(["quick"] if quick else []), *parts])
