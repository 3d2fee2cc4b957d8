"""Where bfloat16 pays: without instructions for it a product takes many times longer."""

from functools import cache

import torch

# What torch calls such instructions: AVX-512 and AMX on x86, the last one on ARM.
INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")


@cache
def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device has products in bfloat16, so that they are no slower than in float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    has = torch.cpu.get_capabilities()
    return any(bool(has.get(name)) for name in INSTRUCTIONS)
