"""Docstrings that the source does not hold: parameters are explained once, in TrainConfig."""

import re
from dataclasses import fields
from importlib import import_module
from inspect import getdoc
from typing import Any

import griffe

from protopinv.estimators.parameters import type_name
from protopinv.train.config import TrainConfig

MADE = {f"protopinv.estimators.{name}" for name in ("classifier", "regressor", "parameters")}
CHOICES = re.compile(r"\{(['\"].+?)\}(?=, default)")


class LiveDocstrings(griffe.Extension):
    """Reads them off the classes themselves; everything else is read from the source."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """What ``{parameters}`` became, and the fields of TrainConfig."""
        if cls.docstring is None:
            return
        # of choices in braces the reference would take the first for the default
        cls.docstring.value = CHOICES.sub(_alternatives, cls.docstring.value)
        if cls.name == TrainConfig.__name__:
            text = CHOICES.sub(_alternatives, _fields())
            cls.docstring.value += f"\n\nParameters\n----------\n{text}"
        elif cls.module.path in MADE and "{parameters}" in cls.docstring.value:
            live = getattr(import_module(cls.module.path), cls.name)
            cls.docstring.value = CHOICES.sub(_alternatives, getdoc(live) or "")


def _alternatives(choices: re.Match[str]) -> str:
    return choices[1].replace(", ", " | ")


def _fields() -> str:
    return "\n".join(
        f"{item.name} : {type_name(item)}, default={item.default!r}\n    {item.metadata['help']}"
        for item in fields(TrainConfig)
    )
