"""Plain JSON values: what every reader of JSON understands."""

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """The value with tuples and arrays as lists, and null for numbers that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
