"""`driftls reproduce`, `simulate`, `study`, `fit` and `warmup`: work for all cores."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import count
from pathlib import Path
from pkgutil import iter_modules
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal

from driftls.cli import common
from driftls.cli.common import AsJson, app, print_result, telling, typer, whole

if TYPE_CHECKING:
    from driftls.study import Plan

FAILED = 3
PLACES = re.compile(r"^the study cannot be run: |(?<=: )policies\[\d+\] with \{.*?\} on '[^']*': | - at `[^`]*`")


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
    from driftls.study import Plan

    _studied(Plan.load(file), out, as_json, {"plan": file.name}, workers=workers, cluster=cluster, extend=extend)


def _studied(
    plan: Plan, out: Path | None, as_json: bool, told: dict[str, str], title: str = "A study", **where: Any
) -> None:
    """Run a study, write its report if there is a folder for it, and tell who leads."""
    from driftls import report
    from driftls.report.runs import errors, leaderboard
    from driftls.study import run_study

    with telling() as tell, TemporaryDirectory() as folder:
        runs = run_study(plan, out or folder, progress=lambda stage, *n: tell(*n, stage), **where)
    page = report.of_runs(runs, report.how(**told), title, f"{plan.split} ")
    if not as_json:
        common.print_boards(page)
    board = [one._asdict() for one in leaderboard(runs, plan.metrics[0])]
    result: dict[str, Any] = {"metric": plan.metrics[0], "runs": len(runs), "leaderboard": board}
    result["errors"] = [{"error": error, "runs": count} for error, count in errors(runs).items()]
    note = f"{plan.split} Intervals are 95%; p (paired t-tests, times their number) is empty where runs are too few to tell."
    following = "Next: --out keeps the runs, and draws them."
    if out is not None:
        result |= {"results": out / "results.parquet", "report": out / "report.html"}
        report.write(page, out / "report.html")
        following = f"Next: open {out / 'report.html'}. All {len(runs)} runs are in {out / 'results.parquet'}."
    print_result(as_json, result, note, following)
    if all(run.partial for run in runs):
        why = "; ".join(f"{one['error'].rstrip('.')} (of {one['runs']} runs)" for one in result["errors"])
        typer.echo(f"driftls: no run succeeded: {why}.", err=True)
        raise typer.Exit(FAILED)


@app.command(epilog=common.POLICIES)
def simulate(
    policy: Annotated[
        list[str], typer.Option(metavar="A,B,...", help="Names of policies, as below; may be given again.")
    ],
    kind: Annotated[
        Literal["fixed-arms", "churning-pool", "fresh-contexts"],
        typer.Option("--bandit", help="Where the arms come from."),
    ] = "fixed-arms",
    dim: Annotated[int, whole("Number of features.", 1, 10**7)] = 50,
    arms: Annotated[int, whole("Arms on offer in a round.", 1, 10**6)] = 100,
    rounds: Annotated[int, whole("Rounds of a run.", 1, 10**9)] = 10_000,
    seeds: Annotated[int, whole("Runs of each policy, on as many bandits.", 1, 10**6)] = 10,
    seed: common.FirstSeed = 0,
    sigma: Annotated[float, typer.Option(metavar="NUMBER", help="Standard deviation of the noise.")] = 0.3,
    reward: Annotated[Literal["gaussian", "bounded", "bernoulli"], typer.Option(help="Kind of noise.")] = "gaussian",
    nnz: Annotated[int | None, whole("Non-zeros of an arm; fresh-contexts only.")] = None,
    kappa: common.Kappa = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder of the runs and their report.")] = None,
    workers: common.Workers = 1,
    as_json: AsJson = False,
) -> None:
    """Play simulated bandits, and compare the regret of policies.

    A study of one bandit, without its file. Without --kappa the paper's policies take 1 and the others estimate it. All
    policies of a seed meet the same arms and the same noise. A folder of other settings is refused.

    \b
    Examples:
      driftls simulate --policy linucb,flinucb-gd,flinucb-saga --dim 50 --arms 100 --rounds 10000 --seeds 20
      driftls simulate --bandit fresh-contexts --dim 1000 --nnz 8 --policy linucb-auto,random --seeds 5 --json
      driftls simulate --bandit churning-pool --policy linucb-exact --kappa 0.6 --out churning
    """  # noqa: D301
    from driftls.errors import SettingsError
    from driftls.policies.registry import SETTINGS
    from driftls.study import Plan

    bandit: dict[str, Any] = {"name": kind, "kind": kind, "dim": dim, "arms": arms, "rounds": rounds, "sigma": sigma}
    policies = []
    for name in dict.fromkeys(name.strip() for given in policy for name in given.rstrip(", ").split(",")):
        takes = kappa is not None and "kappa" in SETTINGS.get(name, ["kappa"])  # the paper's are not listed yet
        policies.append({"policy": name, "knobs": {"kappa": kappa} if takes else {}})
    tables = {
        "metrics": ["regret", "reward", "relative_tracking_error"],
        "seeds": {"report": seeds, "first": seed},
        "bandits": [{**bandit, "reward": reward, "nnz": nnz}],
        "policies": policies,
        "budget": seeds * len(policies),
    }
    try:
        plan = Plan.parse(tables)
    except SettingsError as error:  # which names places of a file that is not there
        raise SettingsError(PLACES.sub("", str(error)).rstrip(".") + ".") from None
    _studied(plan, out, as_json, {}, "Simulated bandits", workers=workers)


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
