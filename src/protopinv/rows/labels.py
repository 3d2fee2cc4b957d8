"""Labels as numpy has them, none of which becomes another on its way there."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataError


def exact_numbers(values: Sequence[Any]) -> NDArray[Any]:
    """Numbers and Booleans as an array; whole ones beyond what a float holds stay apart.

    Raises DataError for those that do not fit into 64 bits.
    """
    large = [v for v in values if isinstance(v, int) and abs(v) > 2**53]
    if not large or any(isinstance(v, float) and not v.is_integer() for v in values):
        return np.array(values)
    integers = list(map(int, values))
    for kind in (np.int64, np.uint64):
        ends = np.iinfo(kind)
        if ends.min <= min(integers) and max(integers) <= ends.max:
            return np.array(integers, dtype=kind)
    raise DataError(
        f"Whole numbers must fit into 64 bits, signed or not. Got {max(integers, key=abs)}. "
        "Convert labels to text, for example with y.astype(str)."
    )
