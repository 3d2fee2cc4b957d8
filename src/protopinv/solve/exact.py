"""Products at full precision, whatever the program around us has chosen for its own.

``torch.set_float32_matmul_precision`` and ``torch.backends.*.fp32_precision`` let float32 products
keep 11 or even 8 bits. A Gram matrix made that way is another one: its inverse is off by
as many digits as the condition number has, and its estimated error says nothing of that.
"""

import torch


def exact_type(dtype: torch.dtype) -> torch.dtype:
    """The type to solve in: float64 for float32 where the process may round that further.

    The settings belong to all threads of the process, so they are read and never changed.
    """
    if dtype != torch.float32:
        return dtype
    try:
        is_exact = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch refuses to answer once the newer settings say something else
        is_exact = False
    return dtype if is_exact else torch.float64
