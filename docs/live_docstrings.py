"""Docstrings that are made when a class is (parameters from TrainConfig), for the reference."""

from importlib import import_module
from inspect import getdoc
from typing import Any

import griffe

MADE = {
    "protopinv.baselines.mlp",
    "protopinv.estimators.classifier",
    "protopinv.estimators.regressor",
}


class LiveDocstrings(griffe.Extension):
    """Reads them off the class itself; everything else is read from the source."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace ``{parameters}`` by what it became."""
        if cls.module.path in MADE and cls.docstring and "{parameters}" in cls.docstring.value:
            live = getattr(import_module(cls.module.path), cls.name)
            cls.docstring.value = getdoc(live) or ""
