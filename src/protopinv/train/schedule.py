"""The learning rate as a factor of its peak."""

import math


def rate_factor(step: int, *, total: int, warmup: int, schedule: str) -> float:
    """Linear up to 1 over ``warmup`` steps, then constant or half a cosine down to 0."""
    warmup = min(warmup, total // 2)
    if step < warmup:
        return (step + 1) / warmup
    if schedule == "constant":
        return 1.0
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * done))
