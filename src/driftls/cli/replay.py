"""`driftls replay`."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from driftls.cli.common import AsJson, OnError, app, counting, policies, typer

INTERRUPTED = 130


class Engine(StrEnum):
    """How a log is replayed."""

    AUTO = "auto"
    COMPILED = "compiled"
    PYTHON = "python"


class Kind(StrEnum):
    """How a visitor and an article make an arm."""

    AUTO = "auto"
    DISJOINT = "disjoint"
    CROSSES = "crosses"
    SHARED = "shared"
    HASHED = "hashed"
    OUTER = "outer"


@app.command()
def replay(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Logs of one format, in the order of their time.")],
    policy: Annotated[list[str] | None, typer.Option(help="A policy's name; may be given again. See below.")] = None,
    warm: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="A saved policy; may be given again.")
    ] = None,
    features: Annotated[Kind, typer.Option(help="How arms are made; see below.")] = Kind.AUTO,
    dim: Annotated[int, typer.Option(min=1, help="Features of a visitor.")] = 136,
    articles: Annotated[int, typer.Option(min=1, help="Most articles, for crosses and shared.")] = 1000,
    width: Annotated[int, typer.Option(min=1, help="Length of an arm, for hashed.")] = 1024,
    kappa: Annotated[float | None, typer.Option(help="Weight of the width; if not given, each policy's own.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the policies.")] = 0,
    delay: Annotated[int, typer.Option(min=0, help="Lines after which a reward is learned.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Lines at most.")] = None,
    metric: Annotated[list[str] | None, typer.Option(help="regret, tracking_error, width_error.")] = None,
    engine: Annotated[Engine, typer.Option(help="The compiled loop, or the one that specifies it.")] = Engine.AUTO,
    on_error: Annotated[OnError, typer.Option(help="At a broken line: stop, or skip and count it.")] = OnError.RAISE,
    out: Annotated[
        Path | None,
        typer.Option(file_okay=False, help="Folder for one run (JSON) and one policy a name; goes on if interrupted."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask policies on every line of a log; where one chooses what was shown, the line counts and is learned.

    The paper's, with its settings: linucb, flinucb-gd, flinucb-svrg, flinucb-sag. Ours: flinucb-saga, flinucb-cd,
    linucb-auto. To compare with: lints, ensemble-ts, greedy, epsilon-greedy, random.

    Features: disjoint (one model an article, the default), crosses (one block an article in one sparse vector),
    shared (the same behind features that all articles share), hashed (crosses in a fixed width), outer (products of
    user and article features, the default for R6A). All policies read the log once, together.

    \b
    Examples:
      driftls replay day.gz --policy linucb --policy flinucb-saga --kappa 0.2 --seed 7 --out runs
      driftls replay day.parquet --metric regret --policy linucb-auto --policy random
      driftls replay days --warm runs/flinucb-saga.policy --limit 100000
      driftls replay day.parquet --policy linucb-auto --features hashed --width 4096 --delay 500 --json
    """  # noqa: D301
    from driftls.logs import read
    from driftls.replay import replay as run_replay

    log = read(paths, on_error=on_error.value)
    kind = _features(features, log.format, dim, articles, width)
    players = _players(policy or [], warm or [], kind, kappa, seed)
    checkpoint = None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        checkpoint = out / ".checkpoint"
    with counting(paths[0].name, lambda lines: log.share if limit is None else lines / limit) as report:
        runs = run_replay(
            players,
            log,
            features=None if warm and not policy else kind,
            metrics=metric or (),
            engine=engine.value,
            delay=delay,
            limit=limit,
            seed=seed,
            checkpoint=checkpoint,
            progress=report,
        )
    files = []
    if out is not None:
        for name, run in runs.items():
            run.save(out / f"{name}.json")
            players[name].save(out / f"{name}.policy")
            files += [str(out / f"{name}.json"), str(out / f"{name}.policy")]
    rows = {name: _summary(run) for name, run in runs.items()}
    partial = any(run.partial for run in runs.values())
    if as_json:
        typer.echo(json.dumps({"format": log.format, "partial": partial, "policies": rows, "files": files}))
    else:
        _table(rows)
    for example in log.counts.examples:
        typer.echo(f"Skipped: {example}", err=True)
    if partial:
        typer.echo("driftls: interrupted; these are the results so far.", err=True)
        raise typer.Exit(INTERRUPTED)


def _features(kind: Kind, form: str, dim: int, articles: int, width: int) -> Any:
    from driftls.features import Crosses, Hashed, OuterProduct, UserFeatures

    if kind is Kind.OUTER or (kind is Kind.AUTO and form == "R6A"):
        return OuterProduct(6, 6)
    if kind is Kind.HASHED:
        return Hashed(width, user_dim=dim)
    if kind in (Kind.CROSSES, Kind.SHARED):
        return Crosses(dim, articles=articles, shared=kind is Kind.SHARED)
    return UserFeatures(dim)


def _players(names: list[str], warm: list[Path], features: Any, kappa: float | None, seed: int) -> dict[str, Any]:
    from driftls.features import UserFeatures
    from driftls.policies.named import load, one_model_an_article

    table, players = policies(), {}
    for name in dict.fromkeys(names):
        if name not in table:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(table)}.", param_hint="'--policy'")
        made = table[name](features.dim, kappa, seed)
        players[name] = one_model_an_article(made, seed) if isinstance(features, UserFeatures) else made
    for path in warm:
        players[path.stem] = load(path)
    if not players:
        raise typer.BadParameter("name a policy, or pass a saved one with --warm.", param_hint="'--policy'")
    return players


def _summary(run: Any) -> dict[str, Any]:
    found, lines = run.settings["estimates"], max(run.rounds, 1)
    return {
        "lines": run.rounds,
        "evaluations": run.settings["evaluations"],
        "ctr": 1e4 * found["replay"]["value"],
        "interval": [1e4 * found["replay"]["low"], 1e4 * found["replay"]["high"]],
        "estimates": found,
        "last": {name: values[-1] for name, values in run.traces.items() if values},
        "choose_us": 1e6 * run.seconds["choose"] / lines,
        "learn_us": 1e6 * run.seconds["learn"] / max(run.settings["evaluations"], 1),
        "engine": run.settings["engine"],
        "engine_reason": run.settings["engine_reason"],
    }


def _table(rows: dict[str, Any]) -> None:
    typer.echo(f"{'':<16}{'CTR x 1e4':>10}{'95%':>18}{'counted':>10}{'lines':>11}{'choose us':>11}{'learn us':>10}")
    for name, row in rows.items():
        low, high = row["interval"]
        line = f"{name:<16}{row['ctr']:>10.1f}{f'{low:.1f} ... {high:.1f}':>18}{row['evaluations']:>10,}"
        typer.echo(f"{line}{row['lines']:>11,}{row['choose_us']:>11.2f}{row['learn_us']:>10.2f}")
        if row["engine_reason"]:
            typer.echo(f"{'':<16}in Python: {row['engine_reason']}.")
    typer.echo("\nClicks over lines that counted; choose us a line, learn us a line that counted.")
