"""The command line: results on stdout, progress on stderr; exit 0, 2 for usage, 3 for bad data."""

from __future__ import annotations

import warnings
from typing import Annotated

from driftls import __version__
from driftls.cli import logs, runs, studies
from driftls.cli.common import app, typer
from driftls.errors import DriftlsError, MissingExtraError, SettingsError, StorageError, storage_error

__all__ = ["app", "logs", "run", "runs", "studies"]  # each module adds its commands

GREETING = f"""\
driftls {__version__}: online least squares and linear bandits at O(d) a round.

Three things to do first:

  driftls reproduce --quick --out demo
      does the paper's experiments again; open demo/report.html

  driftls simulate --policy linucb,flinucb-saga,random --seeds 5
      compares policies on simulated bandits

  driftls synth --lines 200000 --out day.gz
  driftls replay day.gz --policy linucb-auto --policy random
      asks which policy would have done better on a day of a news page

driftls --help lists all commands, driftls COMMAND --help explains one."""


def run(arguments: list[str] | None = None) -> None:
    """Run one command. What a user can have caused becomes one line on stderr and an exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: typer.echo(f"driftls: {message}", err=True)
            app(args=arguments, prog_name="driftls")
    except (SettingsError, MissingExtraError, StorageError) as error:
        _fail(str(error), 2)
    except DriftlsError as error:
        _fail(str(error).replace('on_error="skip"', "--on-error skip"), 3)  # as an option is given here
    except OSError as error:
        _fail(str(storage_error(error)), 2)
    except MemoryError as error:
        _fail(f"there is not enough memory for this ({error}). Use fewer features, arms or workers.", 2)


def _fail(message: str, code: int) -> None:
    typer.echo(f"driftls: {' '.join(message.split())}", err=True)
    raise SystemExit(code) from None


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    """Online least squares and linear bandits at O(d) a round.

    \b
    Examples:
      driftls reproduce --quick --out demo
      driftls simulate --policy linucb,flinucb-saga,random --out simulated
      driftls replay day.gz --policy linucb-auto --policy random --out runs
    """  # noqa: D301  (a backspace keeps the lines of a paragraph apart)
    if version:
        typer.echo(f"driftls {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(GREETING)
