"""Messages of the library, which name parameters of Python, in the words of the command line."""

import re
from dataclasses import fields

from protopinv.train.config import TrainConfig

# Parameters that are no hyperparameters, and the options that stand for them.
OTHERS = {
    "calibration": "--calibrate",
    "checkpoint": "--checkpoint",
    "checkpoint_every": "--checkpoint-every",
    "columns": "--categorical",
    "device": "--device",
    "dtype": "--dtype",
    "drop": "--drop",
    "encoding": "--encoding",
    "examples": "--with-examples",
    "features": "--drop",
    "n_trials": "--trials",
    "random_state": "--seed",
    "resume": "--resume",
    "sample_weight": "--weight",
    "separator": "--separator",
    "study_file": "--study",
    "target": "--target",
    "weight": "--weight",
}
ESTIMATORS = {
    "ProtoPINVRegressor": "--task regression",
    "ProtoPINVClassifier": "--task classification",
}
OPTIONS = OTHERS | {item.name: f"--{item.name.replace('_', '-')}" for item in fields(TrainConfig)}
SWITCHES = {item.name for item in fields(TrainConfig) if item.type is bool}
FLAGS = {"examples", "resume"}

# In this order: a parameter with its value; what is quoted, which is the user's own and stays as
# it is; the name of a parameter where no plain word and no part of a path is meant; a word of
# Python that is a value.
ALONE, ENDS = r"(?<![\w/.-])", r"(?![\w/-]|\.\w)"
VALUE = r"(?P<value>'[^']*'|\([^()]*\)|\[[^\[\]]*\]|[\w+-]+(?:\.\d+)?)"
ASSIGNED = rf"{ALONE}(?P<name>[a-z]\w*)={VALUE}"
QUOTED = r"(?<!\w)(?P<quoted>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
NAMED = rf"(?P<word>{ALONE}[a-z]+(?:_[a-z]+)+{ENDS}|^[a-z]+(?= must be)|\bProtoPINV\w+)"
LITERAL = r"(?<=[a-z,] )(?P<literal>None|True|False)\b"
PARTS = re.compile(f"{ASSIGNED}|{QUOTED}|{NAMED}|{LITERAL}")


def as_options(message: str) -> str:
    """``n_prototypes=0`` as ``--n-prototypes 0``; what stands in quotes stays as it is."""
    return PARTS.sub(_rewritten, message)


def _rewritten(part: re.Match[str]) -> str:
    if part["quoted"] is not None:
        return part[0]
    if part["literal"] is not None:
        return part[0].lower()
    if part["word"] is not None:
        return ESTIMATORS.get(part[0]) or OPTIONS.get(part[0], part[0])
    name, value = part["name"], _typed(part["value"])
    if name not in OPTIONS:
        return part[0]
    option = OPTIONS[name]
    if (name in FLAGS or name in SWITCHES) and value == "true":
        return option
    if name in FLAGS and value == "false":
        return f"without {option}"
    if name in SWITCHES and value == "false":
        return f"--no-{option[2:]}"
    return f"{option} {value}"


def _typed(value: str) -> str:
    """As it is typed behind an option: no quotes, several with commas."""
    if value[0] == "'":
        return value.strip("'")
    if value[0] in "([":
        return value.strip("()[]").replace(" ", "").rstrip(",")
    return value.lower() if value in ("None", "True", "False") else value
