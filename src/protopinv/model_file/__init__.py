"""Our own file: safetensors with a JSON header, promised in docs/format.md.

Nothing in it is executed when it is read.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protopinv.model_file.header import FORMAT
    from protopinv.model_file.loading import load_model
    from protopinv.model_file.rules import DTYPES
    from protopinv.model_file.saving import made_up, save, shareable

__all__ = ["DTYPES", "FORMAT", "load_model", "made_up", "save", "shareable"]

# Imported when they are first used: a summary of a file needs no torch.
_HOME = {
    "DTYPES": "rules",
    "FORMAT": "header",
    "load_model": "loading",
    "made_up": "saving",
    "save": "saving",
    "shareable": "saving",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'protopinv.model_file' has no attribute {name!r}")
    return getattr(import_module(f"protopinv.model_file.{_HOME[name]}"), name)
