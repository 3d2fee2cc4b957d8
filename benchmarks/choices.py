"""Names from a list: how a user gives them, and which there are."""

from collections.abc import Sequence

from protopinv.errors import ConfigError


def require_some(name: str, values: Sequence[str], choices: Sequence[str]) -> None:
    """Raise ConfigError unless there are values and all of them are known."""
    unknown = [value for value in values if value not in choices]
    if unknown or not values:
        raise ConfigError(
            f"{name} must be some of {', '.join(choices)}. "
            f"Got {', '.join(unknown) or 'none'}. Change it."
        )


def listed(text: str) -> tuple[str, ...]:
    """The names in a text, with commas between them."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
