"""What all commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from driftls.errors import missing_extra

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
except ImportError:
    raise missing_extra("typer and rich", "cli", "the command line") from None

__all__ = ["AsJson", "app", "policies", "progress", "typer"]

app = typer.Typer(
    name="driftls",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


def policies() -> dict[str, Any]:
    """The paper's policies and ours, by name."""
    from driftls import paper
    from driftls.policies import named

    return {**paper.POLICIES, **named.POLICIES}


@contextmanager
def progress() -> Iterator[Progress]:
    """Bars on stderr where that is a terminal, else nothing."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(24),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield bar
