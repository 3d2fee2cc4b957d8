"""Commands as real processes that need not import what takes long.

Importing takes longer than most commands do. So each is a process that is forked from one that has
imported what they need; what a whole start of Python is for says so, and starts one.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

_STARTER = multiprocessing.get_context("forkserver")
_STARTER.set_forkserver_preload(["torch", "protopinv.estimators", "protopinv.model_file"])
# Seconds that no command takes.
LONGEST = 240


class Started:
    """A command of ``protopinv`` or ``benchmarks`` in a process of its own."""

    def __init__(self, name: str, *arguments: object, **environment: str) -> None:
        self.command = [name, *map(str, arguments)]
        self._folder = tempfile.TemporaryDirectory()
        self._files = [Path(self._folder.name, stream) for stream in ("stdout", "stderr")]
        variables = {**os.environ, "COLUMNS": "200", **environment}
        here = (self.command, self._files, variables, str(Path.cwd()))
        self._process: Any = _STARTER.Process(target=_run, args=here)
        self._process.start()

    def is_running(self) -> bool:
        return self._process.is_alive()

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self) -> subprocess.CompletedProcess[str]:
        """Its exit code, None for one that never ends, and what it wrote."""
        self._process.join(timeout=LONGEST)
        with self._folder:
            out, err = (file.read_text() for file in self._files)
        return subprocess.CompletedProcess(self.command, self._process.exitcode, out, err)


def _run(command: list[str], files: list[Path], variables: dict[str, str], place: str) -> None:
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    # as in a terminal, also where the tests are a job in the background, which Ctrl-C passes by
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(place)
    sys.argv = command
    import_module(f"{command[0]}.cli").main()
