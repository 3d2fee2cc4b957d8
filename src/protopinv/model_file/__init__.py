"""Our own file: safetensors with a JSON header, promised in docs/format.md.

Nothing in it is executed when it is read.
"""

from protopinv.model_file.file import load, save
from protopinv.model_file.made_up import made_up
from protopinv.model_file.packing import DTYPES
from protopinv.model_file.reading import FORMAT
from protopinv.model_file.saved import SavedModel

__all__ = ["DTYPES", "FORMAT", "SavedModel", "load", "made_up", "save"]
