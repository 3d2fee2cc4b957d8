"""Products at full precision, whatever the program around us has chosen for its own.

``torch.set_float32_matmul_precision`` and ``torch.backends.*.fp32_precision`` let float32 products
keep 11 or even 8 bits. A Gram matrix made that way is another one: its inverse is off by
as many digits as the condition number has, and its estimated error says nothing of that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

EXACT = "ieee"


@contextmanager
def exact_products() -> Iterator[None]:
    """Float32 products in here are made in float32; the settings are put back afterwards.

    They hold for the whole process, so for other threads too. Where they are exact already, this
    is one question to torch.
    """
    try:
        given: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to answer once the newer settings say something else
        given = None
    if given == "highest":
        yield
        return
    mkldnn: Any = torch.backends.mkldnn
    settings = (torch.backends.cuda.matmul, mkldnn.matmul)
    before = [setting.fp32_precision for setting in settings]
    if given is not None:
        torch.set_float32_matmul_precision("highest")
    for setting in settings:
        setting.fp32_precision = EXACT
    try:
        yield
    finally:
        if given is not None:
            torch.set_float32_matmul_precision(given)
        for setting, value in zip(settings, before, strict=True):
            _put_back(setting, value)


def _put_back(setting: Any, value: str) -> None:
    """Leave the setting to what stands above it where that says the same."""
    if setting.fp32_precision != value:
        setting.fp32_precision = "none"
    if setting.fp32_precision != value:
        setting.fp32_precision = value
