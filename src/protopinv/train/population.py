"""Several banks that are trained in one batch: what they share, and what each may have its own."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from protopinv.errors import ConfigError
from protopinv.train.config import TrainConfig

# Hyperparameters that members may differ in: none of them changes the shape of the work.
OWN = (
    "ridge",
    "learn_ridge",
    "lr",
    "lr_ratios",
    "scale_lr_ratio",
    "input_noise",
    "input_decay",
    "hidden_decay",
    "output_decay",
    "label_smoothing",
    "hidden_scale",
    "input_init",
    "output_init",
)


def check_members(configs: Sequence[TrainConfig]) -> None:
    """Raise ConfigError unless the members agree in all that shapes the work."""
    shared = [item.name for item in fields(TrainConfig) if item.name not in OWN]
    for name in shared:
        values = {repr(getattr(config, name)) for config in configs}
        if len(values) > 1:
            raise ConfigError(
                f"Members of a population must agree in {name}. They have "
                f"{', '.join(sorted(values))}. Train them apart, or let them differ only in "
                f"{', '.join(OWN)}."
            )


def knob(configs: Sequence[TrainConfig], name: str, device: torch.device | str = "cpu") -> Any:
    """One value where all members agree, else a tensor of one a member."""
    values = [getattr(config, name) for config in configs]
    return as_knob(values, device)


def as_knob(values: Sequence[Any], device: torch.device | str = "cpu") -> Any:
    """The same from values."""
    if len(set(values)) == 1:
        return values[0]
    exact = torch.float64 if torch.device(device).type == "cpu" else torch.float32
    return torch.tensor(values, device=device, dtype=exact)
