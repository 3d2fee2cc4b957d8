"""The command line: parse, call, render. Answers go to stdout, talk to stderr."""

from protopinv.cli.app import main

__all__ = ["main"]
