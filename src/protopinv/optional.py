"""Import an optional package, or say which extra to install."""

import importlib
from types import ModuleType

from protopinv.errors import MissingExtraError


def require(module: str, *, extra: str, why: str) -> ModuleType:
    """The imported module; ``why`` starts the sentence of the error, as in "Reading a table"."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{why} needs the package {module.partition('.')[0]}. It is not installed here. "
            f"Run: pip install 'protopinv[{extra}]'"
        ) from error
