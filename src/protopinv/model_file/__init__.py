"""Our own file: safetensors with a JSON header, promised in docs/format.md.

Nothing in it is executed when it is read.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protopinv.model_file.examples import made_up
    from protopinv.model_file.file import load, unfit
    from protopinv.model_file.packing import DTYPES
    from protopinv.model_file.reading import FORMAT
    from protopinv.model_file.saved import SavedModel
    from protopinv.model_file.writing import save

__all__ = ["DTYPES", "FORMAT", "SavedModel", "load", "made_up", "save", "unfit"]

# Imported when they are first used: a look at a file needs no torch.
_HOME = {
    "DTYPES": "packing",
    "FORMAT": "reading",
    "SavedModel": "saved",
    "load": "file",
    "made_up": "examples",
    "save": "writing",
    "unfit": "file",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'protopinv.model_file' has no attribute {name!r}")
    return getattr(import_module(f"protopinv.model_file.{_HOME[name]}"), name)
