"""The command line: results on stdout, progress on stderr; exit 0, 2 for usage, 3 for bad data.

One file a command; importing it adds the command.
"""

from __future__ import annotations

from typing import Annotated

from driftls import __version__
from driftls.cli.common import app, typer
from driftls.errors import DriftlsError, MissingExtraError, SettingsError

# in the order in which help lists them
from driftls.cli import (  # isort: skip
    reproduce,
    synth,
    convert,
    inspect,
    replay,
    simulate,
    study,
    fit,
    report,
    warmup,
)

__all__ = [
    "app",
    "convert",
    "fit",
    "inspect",
    "replay",
    "report",
    "reproduce",
    "run",
    "simulate",
    "study",
    "synth",
    "warmup",
]


def run(arguments: list[str] | None = None) -> None:
    """Run one command. What driftls raises on purpose becomes one line on stderr and an exit code."""
    try:
        app(args=arguments)
    except DriftlsError as error:
        typer.echo(f"driftls: {error}", err=True)
        raise SystemExit(2 if isinstance(error, SettingsError | MissingExtraError) else 3) from None
    except OSError as error:
        typer.echo(f"driftls: {error.filename}: {error.strerror}" if error.filename else f"driftls: {error}", err=True)
        raise SystemExit(2) from None


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False) -> None:
    """Online least squares that costs O(d) a row.

    \b
    Examples:
      driftls reproduce --quick --out demo
      driftls simulate --bandit fixed-arms --dim 50 --arms 100 --policy linucb,flinucb-saga --out runs
      driftls report runs --out report.html
      driftls synth --lines 200000 --seed 1 --out day.gz
      driftls inspect day.gz
      driftls study study.toml --out study
      driftls fit days --policy flinucb-saga --out warm.policy
      driftls warmup
    """  # noqa: D301  (a backspace keeps the lines of a paragraph apart)
    if version:
        typer.echo(f"driftls {__version__}")
        raise typer.Exit
