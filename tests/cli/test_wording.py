"""Errors speak of options on the command line, and of parameters in Python."""

import re
from dataclasses import fields

import pytest
from commands import assert_refused, run

from protopinv.cli.output import ExitCode, as_options
from protopinv.errors import ConfigError
from protopinv.train.config import TrainConfig

NAMES = [item.name for item in fields(TrainConfig)]


@pytest.mark.parametrize("name", NAMES)
def test_a_value_out_of_range_names_its_option(name: str) -> None:
    for value in (-1, "nonsense", True, None):
        try:
            TrainConfig(**{name: value})
        except ConfigError as error:
            said = as_options(str(error))
            assert f"--{name.replace('_', '-')}" in said
            bare = re.sub(r"'[^']*'", "", said)
            assert not re.search(r"\b[a-z]+_[a-z_]+\b|\bNone\b|\bTrue\b|\bFalse\b", bare), said


@pytest.mark.parametrize(
    ("python", "options"),
    [
        ("Set validation_fraction=0.1.", "Set --validation-fraction 0.1."),
        ("Got early_stopping='cross' here", "Got --early-stopping cross here"),
        ("or set image_shape=(28, 28).", "or set --image-shape 28,28."),
        ("Leave copy_mirror=False.", "Leave --no-copy-mirror."),
        ("Got resume=True without one.", "Got --resume without one."),
        ("Use sample_weight, or random_state=3.", "Use --weight, or --seed 3."),
        ("If it is a number, use ProtoPINVRegressor", "If it is a number, use --task regression"),
        (
            "Column 'n_prototypes=3' is empty. None was",
            "Column 'n_prototypes=3' is empty. None was",
        ),
        ("of batch_size.csv, /tmp/batch_size/x.", "of batch_size.csv, /tmp/batch_size/x."),
        ("or start anew (resume=False).", "or start anew (without --resume)."),
        ("class 'True' of \"batch_size\"", "class 'True' of \"batch_size\""),
        ("The user's weight_penalty is None, true", "The user's --weight-penalty is none, true"),
    ],
)
def test_names_become_options_and_what_is_quoted_stays(python: str, options: str) -> None:
    assert as_options(python) == options


def test_a_command_says_what_to_type() -> None:
    result = run("train", "digits", "--early-stopping", "true", "--validation-fraction", "0")
    assert_refused(result, ExitCode.USAGE, "Set --validation-fraction to 0.1")
