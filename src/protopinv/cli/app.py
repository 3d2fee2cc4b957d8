"""The commands under one roof, and what an error looks like."""

import sys
import warnings
from typing import Annotated, Any

import typer

from protopinv import __version__
from protopinv.cli.output import as_options, exit_code, one_line
from protopinv.cli.sets import data, demo
from protopinv.cli.training import train, tune
from protopinv.cli.using import diagnose, evaluate, export, inspect, predict, report
from protopinv.errors import ProtoPINVError

app = typer.Typer(
    help="Small networks that retrain in a blink: prototypes trained, weights solved.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (demo, train, tune, predict, evaluate, inspect, report, export, diagnose, data):
    app.command()(command)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"protopinv {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """The program ``protopinv``."""
    run(app)


def run(commands: typer.Typer) -> None:
    """Run a command; whatever we refuse is one line on stderr and an exit code.

    Anything else that is raised is a defect of ours, and shown whole.
    """
    warnings.showwarning = _show_warning
    try:
        commands()
    except ProtoPINVError as error:
        code = exit_code(error)
        if code is None:
            raise
        print(f"error: {as_options(one_line(error))}", file=sys.stderr)
        sys.exit(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"warning: {as_options(one_line(message))}", file=sys.stderr)
