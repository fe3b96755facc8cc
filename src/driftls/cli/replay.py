"""`driftls replay`."""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from driftls.cli import common
from driftls.cli.common import AsJson, OnError, app, counting, print_json, print_table, typer

INTERRUPTED = 130


class Engine(StrEnum):
    """How a log is replayed."""

    AUTO = "auto"
    COMPILED = "compiled"
    PYTHON = "python"


@app.command()
def replay(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Logs of one format, in the order of their time.")],
    policy: Annotated[list[str] | None, typer.Option(help="A policy's name; may be given again. See below.")] = None,
    warm: Annotated[
        list[Path] | None, typer.Option(exists=True, dir_okay=False, help="A saved policy; may be given again.")
    ] = None,
    frozen: Annotated[bool, typer.Option("--frozen", help="Policies learn nothing: every line is used.")] = False,
    features: common.Features = common.FeatureKind.AUTO,
    dim: common.Dim = 136,
    articles: common.Articles = 1000,
    width: common.Width = 1024,
    kappa: common.Kappa = None,
    seed: common.Seed = 0,
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

    What is printed first is the estimate that is valid for this log: matched lines alone if it showed uniformly,
    weighted by 1/p if it has propensities; a warning says if none is. With --frozen, policies (of --warm, mostly) are
    asked how likely they are to show what was shown, on every line, beside a model of the rewards.

    The paper's, with its settings: linucb, flinucb-gd, flinucb-svrg, flinucb-sag. Ours: flinucb-saga, linucb-exact,
    linucb-auto. To compare with: lints, greedy, epsilon-greedy, random.

    Features: disjoint (one model an article, the default), crosses (one block an article in one sparse vector),
    shared (the same behind features that all articles share), hashed (crosses in a fixed width), outer (products of
    user and article features, the default for R6A). All policies read the log once, together.

    \b
    Examples:
      driftls replay day.gz --policy linucb --policy flinucb-saga --kappa 0.2 --seed 7 --out runs
      driftls replay day.parquet --metric regret --policy linucb-auto --policy random
      driftls replay days --warm runs/flinucb-saga.policy --limit 100000
      driftls replay days --warm runs/flinucb-saga.policy --frozen
      driftls replay day.parquet --policy linucb-auto --features hashed --width 4096 --delay 500 --json
    """  # noqa: D301
    from msgspec.structs import replace

    from driftls.log_replay import replay as run_replay
    from driftls.logs import read
    from driftls.run import described

    log = read(paths, on_error=on_error.value)
    kind = common.features_of(features, log.format, dim, articles, width)
    players = _players(policy or [], warm or [], kind, kappa, seed)
    own = None if warm and not policy else kind
    if frozen:
        if out is not None or metric or delay:
            raise typer.BadParameter("has no --out, --metric and --delay: nothing is learned.", param_hint="'--frozen'")
        _estimate(players, log, own, limit, paths[0].name, as_json)
        return
    settings = {"features": described(kind), "kappa": kappa, "seed": seed, "delay": delay, "limit": limit}
    command = {"log": _files(paths), **settings, "metrics": sorted(metric or [])}
    checkpoint = None if out is None else _folder(out, players, command)
    with counting(paths[0].name, lambda lines: log.share if limit is None else lines / limit) as report:
        runs = run_replay(
            players,
            log,
            features=own,
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
            replace(run, settings={**run.settings, "command": command}).save(out / f"{name}.json")
            players[name].save(out / f"{name}.policy")
            files += [str(out / f"{name}.json"), str(out / f"{name}.policy")]
    rows = {name: _summary(run) for name, run in runs.items()}
    partial = any(run.partial for run in runs.values())
    if as_json:
        print_json({"format": log.format, "partial": partial, "policies": rows, "files": files})
    else:
        _table(rows)
    for example in log.counts.examples:
        typer.echo(f"Skipped: {example}", err=True)
    if partial:
        typer.echo("driftls: interrupted; these are the results so far.", err=True)
        raise typer.Exit(INTERRUPTED)


def _players(names: list[str], warm: list[Path], features: Any, kappa: float | None, seed: int) -> dict[str, Any]:
    from driftls.features import UserOnly
    from driftls.policies.registry import as_disjoint, load

    table, players = common.check_policies(names), {}
    for name in dict.fromkeys(names):
        made: Any = table[name](features.dim, kappa, seed)
        made = as_disjoint(made, seed) if isinstance(features, UserOnly) else made
        made.features, players[name] = features, made  # saved with the policy
    for path in warm:
        players[path.stem] = load(path)
    if not players:
        raise typer.BadParameter("name a policy, or pass a saved one with --warm.", param_hint="'--policy'")
    return players


def _files(paths: list[Path]) -> list[list[Any]]:
    """The names and sizes of all files of a log."""
    files = [
        file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]) if file.is_file()
    ]
    return [[file.name, file.stat().st_size] for file in files]


def _folder(out: Path, players: dict[str, Any], command: dict[str, Any]) -> Path:
    """Make the folder, look whether its runs are of this command, and give the checkpoint's name, which is its own."""
    from driftls.errors import SettingsError
    from driftls.run import Run

    out.mkdir(parents=True, exist_ok=True)
    for name in players:
        file = out / f"{name}.json"
        before = Run.load(file).settings.get("command") if file.exists() else command
        if before != command:
            other = [key for key in command if (before or {}).get(key) != command[key]]
            raise SettingsError(
                f"{file}: the run of another replay ({', '.join(other)} differ). Choose another folder, or remove it."
            )
    text = json.dumps([list(players), command])
    return out / f".{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}.checkpoint"


def _summary(run: Any) -> dict[str, Any]:
    told, lines = run.settings, max(run.rounds, 1)
    scale, lead = 1e4 if told["clicks"] else 1.0, told["estimates"][told["leading"]]
    return {
        "lines": run.rounds,
        "clicks": told["clicks"],
        "ctr": scale * lead["value"],
        "interval": [scale * lead["low"], scale * lead["high"]],
        "last": {name: values[-1] for name, values in run.traces.items() if values},
        "us": 1e6 * sum(run.seconds.get(part, 0.0) for part in ("play", "choose", "learn")) / lines,
        **{name: told[name] for name in TOLD},
    }


TOLD = (
    *("evaluations", "leading", "why", "warnings", "estimates", "effective", "largest_weight", "without_support"),
    *("engine", "engine_reason"),
)
WORDS = {
    "replay": "mean reward of the lines where the policy chose what was shown",
    "snips": "self-normalised inverse propensity: such lines, weighted by 1/p",
    "dm": "direct method: what a model of the rewards gives the policy",
    "shrunk_dr": "doubly robust: a model of rewards, corrected as far as its weighted errors stand out of noise",
}


def _table(rows: dict[str, Any]) -> None:
    first = next(iter(rows.values()))
    unit, scale = ("CTR x 1e4", 1e4) if first["clicks"] else ("reward", 1.0)
    head = ["policy", unit, "95%", "counted", "lines", "us a line"]
    table = [
        [
            name,
            _number(row["ctr"]),
            _interval(row["interval"]),
            f"{row['evaluations']:,}",
            f"{row['lines']:,}",
            f"{row['us']:.2f}",
        ]
        for name, row in rows.items()
    ]
    notes = _explained(first["leading"], first["why"], first["warnings"])
    for name, row in rows.items():
        if len(row["estimates"]) > 1:
            all_of = [f"{kind} {_number(scale * e['value'])}" for kind, e in row["estimates"].items()]
            support = f"effective {row['effective']:,.0f} lines, largest weight {row['largest_weight']:.3g}"
            notes.append(f"{name}: {', '.join(all_of)}; {support}.")
        if row["engine_reason"]:
            notes.append(f"{name}: in Python, since {row['engine_reason']}.")
    print_table(head, table, notes=notes)


def _explained(leading: str, why: str, warnings: list[str]) -> list[str]:
    told = f"Estimate: {leading}, {WORDS[leading]}. Taken since {why}."
    return [told, *(f"Warning: {text}." for text in warnings)]


def _estimate(players: dict[str, Any], log: Any, features: Any, limit: int | None, label: str, as_json: bool) -> None:
    """What policies that learn nothing are worth."""
    from driftls.offpolicy import estimate

    found = {}
    for name, one in players.items():
        with counting(f"{label}, {name}", lambda lines: None if limit is None else lines / (2 * limit)) as report:
            found[name] = estimate(one, log, features=features, limit=limit, progress=report)
    if as_json:
        print_json({"format": log.format, "policies": {name: e.to_dict() for name, e in found.items()}})
        return
    head = ["policy", "value", "95%", "effective lines", "largest weight", "without support"]
    table, warnings = [], list[str]()
    for name, e in found.items():
        support = f"{e.effective:,.0f}", f"{e.largest_weight:.3g}", f"{e.without_support:.1%}"
        table.append([name, f"{e.leading.value:.5f}", f"{e.leading.low:.5f} ... {e.leading.high:.5f}", *support])
        warnings += e.advice.warnings
    first = next(iter(found.values())).advice
    notes = _explained(first.name, first.why, list(dict.fromkeys(warnings)))
    notes += [
        f"{name}: {', '.join(f'{kind} {one.value:.5f}' for kind, one in e.estimates.items())}."
        for name, e in found.items()
    ]
    print_table(head, table, notes=notes)


def _number(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.4f}"


def _interval(ends: list[float]) -> str:
    return " ... ".join(map(_number, ends))
