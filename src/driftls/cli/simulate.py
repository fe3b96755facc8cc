"""`driftls simulate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from driftls.cli import common
from driftls.cli.common import app, typer

if TYPE_CHECKING:
    from driftls.run import Run


@app.command()
def simulate(
    policy: Annotated[str, typer.Option(metavar="A,B,...", help="Names of policies, as above.")],
    kind: Annotated[
        Literal["fixed-arms", "churning-pool", "fresh-contexts"],
        typer.Option("--bandit", help="Where the arms come from."),
    ] = "fixed-arms",
    dim: Annotated[int, typer.Option(min=1, max=10**7, metavar="N", help="Number of features.")] = 50,
    arms: Annotated[int, typer.Option(min=1, max=10**6, metavar="N", help="Arms on offer in a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, max=10**9, metavar="N", help="Rounds of a run.")] = 10_000,
    seeds: Annotated[
        int, typer.Option(min=1, max=10**6, metavar="N", help="Runs of each policy, on as many bandits.")
    ] = 10,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed; the others follow.")] = 0,
    sigma: Annotated[float, typer.Option(metavar="NUMBER", help="Standard deviation of the noise.")] = 0.3,
    reward: Annotated[Literal["gaussian", "bounded", "bernoulli"], typer.Option(help="Kind of noise.")] = "gaussian",
    nnz: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Non-zeros of an arm; fresh-contexts only.")
    ] = None,
    kappa: common.Kappa = None,
    out: Annotated[Path | None, typer.Option(file_okay=False, help="Folder for one JSON file a run.")] = None,
    as_json: common.AsJson = False,
) -> None:
    """Play simulated bandits, and compare the regret of policies.

    \b
    The paper's policies  linucb, flinucb-gd, flinucb-svrg, flinucb-sag
    Ours                  flinucb-saga, linucb-exact, linucb-auto
    To compare with       lints, greedy, epsilon-greedy, random

    Without --kappa the paper's take 1 and the others estimate it. All policies of a seed meet the same arms and the
    same noise. A folder with runs of other settings is refused.

    \b
    Examples:
      driftls simulate --policy linucb,flinucb-gd,flinucb-saga --dim 50 --arms 100 --rounds 10000 --seeds 20
      driftls simulate --bandit fresh-contexts --dim 1000 --nnz 8 --policy linucb-auto,random --seeds 5 --json
      driftls simulate --bandit churning-pool --policy linucb-exact --kappa 0.6 --out runs
    """  # noqa: D301
    from driftls.errors import SettingsError
    from driftls.parallel import claim_folder
    from driftls.report import plus_minus
    from driftls.simulation import simulate as play
    from driftls.study.plan import Bandit

    names = list(dict.fromkeys(name.strip() for name in policy.split(",")))
    table = common.check_policies(names)
    problem: dict[str, Any] = {"dim": dim, "arms": arms, "rounds": rounds, "nnz": nnz, "sigma": sigma, "reward": reward}
    try:
        bandits = Bandit(name=kind, kind=kind, **problem)
    except ValueError as error:
        raise SettingsError(f"{error}.".replace("..", ".")) from None
    for name in names:  # what cannot be played is told before the first run
        play(table[name](dim, kappa, seed), bandits.environment(seed), 2)  # and compiled: no run's time includes that
    asked = {"bandit": kind, **problem, "kappa": kappa}
    if out is not None:
        claim_folder(out, asked)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    files = []
    with common.telling() as tell:
        for k, (name, number) in enumerate((name, seed + i) for name in names for i in range(seeds)):
            run = play(
                table[name](dim, kappa, number),
                bandits.environment(number),
                rounds,
                name=name,
                seed=number,
                tracking=name != "random",
                progress=lambda done: tell(k * rounds + done, len(names) * seeds * rounds, name, f"seed {number}"),  # noqa: B023
            )
            runs[name].append(run)
            if out is not None:
                files.append(out / f"{name}-{number}.json")
                run.save(files[-1])
    rows = {name: _summary(of_policy) for name, of_policy in runs.items()}
    if as_json:
        common.print_json({**asked, "seeds": [seed, seed + seeds - 1], "policies": rows, "files": files})
        return
    of = "1 seed, so there is no interval" if seeds == 1 else f"{seeds} seeds with 95% intervals"
    keep = "Next: --out runs keeps the runs, and driftls report runs draws them."
    notes = [
        f"Means over {of}, after {rounds:,} rounds; the least regret first.",
        "Tracking error is the distance of theta from the exact solution, relative to that of theta = 0.",
        f"Next: driftls report {out}" if out else keep,
    ]
    cells = []
    for name, row in sorted(rows.items(), key=lambda item: item[1]["regret"]):
        tracking = "" if row["tracking_error"] is None else f"{row['tracking_error']:.4f}"
        regret = plus_minus(row["regret"], row["interval"] or float("inf"))
        cells.append([name, regret, f"{row['reward']:,.1f}", tracking, f"{row['us']:.2f}"])
    common.print_table(["policy", "regret", "reward", "tracking error", "µs a round"], cells, notes=notes)


def _summary(runs: list[Run]) -> dict[str, Any]:
    """Means over the runs of one policy; no interval for one run."""
    from driftls.run import interval

    means = {name: interval([run.last(name) for run in runs]) for name in runs[0].traces}
    return {
        "regret": means["regret"][0],
        "interval": means["regret"][1] if len(runs) > 1 else None,
        "reward": means["reward"][0],
        "tracking_error": means.get("relative_tracking_error", [None])[0],
        "us": sum(run.microseconds for run in runs) / len(runs),
    }
