"""`driftls fit`."""

from __future__ import annotations

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, policies, progress, typer


class Kind(StrEnum):
    """How a visitor and an article make one arm."""

    CROSSES = "crosses"
    HASHED = "hashed"
    OUTER = "outer"
    USER = "user"


@app.command()
def fit(
    days: Annotated[Path, typer.Argument(exists=True, help="A Parquet log, or a folder partitioned by day.")],
    policy: Annotated[str, typer.Option(help="linucb, flinucb-cd, flinucb-saga, greedy or epsilon-greedy.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file of the policy.")],
    features: Annotated[Kind, typer.Option(help="How a visitor and an article make one arm.")] = Kind.CROSSES,
    user_dim: Annotated[int, typer.Option(min=1, help="Features of a visitor.")] = 136,
    articles: Annotated[int, typer.Option(min=1, help="Room for articles; of crosses.")] = 200,
    width: Annotated[int, typer.Option(min=1, help="Length of an arm; of hashed.")] = 2**18,
    arm_dim: Annotated[int, typer.Option(min=1, help="Features of an article; of outer.")] = 6,
    kappa: Annotated[float | None, typer.Option(help="Weight of the width; if not given, the policy's own.")] = None,
    kept: Annotated[int, typer.Option(min=1, help="Rows that flinucb-saga holds, a sample of all.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample and of the policy's chance.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes on this machine; -1 is one a core.")] = -1,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler to use instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a policy warm, from a log as partitioned Parquet.

    Each file is a shard. Up to 5,000 features (and for linucb and flinucb-cd always) sums over the shards are exact;
    beyond, flinucb-saga averages what the shards learn, or with --workers 1 learns them as one stream: approximations.

    \b
    Examples:
      driftls fit days --policy linucb --features outer --user-dim 6 --arm-dim 6 --out warm.policy
      driftls fit days --policy flinucb-saga --features hashed --width 262144 --out warm.policy
      driftls fit days --policy flinucb-cd --articles 30 --out warm.policy --cluster tcp://127.0.0.1:8786
    """  # noqa: D301
    from driftls import fit as stage
    from driftls import logs
    from driftls.history import Reservoir

    table = policies()
    if policy not in table:
        raise typer.BadParameter(f"{policy!r} is not one of {', '.join(table)}.", param_hint="'--policy'")
    where: dict[str, Any] = {"workers": workers, "cluster": cluster}
    paths = [str(Path(path).resolve()) for path in logs.ParquetLog([str(days)]).paths]
    begin = perf_counter()
    made = stage.with_articles(_features(features, user_dim, articles, width, arm_dim), paths, **where)
    more = {"history": Reservoir(kept)} if policy == "flinucb-saga" else {}
    start = table[policy](made.dim, kappa, seed, **more)
    read = partial(stage.shown_rows, features=made)
    with progress() as bar:
        task = bar.add_task(policy, total=len(paths), note="")
        found = stage.fit(start, paths, read, seed=seed, progress=lambda _: bar.advance(task), **where)
    found.policy.features = made
    found.policy.save(out)
    seconds = perf_counter() - begin
    if as_json:
        result = {"policy": policy, "rows": found.rows, "shards": len(paths), "dim": made.dim, "method": found.method}
        typer.echo(json.dumps({**result, "seconds": round(seconds, 3), "file": str(out)}))
        return
    exact = "exact sums" if found.method == "sums" else f"approximate: {found.method} by SAGA"
    typer.echo(f"{policy}, {made.dim} features: {found.rows} rows of {len(paths)} shards in {seconds:.1f} s, {exact}.")
    typer.echo(f"The policy, which knows its features, is {out}")


def _features(kind: Kind, user_dim: int, articles: int, width: int, arm_dim: int) -> Any:
    from driftls.features import Crosses, Hashed, OuterProduct, UserFeatures

    if kind is Kind.OUTER:
        return OuterProduct(user_dim, arm_dim)
    if kind is Kind.USER:
        return UserFeatures(user_dim)
    return Crosses(user_dim, articles=articles) if kind is Kind.CROSSES else Hashed(width, user_dim=user_dim)
