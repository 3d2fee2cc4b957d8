"""The IDX format of the MNIST files: a magic number, the sizes, then bytes."""

import struct

import numpy as np
from numpy.typing import NDArray

from protopinv.errors import DataFileError

UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes, name: str) -> NDArray[np.uint8]:
    """The array in an uncompressed IDX file of unsigned bytes."""
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != UNSIGNED_BYTE:
        raise DataFileError(
            f"An IDX file must start with 0, 0, 8. {name} starts with {list(content[:3])}. "
            "Fetch the file again."
        )
    n_dims = content[3]
    start = 4 + 4 * n_dims
    shape = struct.unpack(f">{n_dims}I", content[4:start]) if len(content) >= start else (-1,)
    expected = start + int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise DataFileError(
            f"An IDX file must be as long as its header says. {name} has {len(content)} bytes, "
            f"its header says {expected}. Fetch the file again."
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
