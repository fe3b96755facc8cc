"""What all commands share: the app, its options, tables and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import wrap
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from driftls.errors import missing_extra

try:
    import typer
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Table
except ImportError:
    raise missing_extra("typer and rich", "cli", "the command line") from None

if TYPE_CHECKING:
    from pathlib import Path

    from driftls.features import FeatureMap
    from driftls.logs import Log
    from driftls.policies.registry import Maker

__all__ = [
    "Articles", "AsJson", "Cluster", "Dim", "FeatureKind", "Kappa", "OnError", "Propensity", "Reward", "Seed", "Shown",
    "Width", "Workers", "app", "check_policies", "counting", "features_of", "opened", "policies", "print_json",
    "print_notes", "print_pairs", "print_table", "telling", "typer",
]  # fmt: skip

R6B_FEATURES = 136

app = typer.Typer(
    name="driftls",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Of everything that is drawn at random.")]
Kappa = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Weight of the width; if not given, the policy's own.")
]
Workers = Annotated[int, typer.Option(min=-1, metavar="N", help="Processes on this machine; -1 is one a core.")]
Cluster = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler to use instead.")]
OnError = Annotated[Literal["raise", "skip"], typer.Option(help="At a broken line: stop, or skip and count it.")]
FeatureKind = Annotated[
    Literal["auto", "disjoint", "crosses", "shared", "hashed", "outer"],
    typer.Option(help="How a visitor and an article make an arm."),
]
Dim = Annotated[
    int | None,
    typer.Option(
        min=1, max=10**7, metavar="N", help="Features of a visitor; if not given, 136, or as many as the log says."
    ),
]
Articles = Annotated[int, typer.Option(min=1, max=10**7, metavar="N", help="Most articles, for crosses and shared.")]
Shown = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Of a table (CSV, or a JSON object a line): what was shown.")
]
Reward = Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: what it brought.")]
Propensity = Annotated[str | None, typer.Option(metavar="COLUMN", help="Of a table: how likely it was to be shown.")]
Width = Annotated[int, typer.Option(min=1, max=10**9, metavar="N", help="Length of an arm, for hashed.")]


def opened(paths: Sequence[Path], on_error: str, shown: str | None, reward: str | None, propensity: str | None) -> Log:
    """The log at these paths; a table, if its columns are named."""
    from driftls.logs import read, read_table

    if shown is None and reward is None and propensity is None:
        return read(paths, on_error=on_error)
    if shown is None or reward is None or len(paths) != 1:
        raise typer.BadParameter("a table is one file, and needs both.", param_hint="'--shown' and '--reward'")
    return read_table(paths[0], shown=shown, reward=reward, propensity=propensity, on_error=on_error)


def features_of(kind: str, log: Log, dim: int | None, articles: int, width: int) -> FeatureMap:
    """The features that were asked for; by default one model an article, and for R6A products with its features."""
    from driftls.features import Features, OuterProduct, UserArmCrosses, UserOnly

    form, dim = log.format, max(R6B_FEATURES, log.user_dim) if dim is None else dim
    made: FeatureMap = UserOnly(dim) if form != "table" else Features(width)
    if form == "table" and kind not in ("auto", "disjoint", "hashed"):
        raise typer.BadParameter(f"a table takes disjoint or hashed, got {kind}.", param_hint="'--features'")
    if kind == "outer" or (kind == "auto" and form == "R6A"):
        made = OuterProduct(6, 6)
    elif kind == "hashed":
        made = Features(width, cross="all")
    elif kind in ("crosses", "shared"):
        made = UserArmCrosses(dim, articles=articles, shared=kind == "shared")
    return made


def policies() -> dict[str, Maker]:
    """The paper's policies and ours, by name."""
    import driftls.paper
    from driftls.policies.registry import POLICIES

    return {**driftls.paper.POLICIES, **POLICIES}  # the paper's first


def check_policies(names: Iterable[str]) -> dict[str, Maker]:
    """The table of `policies`, if it has all of the names."""
    table = policies()
    for name in names:
        if name not in table:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(table)}.", param_hint="'--policy'")
    return table


# -- results on stdout -------------------------------------------------------------------------------------------------


def _console() -> Console:
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=max(console.width, 160))


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = 1, notes: Sequence[str] = ()
) -> None:
    """A table with `words` columns of text, then numbers; below, what they mean and what to do next."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(head):  # on a narrow terminal text is broken, never a number
        number = place >= words
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    _console().print(table)
    print_notes(*notes)


def print_pairs(pairs: Iterable[tuple[str, str]], *, notes: Sequence[str] = ()) -> None:
    """Names, and what is said of each beside them; then what to do next."""
    console = _console()
    for name, text in pairs:
        lines = wrap(text, max(20, console.width - 22)) if console.is_terminal else [text]
        typer.echo(f"{name:<22}" + f"\n{'':<22}".join(lines))
    print_notes(*notes)


def print_notes(*notes: str) -> None:
    """Sentences below an empty line, broken where a terminal ends."""
    console = _console()
    for note in ("", *notes) if notes else ():
        console.print(note, soft_wrap=not console.is_terminal)


def print_json(result: Any) -> None:
    """One JSON object; it has no infinity and no NaN."""
    import msgspec

    typer.echo(msgspec.json.encode(result, enc_hook=str))  # paths


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
