"""What needs no torch starts without it: help, and a look at a file."""

import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"
COMMANDS = ["demo", "train", "tune", "predict", "evaluate", "inspect", "report", "export"]
COMMANDS += ["diagnose", "data"]
PROGRAM = """
import sys
from protopinv.cli import main
for arguments in {calls!r}:
    sys.argv = ["protopinv", *arguments]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (arguments, end.code)
heavy = {{"torch", "sklearn", "scipy", "polars"}} & set(sys.modules)
assert not heavy, heavy
"""


@pytest.mark.parametrize(
    "calls",
    [
        [["--version"], ["--help"], *([name, "--help"] for name in COMMANDS)],
        [["inspect", str(GOLDEN / "frame.safetensors"), *options] for options in ([], ["--json"])],
        [["inspect", str(GOLDEN / "continued.safetensors"), "--all"]],
    ],
    ids=["help", "inspect", "inspect --all"],
)
def test_help_and_a_look_at_a_file_need_no_torch(calls: list[list[str]]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(calls=calls)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
