"""Rows and, where there is one, a target."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from protopinv.errors import DataError


@dataclass(frozen=True)
class Dataset:
    """``X`` is an array in the number type it came in, or a frame of number columns."""

    name: str
    X: Any
    y: NDArray[Any] | None
    image_shape: tuple[int, int] | None = None

    def targets(self) -> NDArray[Any]:
        """The target, or a DataError that says how to give one."""
        if self.y is None:
            raise DataError(
                f"A target column is needed. None was given for {self.name}. Use --target COLUMN."
            )
        return self.y
