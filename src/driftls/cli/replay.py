"""`driftls replay`."""

from __future__ import annotations

import hashlib
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
    frozen: Annotated[bool, typer.Option("--frozen", help="Policies learn nothing: every line is used.")] = False,
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

    What is printed first is the estimate that is valid for this log: matched lines alone if it showed uniformly,
    weighted by 1/p if it has propensities; a warning says if none is. With --frozen, policies (of --warm, mostly) are
    asked how likely they are to show what was shown, on every line, beside a model of the rewards.

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
      driftls replay days --warm runs/flinucb-saga.policy --frozen
      driftls replay day.parquet --policy linucb-auto --features hashed --width 4096 --delay 500 --json
    """  # noqa: D301
    from msgspec.structs import replace

    from driftls.logs import read
    from driftls.replay import replay as run_replay
    from driftls.run import described

    log = read(paths, on_error=on_error.value)
    kind = _features(features, log.format, dim, articles, width)
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
        _print_json({"format": log.format, "partial": partial, "policies": rows, "files": files})
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
    from driftls.policies.registry import as_disjoint, load

    table, players = policies(), {}
    for name in dict.fromkeys(names):
        if name not in table:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(table)}.", param_hint="'--policy'")
        made = table[name](features.dim, kappa, seed)
        players[name] = as_disjoint(made, seed) if isinstance(features, UserFeatures) else made
        players[name].features = features  # saved with the policy
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
        "choose_us": 1e6 * run.seconds["choose"] / lines,
        "learn_us": 1e6 * run.seconds["learn"] / max(told["evaluations"], 1),
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
    "dr": "doubly robust: the model, corrected by every line's weighted error",
    "switch_dr": "doubly robust, but the model alone where weights are large",
}


def _table(rows: dict[str, Any]) -> None:
    first = next(iter(rows.values()))
    unit = "CTR x 1e4" if first["clicks"] else "reward"
    typer.echo(f"{'':<16}{unit:>10}{'95%':>18}{'counted':>10}{'lines':>11}{'choose us':>11}{'learn us':>10}")
    for name, row in rows.items():
        line = f"{name:<16}{_number(row['ctr'])}{_interval(row['interval']):>18}{row['evaluations']:>10,}"
        typer.echo(f"{line}{row['lines']:>11,}{row['choose_us']:>11.2f}{row['learn_us']:>10.2f}")
        if row["engine_reason"]:
            typer.echo(f"{'':<16}in Python: {row['engine_reason']}.")
    _explain(first["leading"], first["why"], first["warnings"])
    scale = 1e4 if first["clicks"] else 1.0
    for name, row in rows.items():
        rest = [f"{kind} {_number(scale * e['value']).strip()}" for kind, e in row["estimates"].items()]
        if len(rest) > 1:
            support = f"effective {row['effective']:,.0f} lines, largest weight {row['largest_weight']:.3g}"
            typer.echo(f"{name}: {', '.join(rest)}; {support}.")
    typer.echo("Choose us a line, learn us a line that counted.")


def _explain(leading: str, why: str, warnings: list[str]) -> None:
    typer.echo(f"\nEstimate: {leading}, {WORDS[leading]}. Taken since {why}.")
    for text in warnings:
        typer.echo(f"Warning: {text}.")


def _estimate(players: dict[str, Any], log: Any, features: Any, limit: int | None, label: str, as_json: bool) -> None:
    """What policies that learn nothing are worth."""
    from driftls.offpolicy import estimate

    found = {}
    for name, one in players.items():
        with counting(f"{label}, {name}", lambda lines: None if limit is None else lines / (2 * limit)) as report:
            found[name] = estimate(one, log, features=features, limit=limit, progress=report)
    if as_json:
        _print_json({"format": log.format, "policies": {name: e.to_dict() for name, e in found.items()}})
        return
    typer.echo(f"{'':<16}{'value':>10}{'95%':>22}{'effective':>11}{'largest weight':>16}{'without support':>17}")
    for name, e in found.items():
        line = f"{name:<16}{e.leading.value:>10.5f}{f'{e.leading.low:.5f} ... {e.leading.high:.5f}':>22}"
        typer.echo(f"{line}{e.effective:>11,.0f}{e.largest_weight:>16.3g}{e.without_support:>17.1%}")
    first = next(iter(found.values())).advice
    _explain(first.name, first.why, list(dict.fromkeys(text for e in found.values() for text in e.advice.warnings)))
    for name, e in found.items():
        typer.echo(f"{name}: {', '.join(f'{kind} {one.value:.5f}' for kind, one in e.estimates.items())}.")


def _print_json(found: dict[str, Any]) -> None:
    import msgspec

    typer.echo(msgspec.json.encode(found).decode())  # NaN is null, which JSON has


def _number(value: float) -> str:
    return f"{value:>10.1f}" if abs(value) >= 10 else f"{value:>10.4f}"


def _interval(ends: list[float]) -> str:
    return " ... ".join(_number(end).strip() for end in ends)
