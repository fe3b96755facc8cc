"""`driftls simulate`."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, policies, progress, typer


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

    table = policies()
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
    with progress() as bar:
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


def _advance(bar: Any, task: Any, before: int, rounds: int) -> None:
    bar.update(task, completed=before + rounds)


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
