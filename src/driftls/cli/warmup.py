"""`driftls warmup`."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, progress, typer


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
    with progress() as bar:
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
