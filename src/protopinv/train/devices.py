"""The device that a user names."""

import torch

from protopinv.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """The torch device behind "auto", "cpu", "cuda" or the number of a GPU as in "cuda:1"."""
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    numbered = kind == "cuda" and number.isdigit()
    if not (numbered or name in ("auto", "cpu", "cuda")):
        raise ConfigError(
            "device must be one of 'auto', 'cpu', 'cuda', or the number of a GPU as in 'cuda:1'. "
            f"Got {name!r}. Change it to 'auto'."
        )
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if there == 0:
        raise ConfigError(
            f"device={name!r} needs a GPU that torch can use. torch sees none here. "
            "Use device='auto', or install a CUDA build of torch."
        )
    if numbered and int(number) >= there:
        raise ConfigError(
            f"device={name!r} needs GPU number {number}. torch sees {there}, counted from 0. "
            "Choose one of these."
        )
    return torch.device("cuda", int(number)) if numbered else torch.device("cuda")
