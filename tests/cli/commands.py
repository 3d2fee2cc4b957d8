"""Commands as a user runs them: real processes, real files, exit codes."""

import json
import subprocess

from forked import Started

from protopinv.cli.output import ExitCode

QUICK = ["--n-prototypes", "12", "--hidden-sizes", "10", "--max-epochs", "40"]
QUICK += ["--early-stopping", "false"]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command to its end, with what it wrote and its exit code."""
    return Started("protopinv", *arguments, **environment).end()


def answered(*arguments: object) -> dict:
    """What a command that must succeed answers."""
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def assert_refused(result: subprocess.CompletedProcess[str], code: ExitCode, *words: str) -> None:
    """Nothing but one line, with these words, and the code."""
    assert result.returncode == code
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
