"""The command line: parse, call, render.

Results are written to stdout, progress and warnings to stderr.
"""

from protopinv.cli.app import main

__all__ = ["main"]
