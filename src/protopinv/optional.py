"""Optional packages: imported when they are first used, or the extra to install is named."""

import importlib
from types import ModuleType
from typing import Any

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


class Later:
    """A module of an optional package, which is imported when something of it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
