"""Rows and, where there is one, a target."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Dataset:
    """``X`` is an array in the type it came in, or a frame; ``y`` holds targets.

    Several ``targets`` are the columns of ``y``, in the order of their names. ``weight`` says what
    each row counts. Rows of a set of images are flat; ``image_shape`` is their height and width.
    ``said`` is what a user should hear of how they were read.
    """

    name: str
    X: Any
    y: Any = None
    image_shape: tuple[int, int] | None = None
    weight: Any = None
    targets: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
