"""`driftls replay`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from driftls.cli import common
from driftls.cli.common import AsJson, OnError, app, counting, print_json, print_table, typer

if TYPE_CHECKING:
    from driftls.features import FeatureMap
    from driftls.policies import Policy
    from driftls.run import Run

INTERRUPTED = 130
TOLD = (
    *("evaluations", "leading", "why", "warnings", "estimates", "effective", "largest_weight", "without_support"),
    *("engine", "engine_reason", "estimated"),
)
WORDS = {
    "replay": "mean reward of the lines where the policy chose what was shown",
    "snips": "self-normalised inverse propensity: such lines, weighted by 1/p",
    "dm": "direct method: what a model of the rewards gives the policy",
    "shrunk_dr": "doubly robust: a model of rewards, corrected as far as its weighted errors stand out of noise",
}


@app.command()
def replay(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Logs of one format, in the order of their time.")],
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A policy, as above; may be given again.")
    ] = None,
    warm: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, metavar="FILE", help="A saved policy; may be given again."),
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Policies learn nothing: every line is used.")] = False,
    shown: common.Shown = None,
    reward: common.Reward = None,
    propensity: common.Propensity = None,
    features: common.FeatureKind = "auto",
    dim: common.Dim = None,
    articles: common.Articles = 1000,
    width: common.Width = 1024,
    kappa: common.Kappa = None,
    seed: common.Seed = 0,
    delay: Annotated[int, typer.Option(min=0, metavar="N", help="Lines after which a reward is learned.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Lines at most.")] = None,
    metric: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Trace too: regret, tracking_error.")] = None,
    engine: Annotated[
        Literal["auto", "compiled", "python"], typer.Option(help="The compiled loop, or the one that specifies it.")
    ] = "auto",
    on_error: OnError = "raise",
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

    \b
    The paper's policies  linucb, flinucb-gd, flinucb-svrg, flinucb-sag
    Ours                  flinucb-saga, linucb-exact, linucb-auto
    To compare with       lints, greedy, epsilon-greedy, random

    A table (CSV, or a JSON object a line) has a row for each decision: --shown, --reward and --propensity name its columns,
    and all others are the visitor's.

    Features: disjoint (one model an article, the default), crosses (one block an article in one sparse vector),
    shared (the same behind features that all articles share), outer (products of user and article features, the
    default for R6A), hashed (visitor, article, its id and features, and all their crosses, as `driftls.Features` hashes
    them). All policies read the log once, together.

    \b
    Examples:
      driftls replay day.gz --policy linucb --policy flinucb-saga --kappa 0.2 --seed 7 --out runs
      driftls replay day.parquet --metric regret --policy linucb-auto --policy random
      driftls replay days --warm runs/flinucb-saga.policy --limit 100000
      driftls replay days --warm runs/flinucb-saga.policy --frozen
      driftls replay events.csv --shown offer --reward click --propensity likely --policy linucb-auto
      driftls replay day.parquet --policy linucb-auto --features hashed --width 4096 --delay 500 --json
    """  # noqa: D301
    from msgspec.structs import replace

    from driftls.log_replay import replay as run_replay
    from driftls.parallel import claim_folder, key_of
    from driftls.run import described

    log = common.opened(paths, on_error, shown, reward, propensity)
    kind = common.features_of(features, log, dim, articles, width)
    disjoint = features == "disjoint" or (features == "auto" and log.format != "R6A")
    players = _players(policy or [], warm or [], kind, kappa, seed, disjoint)
    own = None if warm and not policy else kind
    if frozen:
        if out is not None or metric or delay:
            raise typer.BadParameter("has no --out, --metric and --delay: nothing is learned.", param_hint="'--frozen'")
        _estimate(players, log, own, limit, paths[0].name, as_json)
        return
    asked: dict[str, Any] = {"seed": seed, "delay": delay, "limit": limit}
    command = {"log": _files(paths), "features": described(kind), "kappa": kappa, **asked}
    command |= {"columns": [shown, reward, propensity]} if log.format == "table" else {}
    command["metrics"] = sorted(metric or [])
    checkpoint = None
    if out is not None:
        checkpoint = claim_folder(out, command) / f".{key_of(list(players), command)}.checkpoint"
    with counting(paths[0].name, lambda lines: log.share if limit is None else lines / limit) as report:
        asked |= {"checkpoint": checkpoint, "progress": report}
        runs = run_replay(players, log, features=own, metrics=metric or (), engine=engine, **asked)
    files = []
    if out is not None:
        for name, run in runs.items():
            files += [out / f"{name}.json", out / f"{name}.policy"]
            replace(run, settings={**run.settings, "command": command}).save(files[-2])
            players[name].save(files[-1])
    rows = {name: _summary(run) for name, run in runs.items()}
    partial = any(run.partial for run in runs.values())
    if as_json:
        print_json({"format": log.format, "partial": partial, "policies": rows, "files": files})
    else:
        lines = next(iter(rows.values()))["lines"]
        counted = f"Of {lines:,} lines, those that counted were learned; the best policy first."
        _table(rows, counted, f"Next: driftls report {out}" if out else "Next: --out runs keeps runs and policies.")
    for example in log.counts.examples:
        typer.echo(f"Skipped: {example}", err=True)
    if partial:
        typer.echo("driftls: interrupted; these are the results so far.", err=True)
        raise typer.Exit(INTERRUPTED)


def _players(
    names: list[str], warm: list[Path], features: FeatureMap, kappa: float | None, seed: int, disjoint: bool
) -> dict[str, Policy]:
    from driftls.policies.registry import as_disjoint, load

    table, players = common.check_policies(names), {}
    for name in dict.fromkeys(names):
        made: Any = table[name](features.dim, kappa, seed)
        made = as_disjoint(made, seed) if disjoint else made
        made.features, players[name] = features, made  # saved with the policy
    players |= {path.stem: load(path) for path in warm}
    if not players:
        raise typer.BadParameter("name a policy, or pass a saved one with --warm.", param_hint="'--policy'")
    return players


def _files(paths: list[Path]) -> list[list[Any]]:
    """The names and sizes of all files of a log."""
    found = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    return [[file.name, file.stat().st_size] for file in found if file.is_file()]


def _summary(run: Run) -> dict[str, Any]:
    told = run.settings
    scale, lead = 1e4 if told["clicks"] else 1.0, told["estimates"][told["leading"]]
    return {
        "lines": run.rounds,
        "clicks": told["clicks"],
        "ctr": scale * lead["value"],
        "interval": [scale * lead["low"], scale * lead["high"]],
        "last": {name: values[-1] for name, values in run.traces.items() if values},
        "us": run.microseconds,
        **{name: told[name] for name in TOLD},
    }


def _table(rows: dict[str, dict[str, Any]], *notes: str) -> None:
    """The best policy first; below, which estimate that is, and the others beside it."""
    first = next(iter(rows.values()))
    unit, scale = ("clicks in 10,000", 1e4) if first.get("clicks") else ("reward a line", 1.0)
    told = [f"Estimate: {first['leading']}, {WORDS[first['leading']]}. Taken since {first['why']}."]
    told += [f"Estimated: {first['estimated']}."]
    told += [f"Warning: {text}." for text in dict.fromkeys(text for row in rows.values() for text in row["warnings"])]
    leads = {name: row["estimates"][row["leading"]] for name, row in rows.items()}
    table, head = [], ["counted", "µs a line"] if "us" in first else ["effective lines"]
    ranks = {name: -lead["value"] if lead["value"] == lead["value"] else float("inf") for name, lead in leads.items()}
    for name in sorted(rows, key=ranks.__getitem__):
        row, (value, low, high) = rows[name], (_number(scale * part) for part in leads[name].values())
        counts = [f"{row['evaluations']:,}", f"{row['us']:.2f}"] if "us" in row else [f"{row['effective']:,.0f}"]
        table.append([name, value, f"{low} to {high}", *counts])
        if len(row["estimates"]) > 1:
            all_of = ", ".join(f"{kind} {_number(scale * e['value'])}" for kind, e in row["estimates"].items())
            support = f"largest weight {row['largest_weight']:.3g}, {row['without_support']:.1%} without support"
            told.append(f"{name}: {all_of}; effective {row['effective']:,.0f} lines, {support}.")
        if row.get("engine_reason"):
            told.append(f"{name}: in Python, since {row['engine_reason']}.")
    print_table(["policy", unit, "95% interval", *head], table, notes=[*notes[:-1], *told, *notes[-1:]])


def _estimate(
    players: dict[str, Policy], log: Any, features: FeatureMap | None, limit: int | None, label: str, as_json: bool
) -> None:
    """What policies that learn nothing are worth."""
    from driftls.offpolicy import estimate

    found = {}
    for name, one in players.items():
        with counting(f"{label}, {name}", lambda lines: None if limit is None else lines / (2 * limit)) as report:
            found[name] = estimate(one, log, features=features, limit=limit, progress=report).to_dict()
    if as_json:
        print_json({"format": log.format, "policies": found})
    else:
        _table({name: {**e, **e["advice"], "leading": e["advice"]["name"]} for name, e in found.items()})


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.5f}"
