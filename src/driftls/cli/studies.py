"""`driftls reproduce`, `study`, `fit` and `warmup`: work for all cores."""

from __future__ import annotations

from importlib import import_module
from itertools import count
from pathlib import Path
from pkgutil import iter_modules
from time import perf_counter
from typing import Annotated, Any

from driftls.cli import common
from driftls.cli.common import AsJson, app, print_result, telling, typer


@app.command()
def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="Everything small: a minute on 2 cores.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Long streams, many seeds: an hour on 2 cores.")] = False,
    log: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="A Yahoo log, not a synthetic day; may be given again."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This alone; may be given again.")] = None,
    seed: common.FirstSeed = 0,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder of the report and of its data.")] = Path("paper"),
    figures: common.Figures = None,
    jobs: common.Workers = -1,
    as_json: AsJson = False,
) -> None:
    """Do the paper's experiments again: one page of findings.

    Beside them stands what we recommend. Names for --only: run-times, ctr, tracking, theorem-1, theorem-2, section-4,
    scaling. The paper's own plots are figure-1 (run times) and figure-2 (tracking error). What is measured is kept in
    the folder: interrupted, the same command goes on where it was. Without --quick or --full it takes some 15
    minutes on 2 cores that do nothing else.

    \b
    Examples:
      driftls reproduce --quick --out demo
      driftls reproduce --only figure-2 --seed 3 --json
      driftls reproduce --full --log day-2.gz --log day-4.gz --figures figures
    """  # noqa: D301
    from driftls import report
    from driftls.paper import reproduce as stage

    if quick and full:
        raise typer.BadParameter("not together with --full.", param_hint="'--quick'")
    options = stage.Options(0 if quick else 2 if full else 1, seed, tuple(str(path) for path in log or ()))
    with telling("measuring") as tell:
        page = stage.reproduce(options, out / "data", only=only, workers=jobs, progress=tell)
    files = report.write(page, out / "report.html", figures=figures)
    findings = [f"{one.question}\n  {one.text}" for section in page.sections for one in section.findings]
    claims = [f"{report.MARKS[one.verdict]:<19} {one.claim}" for section in page.sections for one in section.claims]
    print_result(as_json, {"files": files, **page.data()}, *findings, "", *claims, f"\nNext: open {files[0]}")


@app.command()
def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY.TOML", exists=True, dir_okay=False, help="What to run.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for finished runs and results.")],
    extend: Annotated[bool, typer.Option("--extend", help="Take over the folder of another study.")] = False,
    workers: common.Workers = -1,
    cluster: common.Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Tune and compare policies, on all cores or on a cluster.

    Over knobs, seeds, bandits and logs. The file is checked as a whole before anything runs. Knobs are tuned on some
    seeds and days, and reported on others. Results are the same for any number of workers; run again, it does only
    what is missing. Writes results.parquet and report.html. A folder that holds another study is refused; with
    --extend its results are replaced, and runs that both have are used again.

    \b
    Examples:
      driftls study study.toml --out study
      driftls study study.toml --out study --workers 2 --json
      driftls study study.toml --out study --cluster tcp://127.0.0.1:8786
    """  # noqa: D301
    from driftls import report
    from driftls.study import Plan, run_study
    from driftls.study.page import page_of
    from driftls.study.plan import LARGER_IS_BETTER
    from driftls.study.results import leaderboard

    plan = Plan.load(file)
    with telling() as tell:
        rows = run_study(
            plan, out, workers=workers, cluster=cluster, extend=extend, progress=lambda stage, *n: tell(*n, stage)
        )
    results, html, metric = out / "results.parquet", out / "report.html", plan.metrics[0]
    page = page_of(plan, rows, report.how(plan=file.name))
    report.write(page, html)
    if as_json:
        board = [one._asdict() for one in leaderboard(rows, metric, larger=LARGER_IS_BETTER[metric])]
        told = {"metric": metric, "runs": len(rows), "leaderboard": board, "results": results, "report": html}
        print_result(as_json, told)
        return
    for section in page.sections:
        head, *cells = section.items[0].cells()
        typer.echo(f"{section.title}: {section.found}\n")
        common.print_table(head, cells, words=2)
        typer.echo()
    typer.echo(
        f"{plan.split} Intervals are 95%; p (paired t-tests, Holm's rule) is empty where runs are too few to tell."
    )
    typer.echo(f"Next: open {html}. All {len(rows)} runs are in {results}.")


@app.command()
def fit(
    days: Annotated[Path, typer.Argument(exists=True, help="A Parquet log, or a folder partitioned by day.")],
    policy: Annotated[str, typer.Option(metavar="NAME", help="linucb or linucb-exact.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file of the policy.")],
    features: common.FeatureKind = "auto",
    dim: common.Dim = None,
    width: common.Width = 1024,
    kappa: common.Kappa = None,
    seed: common.Seed = 0,
    workers: common.Workers = -1,
    cluster: common.Cluster = None,
    as_json: AsJson = False,
) -> None:
    """Start a policy warm, from a log as partitioned Parquet.

    Each file is a shard; sums over the shards are exact, for at most 5,000 features. By default every article has a
    model of its own. `driftls replay --warm` goes on with what is written here.

    \b
    Examples:
      driftls fit days --policy linucb --features outer --out warm.policy
      driftls fit days --policy linucb --features hashed --width 2048 --out warm.policy
      driftls fit days --policy linucb-exact --out warm.policy --cluster tcp://127.0.0.1:8786
    """  # noqa: D301
    from driftls import fit as stage
    from driftls import logs
    from driftls.errors import SettingsError

    log = logs.read(days)
    if not isinstance(log, logs.ParquetLog):
        raise SettingsError(
            f"{days}: expected a log as Parquet, got {log.format}. Run: driftls convert {days} --out days"
        )
    paths, begin, done = [str(Path(path).resolve()) for path in log.paths], perf_counter(), count(1)
    start = common.policy_of(policy, *common.features_of(features, log, dim, width), kappa, seed)
    with telling(policy) as tell:
        found = stage.fit(
            start, paths, workers=workers, cluster=cluster, progress=lambda _: tell(next(done), len(paths))
        )
    found.policy.save(out)
    seconds, dim = round(perf_counter() - begin, 3), found.policy.dim
    told = {"policy": policy, "rows": found.rows, "shards": len(paths), "dim": dim, "seconds": seconds, "file": out}
    learned = f"{policy} has learned {found.rows:,} rows (files: {len(paths)}), {dim:,} features, in {seconds:.1f} s."
    print_result(as_json, told, learned, f"Next: driftls replay LOG --warm {out}")


def every_part() -> list[Any]:
    """All that is ever compiled of the library."""
    from driftls import kernels
    from driftls.compiling import PARTS

    modules = [found.name for found in iter_modules(kernels.__path__, "driftls.kernels.")]
    for module in (*modules, "driftls.features.kernel", "driftls.logs.parser"):
        import_module(module)
    return [part for part in PARTS.values() if part.function.__module__.startswith("driftls.")]


@app.command()
def warmup(as_json: AsJson = False) -> None:
    """Compile every kernel ahead of the first row.

    Machine code is kept in DRIFTLS_CACHE_DIR (by default the user's cache folder).

    \b
    Examples:
      driftls warmup
      DRIFTLS_CACHE_DIR=/srv/cache driftls warmup --json
    """  # noqa: D301
    from driftls.compiling import INTERPRET
    from driftls.compiling.objects import folder
    from driftls.errors import SettingsError

    if INTERPRET:
        raise SettingsError("there is nothing to compile while DRIFTLS_INTERPRET is set. Unset it.")
    parts = every_part()
    begin, place = perf_counter(), folder()
    before = set() if place is None else set(place.glob("*.obj"))
    with telling() as tell:
        for done, part in enumerate(parts):
            tell(done, len(parts), part.name)
            part.address  # noqa: B018  (which compiles it)
    compiled = 0 if place is None else len(set(place.glob("*.obj")) - before)
    seconds = round(perf_counter() - begin, 3)
    told = {"parts": len(parts), "compiled": compiled, "seconds": seconds, "folder": place}
    text = f"{compiled} of {len(parts)} kernels compiled in {seconds:.1f} s; they are in {place}"
    if place is None:
        text = "Compiled, but not kept: there is no cache folder that only this user can write to."
    print_result(as_json, told, text)
