"""What all commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter
from typing import Annotated, Any

from driftls.errors import missing_extra

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
except ImportError:
    raise missing_extra("typer and rich", "cli", "the command line") from None

__all__ = ["AsJson", "OnError", "app", "counting", "policies", "progress", "typer"]

app = typer.Typer(
    name="driftls",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class OnError(StrEnum):
    """What becomes of broken lines."""

    RAISE = "raise"
    SKIP = "skip"


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


@contextmanager
def counting(label: str, share: Callable[[int], float | None]) -> Iterator[Callable[[int], None]]:
    """A bar that is told the lines so far; the time left is shown where `share` of them knows what part they are."""
    with progress() as bar:
        task, begin = bar.add_task(label, total=1.0, note=""), perf_counter()

        def report(lines: int) -> None:
            note = f"{lines:,} lines, {lines / (perf_counter() - begin):,.0f} a second"
            bar.update(task, completed=share(lines) or 0.0, note=note)

        yield report
