"""Commands as a user runs them: real processes, real files, exit codes.

Importing takes longer than most commands do. So each is a process that is forked from one that has
imported what they need; what a whole start of Python is for says so, and starts one.
"""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from protopinv.cli.output import ExitCode

QUICK = ["--n-prototypes", "12", "--hidden-sizes", "10", "--max-epochs", "40"]
QUICK += ["--early-stopping", "false"]

_STARTER = multiprocessing.get_context("forkserver")
_STARTER.set_forkserver_preload(["torch", "protopinv.estimators", "protopinv.model_file"])


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command to its end, with what it wrote and its exit code."""
    command = ["protopinv", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        variables = {**os.environ, "COLUMNS": "200", **environment}
        process: Any = _STARTER.Process(
            target=_run, args=(command, files, variables, str(Path.cwd()))
        )
        process.start()
        process.join()
        out, err = (file.read_text() for file in files)
    return subprocess.CompletedProcess(command, process.exitcode, out, err)


def _run(command: list[str], files: list[Path], variables: dict[str, str], place: str) -> None:
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(place)
    sys.argv = command
    from protopinv.cli import main

    main()


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
