"""Rows and, where there is one, a target."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """``X`` is an array in the number type it came in, or a frame of number columns."""

    name: str
    X: Any
    y: NDArray[Any] | None = None
