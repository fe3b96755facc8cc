"""`driftls replay` and `report`: policies are played over a log, and what came out is compared."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from driftls.cli import common
from driftls.cli.common import AsJson, app, counting, print_result, print_table, typer, whole

if TYPE_CHECKING:
    from driftls.run import Run

INTERRUPTED = 130
WORDS = {
    "replay": "mean reward of the lines where the policy chose what was shown",
    "snips": "self-normalised inverse propensity: such lines, weighted by 1/p",
}


@app.command(epilog=common.POLICIES)
def replay(
    paths: common.LogPaths,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="A,B,...", help="Names of policies, as below; may be given again.")
    ] = None,
    warm: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="A saved policy; may be given again."),
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Policies learn nothing: every line is used.")] = False,
    shown: common.Shown = None,
    reward: common.Reward = None,
    propensity: common.Propensity = None,
    visitor: common.Visitor = None,
    features: common.FeatureKind = "auto",
    dim: common.Dim = None,
    width: common.Width = 1024,
    kappa: common.Kappa = None,
    seed: common.Seed = 0,
    delay: Annotated[int, whole("Lines after which a reward is learned.", 0)] = 0,
    limit: Annotated[int | None, whole("Lines at most.")] = None,
    metric: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Trace too: regret, tracking_error.")] = None,
    on_error: common.OnError = "raise",
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for one run (JSON) and one policy a name; goes on if interrupted."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask which policies would have done better on a log.

    Every policy is asked on every line; where one chooses what was shown, the line counts and is learned. What is
    printed first is the estimate that is valid for this log: matched lines alone if it showed uniformly, weighted by
    1/p if it has propensities; a warning says if none is. With --frozen, policies (of --warm, mostly) are asked how
    likely they are to show what was shown, on every line, beside a model of the rewards.

    A table (CSV, Parquet, or a JSON object a line) has a row for each decision: --shown, --reward and --propensity name its
    columns, and all others are the visitor's, unless --visitor names them. A column that is known only afterwards, as what
    was paid beside a click, must be left out: policies would learn from the reward.

    Features: disjoint (one model an article, the default), outer (products of user and article features, the default for
    R6A), hashed (visitor, article, its id and features, and all their crosses, as `driftls.Features` hashes them). All
    policies read the log once, together.

    \b
    Examples:
      driftls replay day.gz --policy linucb --policy flinucb-saga --kappa 0.2 --seed 7 --out runs
      driftls replay day.parquet --metric regret --policy linucb-auto,random
      driftls replay days --warm runs/flinucb-saga.policy --frozen
      driftls replay events.csv --shown offer --reward click --propensity likely --visitor city,age --policy linucb-auto
      driftls replay day.parquet --policy linucb-auto --features hashed --width 4096 --delay 500 --json
    """  # noqa: D301
    from dataclasses import asdict

    from msgspec.structs import replace

    from driftls.log_replay import replay as run_replay
    from driftls.offpolicy import estimate
    from driftls.parallel import claim_folder, file_digest, key_of
    from driftls.policies.registry import load
    from driftls.run import described

    policy, visitor = common.names_of(policy), common.names_of(visitor)
    if not policy and not warm:
        raise typer.BadParameter("name a policy, or pass a saved one with --warm.", param_hint="'--policy'")
    names = [*policy, *(path.stem for path in warm or [])]
    if twice := [name for name in names if names.count(name) > 1]:
        raise typer.BadParameter(f"two policies are called {twice[0]}: rename the file of one.", param_hint="'--warm'")
    log = common.opened(paths, on_error, shown, reward, propensity, visitor)
    kind, disjoint = common.features_of(features, log, dim, width)
    players = {name: common.policy_of(name, kind, disjoint, kappa, seed) for name in policy}
    players |= {path.stem: load(path) for path in warm or []}
    own = None if warm and not policy else kind
    if frozen:
        if out is not None or metric or delay:
            raise typer.BadParameter("has no --out, --metric and --delay: nothing is learned.", param_hint="'--frozen'")
        found = {}
        for name, one in players.items():
            with counting(f"{paths[0].name}, {name}", lambda lines: limit and lines / (2 * limit)) as report:
                found[name] = estimate(one, log, features=own, limit=limit, progress=report)
        told = {"format": log.format, "policies": {name: asdict(one) for name, one in found.items()}}
        print_result(as_json, told, *(f"{name}: {one}" for name, one in found.items()))
        common.tell_skipped(log)
        return
    asked: dict[str, Any] = {"seed": seed, "delay": delay, "limit": limit}
    command = {
        "log": [[path.name, file_digest(path)] for path in paths],
        "features": described(kind),
        "kappa": kappa,
        "metrics": sorted(metric or []),
        "columns": [shown, reward, propensity, *visitor],
        **asked,
    }
    if out is not None:
        asked["checkpoint"] = claim_folder(out, command) / f".{key_of(list(players), command)}.checkpoint"
    with counting(paths[0].name, lambda lines: log.share if limit is None else lines / limit) as report:
        runs = run_replay(players, log, features=own, metrics=metric or (), progress=report, **asked)
    files = []
    if out is not None:
        for name, run in runs.items():
            files += [out / f"{name}.json", out / f"{name}.policy"]
            replace(run, settings={**run.settings, "command": command}).save(files[-2])
            players[name].save(files[-1])
    rows = {name: _of_replay(run) for name, run in runs.items()}
    partial = any(run.partial for run in runs.values())
    if as_json:
        print_result(as_json, {"format": log.format, "partial": partial, "policies": rows, "files": files})
    else:
        _table(rows, f"Next: driftls report {out}" if out else "Next: --out runs keeps runs and policies.")
    common.tell_skipped(log)
    if partial:
        typer.echo("driftls: interrupted; these are the results so far.", err=True)
        raise typer.Exit(INTERRUPTED)


def _of_replay(run: Run) -> dict[str, Any]:
    told = run.settings
    scale, lead = 1e4 if told["clicks"] else 1.0, told["estimates"][told["leading"]]
    return {
        **told,
        "lines": run.rounds,
        "ctr": scale * lead["value"],
        "interval": [scale * lead["low"], scale * lead["high"]],
        "last": {name: values[-1] for name, values in run.traces.items() if values},
        "us": run.microseconds,
    }


def _table(rows: dict[str, dict[str, Any]], following: str) -> None:
    """The best policy first; below, which estimate that is, and the others beside it."""
    first = next(iter(rows.values()))
    unit, scale = ("clicks in 10,000", 1e4) if first["clicks"] else ("reward a line", 1.0)
    notes = [
        f"Of {first['lines']:,} lines, those that counted were learned; the best policy first.",
        f"Estimate: {first['leading']}, {WORDS[first['leading']]}. Taken since {first['why']}.",
        f"Estimated: {first['estimated']}.",
        *(f"Warning: {text}." for text in dict.fromkeys(text for row in rows.values() for text in row["warnings"])),
    ]
    cells = []
    for name in sorted(rows, key=lambda name: (isnan(rows[name]["ctr"]), -rows[name]["ctr"])):
        row = rows[name]
        low, high = map(_number, row["interval"])
        told = [_number(row["ctr"]), f"{low} to {high}"] if not isnan(row["ctr"]) else ["no line counted", ""]
        cells.append([name, *told, f"{row['evaluations']:,}", f"{row['us']:.2f}"])
        if len(row["estimates"]) > 1 and row["evaluations"]:
            all_of = ", ".join(f"{kind} {_number(scale * one['value'])}" for kind, one in row["estimates"].items())
            support = f"largest weight {row['largest_weight']:.3g}, {row['without_support']:.1%} without support"
            notes.append(f"{name}: {all_of}; effective {row['effective']:,.0f} lines, {support}.")
    print_table(["policy", unit, "95% interval", "counted", "µs a line"], cells, *notes, following)


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.5f}"


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(exists=True, help="Files of runs, or folders of them.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page.")] = Path("report.html"),
    figures: common.Figures = None,
    as_json: AsJson = False,
) -> None:
    """Compare your own runs on one page.

    Runs are the JSON files that `driftls replay --out` and `Run.save` write. Those of one problem are drawn together:
    each trace against the rounds, the mean over seeds with its 95% interval.

    \b
    Examples:
      driftls report runs
      driftls report runs/*.json --out compared.html
      driftls report runs --figures figures --json
    """  # noqa: D301
    from driftls import report as stage
    from driftls.errors import InputError
    from driftls.run import Run

    for path in runs:
        if any((folder / "results.parquet").exists() for folder in (path, path.parent)):  # runs to tune knobs, too
            raise InputError(f"{path}: expected runs, got those of a study, which has a page of its own: report.html.")
    paths = [file for path in runs for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    if not paths:
        raise InputError(f"{runs[0]}: expected runs, but the folder holds no JSON file. Pass what `--out` wrote.")
    page = stage.of_runs([Run.load(path) for path in paths], stage.how(files=str(len(paths))))
    files = stage.write(page, out, figures=figures)
    if not as_json:
        common.print_boards(page)
    notes = {section.name: list(section.text) for section in page.sections}  # warnings above all
    print_result(as_json, {"runs": len(paths), "files": files, "notes": notes, **page.data()}, f"Next: open {out}")
