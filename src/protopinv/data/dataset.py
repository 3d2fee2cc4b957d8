"""Rows and, where there is one, a target."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dataset:
    """``X``: an array in the number type it came in, or a frame of number columns; ``y``: labels."""

    name: str
    X: Any
    y: Any = None
