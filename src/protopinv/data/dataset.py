"""Rows and, where there is one, a target."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dataset:
    """``X`` is an array in the type it came in, or a frame of numbers; ``y`` holds labels.

    Rows of a set of images are flat; ``image_shape`` is their height and width.
    """

    name: str
    X: Any
    y: Any = None
    image_shape: tuple[int, int] | None = None
