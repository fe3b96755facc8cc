"""The command line: results on stdout, progress on stderr; exit 0, 2 for usage, 3 for bad data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from driftls import __version__
from driftls.errors import DriftlsError, MissingExtraError, SettingsError, missing_extra

try:
    import typer
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
except ImportError:
    raise missing_extra("typer and rich", "cli", "the command line") from None

__all__ = ["app", "run"]

app = typer.Typer(
    name="driftls",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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
      driftls warmup
      driftls demo --out demo
    """  # noqa: D301  (a backspace keeps the lines of a paragraph apart)
    if version:
        typer.echo(f"driftls {__version__}")
        raise typer.Exit


@app.command()
def warmup(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TRACKER", help="Compile for this tracker alone; may be given again."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels ahead of the first row.

    Every tracker, dense and sparse float64 rows, one row and blocks. Machine code is kept in DRIFTLS_CACHE_DIR (by
    default the user's cache folder); what older versions of the kernels left there is removed.

    \b
    Examples:
      driftls warmup
      driftls warmup --only saga --only rls
      DRIFTLS_CACHE_DIR=/srv/cache driftls warmup --json
    """  # noqa: D301
    from driftls.kernels.compile import DIGEST, JIT, cache_root, remove_stale_kernels

    makers = _trackers()
    names = list(dict.fromkeys(name.lower() for name in only or makers))
    for name in names:
        if name not in makers:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(makers)}.", param_hint="'--only'")
    begin = perf_counter()
    stale = remove_stale_kernels()
    folder = cache_root() / "kernels" / DIGEST
    before = _count(folder)
    todo = [(name, make, sparse) for name in names for make in makers[name] for sparse in (False, True)]
    with _progress() as bar:
        task = bar.add_task("", total=len(todo), note="")
        for name, make, sparse in todo:
            bar.update(task, description=f"{name}, {'sparse' if sparse else 'dense'} rows")
            _use(make(3), sparse)
            bar.advance(task)
    compiled, seconds = _count(folder) - before, perf_counter() - begin
    if as_json:
        result = {"trackers": names, "compiled": compiled, "kept": before, "stale_removed": stale, "jit": JIT}
        typer.echo(json.dumps({**result, "seconds": round(seconds, 3), "folder": str(folder)}))
    elif not JIT:
        typer.echo("Nothing to compile: NUMBA_DISABLE_JIT is set.")
    else:
        ready = "1 tracker is ready" if len(names) == 1 else f"{len(names)} trackers are ready"
        typer.echo(
            f"{ready}: {compiled} kernels compiled, {before} were kept, {stale} stale caches "
            f"removed, {seconds:.1f} s, in {folder}"
        )


def _trackers() -> dict[str, list[Any]]:
    """Makers of every tracker whose kernels differ, by name."""
    from driftls.history import Growing
    from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, Diagonal

    return {
        "saga": [SAGA],
        "sag": [SAG],
        "svrg": [SVRG, lambda dim: SVRG(dim, anchor="average")],
        "gd": [GD],
        "cd": [CD],
        "diagonal": [lambda dim: Diagonal(dim, history=Growing())],
        "rls": [RLS],
        "ols": [OLS],
    }


def _use(tracker: Any, sparse: bool) -> None:
    """Call everything that is compiled."""
    import numpy as np
    import scipy.sparse as sp

    X: Any = sp.csr_array(np.eye(tracker.dim)) if sparse else np.eye(tracker.dim)
    tracker.partial_fit(X, np.ones(tracker.dim))
    tracker.update(X[[0]] if sparse else X[0], 1.0)
    tracker.predict(X)
    tracker.tracking_error()


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.nbc"))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the figure and its data.")] = Path("demo"),
    rows: Annotated[int, typer.Option(min=200, help="Length of the stream.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the stream and of the draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Follow a drifting stream with every scheme, and draw how closely.

    The stream is a synthetic day of a news front page: 136 features of a visitor and whether there was a click.
    Writes tracking.svg, tracking.png and tracking.csv. Takes a minute longer the first time, to compile.

    \b
    Examples:
      driftls demo --out demo
      driftls demo --rows 5000 --seed 3 --json
    """  # noqa: D301
    from driftls import demo as stage

    stage.check_extra()
    out.mkdir(parents=True, exist_ok=True)
    with _progress() as bar:
        tasks: dict[str, Any] = {}

        def report(scheme: str, n: int, error: float | None) -> None:
            if scheme not in tasks:
                tasks[scheme] = bar.add_task(scheme, total=rows, note="compiling, if new")
            if error is not None:
                bar.update(tasks[scheme], completed=n, note=f"error {error:.3g}")

        result = stage.track(rows, seed, report)
    files = stage.write(result, out)
    if as_json:
        final = {trace.label: trace.relative[-1] for trace in result.traces}
        typer.echo(json.dumps({"rows": rows, "seed": seed, "relative_error": final, "files": [str(f) for f in files]}))
    else:
        typer.echo(stage.table(result))
        typer.echo(f"\nThe figure is {files[0]} (and {files[1].name}), its data {files[2]}")


@contextmanager
def _progress() -> Iterator[Progress]:
    """Bars on stderr where that is a terminal, else nothing."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(24),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield bar
