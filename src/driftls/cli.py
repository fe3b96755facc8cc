"""The command line: results on stdout, progress on stderr; exit 0, 2 for usage, 3 for bad data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
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
      driftls simulate --bandit fixed-arms --dim 50 --arms 100 --policy linucb,flinucb-saga
      driftls bounds --mu 0.5 --c 6 --dim 24 --n 1000,10000
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


class Bandit(StrEnum):
    """What `simulate` can play on."""

    FIXED = "fixed-arms"
    CHURNING = "churning-pool"
    FRESH = "fresh-contexts"


class Reward(StrEnum):
    """The noise of a simulated bandit."""

    GAUSSIAN = "gaussian"
    BOUNDED = "bounded"
    BERNOULLI = "bernoulli"


@app.command()
def simulate(
    policy: Annotated[str, typer.Option(metavar="A,B,...", help="Names of policies; see below.")],
    bandit: Annotated[Bandit, typer.Option(help="Where the arms come from.")] = Bandit.FIXED,
    dim: Annotated[int, typer.Option(min=1, help="Number of features.")] = 50,
    arms: Annotated[int, typer.Option(min=1, help="Arms on offer in a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of a run.")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each policy, on as many bandits.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The first seed; the others follow.")] = 0,
    sigma: Annotated[float, typer.Option(help="Standard deviation of the noise.")] = 0.3,
    reward: Annotated[Reward, typer.Option(help="Kind of noise.")] = Reward.GAUSSIAN,
    nnz: Annotated[int | None, typer.Option(min=1, help="Non-zeros of an arm; fresh-contexts only.")] = None,
    kappa: Annotated[float | None, typer.Option(help="Weight of the width; if not given, each policy's own.")] = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for one JSON file a run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play simulated bandits, and compare the regret of policies.

    The paper's, with its settings: linucb, flinucb-gd, flinucb-svrg, flinucb-sag. Ours: flinucb-saga, flinucb-cd,
    linucb-auto. To compare with: lints, ensemble-ts, greedy, epsilon-greedy, random. Without --kappa the paper's take
    1 and the others estimate it. All policies of a seed meet the same arms and the same noise. The first run of a
    policy takes half a minute longer, to compile.

    \b
    Examples:
      driftls simulate --policy linucb,flinucb-gd,flinucb-saga --dim 50 --arms 100 --rounds 10000 --seeds 20
      driftls simulate --bandit fresh-contexts --dim 1000 --nnz 8 --policy linucb-auto,random --seeds 5 --json
      driftls simulate --bandit churning-pool --policy flinucb-cd --kappa 0.6 --out runs
    """  # noqa: D301
    from driftls import simulate as stage

    table = _policies()
    names = list(dict.fromkeys(name.strip() for name in policy.split(",")))
    for name in names:
        if name not in table:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(table)}.", param_hint="'--policy'")
    make = _bandit(bandit, nnz)
    settings = {"sigma": sigma, "reward": reward.value}
    make(dim, arms, seed=seed, **settings)
    for name in names:  # what cannot be built is told before the first run
        table[name](dim, kappa, seed)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[Any]] = {name: [] for name in names}
    files = []
    with _progress() as bar:
        task = bar.add_task("", total=len(names) * seeds * rounds, note="")
        done = 0
        for name in names:
            for number in range(seed, seed + seeds):
                bar.update(task, description=name, note=f"seed {number}")
                run = stage.simulate(
                    table[name](dim, kappa, number),
                    make(dim, arms, seed=number, **settings),
                    rounds,
                    name=name,
                    seed=number,
                    tracking=name != "random",
                    progress=partial(_advance, bar, task, done),
                )
                done += rounds
                runs[name].append(run)
                if out is not None:
                    files.append(out / f"{name}-{number}.json")
                    run.save(files[-1])
    rows = {name: _summary(of_policy) for name, of_policy in runs.items()}
    if as_json:
        asked = {"bandit": bandit.value, "dim": dim, "arms": arms, "rounds": rounds, "nnz": nnz, "kappa": kappa}
        result = {**asked, **settings, "seeds": [seed, seed + seeds - 1], "policies": rows, "files": files}
        typer.echo(json.dumps(result, default=str))
        return
    typer.echo(f"{'':<16}{'regret':>10}{'95%':>10}{'reward':>12}{'tracking':>10}{'choose us':>11}{'learn us':>10}")
    for name, row in rows.items():
        half = "" if row["interval"] is None else f"+-{row['interval']:.1f}"
        tracking = "" if row["tracking_error"] is None else f"{row['tracking_error']:.4f}"
        line = f"{name:<16}{row['regret']:>10.1f}{half:>10}{row['reward']:>12.1f}{tracking:>10}"
        typer.echo(f"{line}{row['choose_us']:>11.2f}{row['learn_us']:>10.2f}")
    of = "1 seed" if seeds == 1 else f"{seeds} seeds"
    typer.echo(f"\nMeans over {of} after {rounds} rounds; tracking error relative to the exact theta (theta = 0 is 1).")


def _advance(bar: Progress, task: Any, before: int, rounds: int) -> None:
    bar.update(task, completed=before + rounds)


def _policies() -> dict[str, Any]:
    """The paper's policies and ours, by name."""
    from driftls import paper
    from driftls.policies import named

    return {**paper.POLICIES, **named.POLICIES}


def _bandit(bandit: Bandit, nnz: int | None) -> Any:
    from driftls.environments import ChurningPool, FixedArms, FreshContexts

    if bandit is Bandit.FRESH:
        return partial(FreshContexts, nnz=nnz)
    if nnz is not None:
        raise typer.BadParameter("only fresh-contexts have sparse arms.", param_hint="'--nnz'")
    return FixedArms if bandit is Bandit.FIXED else ChurningPool


def _summary(runs: list[Any]) -> dict[str, Any]:
    """Means over the runs of one policy; no interval for one run."""
    from driftls.run import interval

    def mean(trace: str) -> float | None:
        return interval([run.last(trace) for run in runs])[0] if trace in runs[0].traces else None

    regret, half = interval([run.last("regret") for run in runs])
    spent = {part: 1e6 * sum(run.seconds[part] for run in runs) for part in ("choose", "learn")}
    rounds = sum(run.rounds for run in runs)
    return {
        "regret": regret,
        "interval": half if len(runs) > 1 else None,
        "reward": mean("reward"),
        "tracking_error": mean("relative_tracking_error"),
        "choose_us": spent["choose"] / rounds,
        "learn_us": spent["learn"] / rounds,
    }


@app.command()
def bounds(
    mu: Annotated[float, typer.Option(help="Strong convexity: the smallest eigenvalue of A_n / n.")],
    c: Annotated[float, typer.Option(help="Of the step size c/(4(c + n)).")],
    dim: Annotated[int, typer.Option(min=1, help="Number of features.")],
    n: Annotated[str, typer.Option(metavar="N,N,...", help="Rounds.")] = "1000,10000,100000",
    delta: Annotated[float, typer.Option(help="Probability with which a bound may fail.")] = 0.05,
    as_json: AsJson = False,
) -> None:
    """Evaluate Theorem 1: K1, K2, both printed bounds, and the terms of Proposition 2.

    A bound is on the tracking error, with theta_0 at distance 1 of theta*. It is a diagnostic, and a loose one: never
    a confidence width.

    \b
    Examples:
      driftls bounds --mu 0.5 --c 6 --dim 24 --n 1000,10000 --delta 0.05
      driftls bounds --mu 0.04 --c 75 --dim 24 --n 1000000 --json
    """  # noqa: D301
    from driftls import theory

    try:
        at = [int(entry) for entry in n.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{n!r} is not a list of whole numbers.", param_hint="'--n'") from None
    if min(at) <= dim:
        raise typer.BadParameter(f"the bounds hold from round dim + 1 = {dim + 1} on.", param_hint="'--n'")
    common: dict[str, Any] = {"mu": mu, "c": c, "dim": dim, "delta": delta}
    theorem, appendix = theory.bound_theorem(at, **common), theory.bound_appendix(at, **common)
    terms = theory.proposition_2(
        at, mu=mu, c=c, n0=dim, ols_error=lambda k: theory.ols_error(k.astype(int), mu=mu, dim=dim, delta=delta)
    )
    columns = {
        "K1": theory.K1(at, **common),
        "K2": theory.K2(at, **common),
        "theorem_mean": theorem.expectation,
        "theorem_high": theorem.high_probability,
        "appendix_mean": appendix.expectation,
        "appendix_high": appendix.high_probability,
        "initial": terms.initial,
        "sampling": terms.sampling,
        "drift": terms.drift,
    }
    regime = theory.rate_regime(mu=mu, c=c)
    note = None
    if mu > 1.0 / dim:
        note = f"features with ||x|| <= 1, (A2), allow no mu above 1/dim = {1.0 / dim:.4g}: mu = {mu:g} cannot occur."
    if as_json:
        rows = [
            {"n": number, **{name: float(values[i]) for name, values in columns.items()}} for i, number in enumerate(at)
        ]
        typer.echo(json.dumps({**common, "regime": regime, "note": note, "rounds": rows}))
        return
    typer.echo(f"{'n':<15}" + "".join(f"{number:>14}" for number in at))
    for name, values in columns.items():
        typer.echo(f"{name.replace('_', ' '):<15}" + "".join(f"{value:>14.5g}" for value in values))
    typer.echo(f"\nRegime {regime}. The last three are Proposition 2's terms, with the Lemma's bound on OLS.")
    if note is not None:
        typer.echo(f"Note: {note}")


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
