"""`driftls warmup`."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Annotated, Any

from driftls.cli import common
from driftls.cli.common import app, typer

TRACKERS = ("saga", "sag", "svrg", "gd", "cd", "diagonal", "rls", "ols")
BY_DEFAULT = (*TRACKERS, "linucb-auto", "disjoint")


@app.command()
def warmup(
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Compile for this tracker or policy alone; may be given again."),
    ] = None,
    as_json: common.AsJson = False,
) -> None:
    """Compile the kernels ahead of the first row.

    Every tracker, and the policies that choose their parts themselves: linucb-auto, and disjoint, with one model an
    arm. Others are compiled by name. Machine code is kept in DRIFTLS_CACHE_DIR (by default the user's cache folder);
    what older versions left there is removed.

    \b
    Examples:
      driftls warmup
      driftls warmup --only saga --only flinucb-saga
      DRIFTLS_CACHE_DIR=/srv/cache driftls warmup --json
    """  # noqa: D301
    from driftls.kernels.compile import DIGEST, JIT, cache_root, remove_stale_kernels

    known = [*BY_DEFAULT, *(name for name in common.policies() if name not in BY_DEFAULT)]
    names = list(dict.fromkeys(name.lower() for name in only or BY_DEFAULT))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}.", param_hint="'--only'")
    begin = perf_counter()
    stale = remove_stale_kernels()
    folder = cache_root() / "kernels" / DIGEST
    before = set(folder.glob("*.nbc"))
    with common.progress() as bar:
        task = bar.add_task("", total=len(names), note="")
        warm(names, lambda name, done: bar.update(task, description=name, completed=done))
    compiled, seconds = len(set(folder.glob("*.nbc")) - before), perf_counter() - begin
    if as_json:
        result = {"names": names, "compiled": compiled, "kept": len(before), "stale_removed": stale, "jit": JIT}
        common.print_json({**result, "seconds": round(seconds, 3), "folder": folder})
    elif not JIT:
        typer.echo("Nothing to compile: NUMBA_DISABLE_JIT is set.")
    else:
        kept = f"{len(before)} were there, {stale} old caches removed"
        typer.echo(f"{', '.join(names)}: {compiled} kernels compiled in {seconds:.1f} s ({kept}). They are in {folder}")


def warm(names: list[str], tell: Callable[[str, int], None]) -> None:
    """Compile what these trackers and policies need, by using each once; driftls.kernels is to do this."""
    import numpy as np
    import scipy.sparse as sp

    from driftls import trackers
    from driftls.policies import DisjointLinUCB, LinUCB
    from driftls.widths import DiagonalWidth

    classes = {name.lower(): getattr(trackers, name) for name in trackers.__all__}
    for done, name in enumerate(names):
        tell(name, done)
        for X in (np.eye(3), sp.csr_array(np.eye(3))):
            if name in TRACKERS:
                tracker = classes[name](3).partial_fit(X, np.ones(3)).update(X[[0]], 1.0)
                tracker.predict(X)
                continue
            made: list[Any] = [common.policies()[name](3, None, 0)] if name != "disjoint" else [DisjointLinUCB(3)]
            if name in BY_DEFAULT:  # what they choose for many features
                tracker = trackers.SAGA(3)
                large = LinUCB(tracker=tracker, width=DiagonalWidth())
                made.append(large if name != "disjoint" else DisjointLinUCB(3, tracker=tracker))
            for policy in made:
                arms, ids = (X[[0]], [1, 2]) if name == "disjoint" else (X, None)
                for _ in range(2):
                    policy.learn(arms, 1.0, arm=policy.choose(arms, ids=ids), ids=ids)
        tell(name, done + 1)
