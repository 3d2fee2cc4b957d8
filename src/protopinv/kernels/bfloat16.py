"""Where bfloat16 pays: without instructions for it a product takes many times longer."""

from functools import cache
from pathlib import Path

import torch

CPU_INFO = Path("/proc/cpuinfo")
# What Linux calls products in bfloat16: the first two on x86, the others on ARM.
FLAGS = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}


@cache
def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device has products in bfloat16, so that they are no slower than in float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type == "cpu" and _processor_can()


def _processor_can() -> bool:
    """What torch can tell; older versions tell nothing of ARM, but Linux does."""
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        supported = getattr(torch.cpu, name, None)
        if supported is not None and supported():
            return True
    tell = getattr(torch.cpu, "get_capabilities", None)
    if tell is not None:
        return bool(tell().get("bf16", False))
    try:
        return named_in(CPU_INFO.read_text())
    except OSError:  # not Linux
        return False


def named_in(cpu_info: str) -> bool:
    """Whether Linux lists such instructions for the first processor."""
    for line in cpu_info.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return not FLAGS.isdisjoint(value.split())
    return False
