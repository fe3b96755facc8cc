"""What all commands share: the app, its options, tables and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from driftls.errors import missing_extra

try:
    import typer
    from rich import box
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Table
except ImportError:
    raise missing_extra("typer and rich", "cli", "the command line") from None

if TYPE_CHECKING:
    from driftls.features import FeatureMap
    from driftls.logs import Log
    from driftls.report.model import Page

__all__ = [
    "POLICIES", "R6B_FEATURES", "AsJson", "Cluster", "Dim", "FeatureKind", "Figures", "FirstSeed", "Kappa",
    "LogPaths", "OnError", "Propensity", "Reward", "Seed", "Shown", "Visitor", "Width", "Workers", "app",
    "counting", "features_of", "names_of", "opened", "policy_of", "print_boards", "print_result", "print_table",
    "tell_skipped", "telling", "typer", "whole",
]  # fmt: skip

R6B_FEATURES = 136

app = typer.Typer(
    name="driftls",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def whole(told: str, least: int = 1, most: int | None = None) -> Any:
    """An option that takes a whole number."""
    return typer.Option(min=least, max=most, metavar="N", help=told)


def column(told: str) -> Any:
    """An option that takes the name of a table's column."""
    return typer.Option(metavar="COLUMN", help=f"Of a table{told}")


LogPaths = Annotated[list[Path], typer.Argument(exists=True, help="Logs of one format, in the order of their time.")]
Figures = Annotated[Path | None, typer.Option(file_okay=False, help="Folder for every figure as SVG.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Seed = Annotated[int, whole("Of everything that is drawn at random.", 0)]
FirstSeed = Annotated[int, whole("The first seed; the others follow.", 0)]
Kappa = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Weight of the width; if not given, the policy's own.")
]
Workers = Annotated[int, whole("Processes on this machine; -1 is one a core.", -1)]
Cluster = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler to use instead.")]
OnError = Annotated[Literal["raise", "skip"], typer.Option(help="At a broken line: stop, or skip and count it.")]
FeatureKind = Annotated[
    Literal["auto", "disjoint", "hashed", "outer"], typer.Option(help="How a visitor and an article make an arm.")
]
Dim = Annotated[int | None, whole("Features of a visitor; if not given, 136.", 1, 10**7)]
Width = Annotated[int, whole("Length of an arm, for hashed.", 1, 10**9)]
Shown = Annotated[str | None, column(" (CSV, Parquet, or a JSON object a line): what was shown.")]
Reward = Annotated[str | None, column(": what it brought.")]
Propensity = Annotated[str | None, column(": how likely it was to be shown.")]
Visitor = Annotated[
    list[str] | None,
    typer.Option(
        metavar="A,B,...",
        help="Of a table: the visitor's columns, if not all others; may be given again. "
        "Leave out what is known only afterwards.",
    ),
]

POLICIES = """\b
The paper's policies  linucb, flinucb-gd, flinucb-svrg, flinucb-sag
Ours                  flinucb-saga, linucb-exact, linucb-auto
To compare with       lints, greedy, epsilon-greedy, random
"""  # below the help of commands that take their names


def opened(
    paths: Sequence[Path],
    on_error: str,
    shown: str | None,
    reward: str | None,
    propensity: str | None,
    visitor: Sequence[str],
) -> Log:
    """The log at these paths; a table, if its columns are named."""
    from driftls.logs import read, read_table

    if shown is None and reward is None and propensity is None and not visitor:
        return read(paths, on_error=on_error)
    if shown is None or reward is None or len(paths) != 1:
        raise typer.BadParameter("a table is one file, and needs both.", param_hint="'--shown' and '--reward'")
    columns: dict[str, Any] = {"shown": shown, "reward": reward, "propensity": propensity, "visitor": visitor or None}
    return read_table(paths[0], **columns, on_error=on_error)


def names_of(given: Sequence[str] | None) -> list[str]:
    """The names of an option that may be given again, and that takes several at once with commas."""
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]


def features_of(kind: str, log: Log, dim: int | None, width: int) -> tuple[FeatureMap, bool]:
    """The features that were asked for, and whether they are the visitor's alone, for one model an article."""
    from driftls.features import Features, OuterProduct, UserOnly

    if kind == "outer" and log.format == "table":
        raise typer.BadParameter("a table takes disjoint or hashed, got outer.", param_hint="'--features'")
    if kind == "hashed":
        return Features(width, cross="all"), False
    if kind == "outer" or (kind == "auto" and log.format == "R6A"):
        return OuterProduct(6, 6), False
    if log.format == "table":
        return Features(width), True
    return UserOnly(R6B_FEATURES if dim is None else dim), True


def policy_of(name: str, features: FeatureMap, disjoint: bool, kappa: float | None, seed: int) -> Any:
    """A policy by its name over these features, which are saved with it."""
    from driftls.policies.registry import as_disjoint, make

    made = make(name, features.dim, kappa=kappa, seed=seed)
    made = as_disjoint(made, seed) if disjoint else made
    made.features = features
    return made


def tell_skipped(log: Log) -> None:
    """Lines that were broken, on stderr: each once, however often the log was read."""
    for example in dict.fromkeys(log.counts.examples):
        typer.echo(f"Skipped: {example}", err=True)


# -- results on stdout -------------------------------------------------------------------------------------------------


MOST_ROWS = 20  # of single runs below a leaderboard; the page has all
LONG = 1000  # columns of what is no terminal: other programs want a line as one line


def print_table(head: Sequence[str], rows: Iterable[Sequence[str]], *notes: str, words: int = 1) -> None:
    """A table with `words` columns of text, then numbers, with or without a head; below, notes on it."""
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else LONG)
    table = Table(box=box.SIMPLE_HEAD if head else None, show_header=bool(head), pad_edge=False, show_edge=False)
    for place, name in enumerate(head):  # on a narrow terminal text is broken, never a number
        number = place >= words
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for note in ("", *notes) if notes else ():
        console.print(note)


def print_boards(page: Page) -> None:
    """The leaderboards of a page of runs: of all traces the one that decides, and no column without anything.

    Below, estimates of runs of a log with their intervals, and what is said of the runs, warnings above all.
    """
    from driftls.report.model import Table

    for section in page.sections:
        columns = list(zip(*section.items[0].cells()))
        head, *cells = zip(*(column for column in (*columns[:3], *columns[-4:]) if any(column[1:])))
        found = [f"{finding.question}: {finding.text}" for finding in section.findings] or [section.title]
        typer.echo(f"{found[0]}\n")
        print_table(head, cells, words=1 + ("knobs" in head))
        for item in section.items[1:]:
            if isinstance(item, Table) and len(item.rows) <= MOST_ROWS:
                typer.echo()
                names, *rows = zip(*(column for column in zip(*item.cells()) if any(column[1:])))
                print_table(names, rows, words=names.index("estimate") + 1)
        typer.echo("".join(f"\n{text}" for text in section.text))


def print_result(as_json: bool, result: Any, *lines: str) -> None:
    """What came out, as one JSON object, which has no infinity and no NaN, or as lines of text."""
    import msgspec

    typer.echo(msgspec.json.encode(result, enc_hook=str) if as_json else "\n".join(lines))  # str, for paths


# -- progress on stderr ------------------------------------------------------------------------------------------------


@contextmanager
def telling(label: str = "") -> Iterator[Callable[..., None]]:
    """A bar on stderr, where that is a terminal, that is told what is done and of how much, and what is being done."""
    console = Console(stderr=True)
    shown = TextColumn("{task.description:<20}"), BarColumn(24), TimeElapsedColumn(), TimeRemainingColumn()
    note = TextColumn("{task.fields[note]}")
    with Progress(*shown, note, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None, note="")

        def tell(done: float, of: float, label: str = label, note: str = "") -> None:
            bar.update(task, description=label, completed=done, total=of, note=note or f"{done:,} of {of:,}")

        yield tell


@contextmanager
def counting(label: str, share: Callable[[int], float | None]) -> Iterator[Callable[[int], None]]:
    """A bar that is told the lines so far; the time left is shown where `share` of them knows what part they are."""
    with telling(label) as tell:
        begin = perf_counter()
        yield lambda lines: tell(
            share(lines) or 0.0, 1.0, note=f"{lines:,} lines, {lines / (perf_counter() - begin):,.0f} a second"
        )
