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
        typer.Option(metavar="NAME", help="Compile for this tracker or policy alone; may be given again."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile the kernels ahead of the first row.

    Every tracker, and the policies that choose their parts themselves (`linucb`, and `disjoint`, with one model an
    arm): dense, sparse and crossed float64 rows, one row and many. Other policies are compiled by name: flinucb-saga,
    flinucb-cd, lints, ensemble-ts, greedy. Machine code is kept in DRIFTLS_CACHE_DIR (by default the user's cache
    folder); what older versions of the kernels left there is removed.

    \b
    Examples:
      driftls warmup
      driftls warmup --only saga --only linucb
      DRIFTLS_CACHE_DIR=/srv/cache driftls warmup --json
    """  # noqa: D301
    from driftls.kernels.compile import DIGEST, JIT, cache_root, remove_stale_kernels

    trackers, policies = _trackers(), _policies()
    uses: dict[str, list[Any]] = {name: [(make, _use_tracker) for make in made] for name, made in trackers.items()}
    uses |= {name: [(make, _use_policy) for make in made] for name, made in policies.items()}
    names = list(dict.fromkeys(name.lower() for name in only or [*trackers, *BY_DEFAULT]))
    for name in names:
        if name not in uses:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(uses)}.", param_hint="'--only'")
    begin = perf_counter()
    stale = remove_stale_kernels()
    folder = cache_root() / "kernels" / DIGEST
    before = _count(folder)
    todo = [(name, make, use, sparse) for name in names for make, use in uses[name] for sparse in (False, True)]
    with progress() as bar:
        task = bar.add_task("", total=len(todo), note="")
        for name, make, use, sparse in todo:
            bar.update(task, description=f"{name}, {'sparse' if sparse else 'dense'} rows")
            use(make(), sparse)
            bar.advance(task)
    compiled, seconds = _count(folder) - before, perf_counter() - begin
    if as_json:
        result = {"names": names, "compiled": compiled, "kept": before, "stale_removed": stale, "jit": JIT}
        typer.echo(json.dumps({**result, "seconds": round(seconds, 3), "folder": str(folder)}))
    elif not JIT:
        typer.echo("Nothing to compile: NUMBA_DISABLE_JIT is set.")
    else:
        typer.echo(
            f"{', '.join(names)}: {compiled} kernels compiled, {before} were kept, {stale} stale caches "
            f"removed, {seconds:.1f} s, in {folder}"
        )


DIM = 3  # kernels do not depend on it
BY_DEFAULT = ("linucb", "disjoint")


def _trackers() -> dict[str, list[Any]]:
    """Makers of every tracker whose kernels differ, by name."""
    from driftls.history import Growing
    from driftls.trackers import CD, GD, OLS, RLS, SAG, SAGA, SVRG, Diagonal

    return {
        "saga": [lambda: SAGA(DIM)],
        "sag": [lambda: SAG(DIM)],
        "svrg": [lambda: SVRG(DIM), lambda: SVRG(DIM, anchor="average")],
        "gd": [lambda: GD(DIM)],
        "cd": [lambda: CD(DIM)],
        "diagonal": [lambda: Diagonal(DIM, history=Growing())],
        "rls": [lambda: RLS(DIM)],
        "ols": [lambda: OLS(DIM)],
    }


def _policies() -> dict[str, list[Any]]:
    """Makers of policies, by name; `linucb` and `disjoint` with all the parts that they may choose."""
    from driftls.policies import DisjointLinUCB, LinUCB
    from driftls.policies.named import POLICIES
    from driftls.trackers import SAGA
    from driftls.widths import DiagonalWidth, ExactWidth

    exact = [lambda: LinUCB(DIM)]
    fast = [lambda: LinUCB(tracker=SAGA(DIM), width=DiagonalWidth())]
    each = [
        lambda: DisjointLinUCB(DIM, width=ExactWidth(), tracker=DisjointLinUCB(DIM).tracker),
        lambda: DisjointLinUCB(DIM, tracker=SAGA(DIM)),
    ]
    plain = ("flinucb-saga", "flinucb-cd", "lints", "ensemble-ts", "greedy")
    named = {name: [lambda name=name: POLICIES[name](DIM, None, 0)] for name in plain}
    return {"linucb": exact + fast, "disjoint": each, **named}


def _use_tracker(tracker: Any, sparse: bool) -> None:
    """Call everything that is compiled."""
    import numpy as np
    import scipy.sparse as sp

    X: Any = sp.csr_array(np.eye(DIM)) if sparse else np.eye(DIM)
    tracker.partial_fit(X, np.ones(DIM))
    tracker.update(X[[0]] if sparse else X[0], 1.0)
    tracker.predict(X)
    tracker.tracking_error()


def _use_policy(policy: Any, sparse: bool) -> None:
    """A round; of one model and sparse arms, also one of crossed arms."""
    import numpy as np
    import scipy.sparse as sp

    from driftls.crossed import Crossed
    from driftls.policies import DisjointLinUCB

    arms: Any = sp.csr_array(np.eye(DIM)) if sparse else np.eye(DIM)
    if isinstance(policy, DisjointLinUCB):
        user, ids = (arms[[0]], [1, 2]) if sparse else (arms[0], [1, 2])
        policy.learn(user, 1.0, arm=policy.choose(user, ids=ids), ids=ids)
        return
    for _ in range(2):  # the first looks at everything, the second takes the short way
        policy.learn(arms, 1.0, arm=policy.choose(arms))
    if sparse:
        crossed = Crossed([1.0], [0, 2], count=DIM)
        policy.learn(crossed, 1.0, arm=policy.choose(crossed))


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*.nbc"))
