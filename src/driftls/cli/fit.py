"""`driftls fit`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, policies, progress, typer
from driftls.cli.replay import Kind, _features


@app.command()
def fit(
    days: Annotated[Path, typer.Argument(exists=True, help="A Parquet log, or a folder partitioned by day.")],
    policy: Annotated[str, typer.Option(help="linucb, flinucb-cd, flinucb-saga, greedy or epsilon-greedy.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file of the policy.")],
    features: Annotated[Kind, typer.Option(help="How arms are made, as in replay.")] = Kind.AUTO,
    dim: Annotated[int, typer.Option(min=1, help="Features of a visitor.")] = 136,
    articles: Annotated[int, typer.Option(min=1, help="Most articles, for crosses and shared.")] = 1000,
    width: Annotated[int, typer.Option(min=1, help="Length of an arm, for hashed.")] = 1024,
    kappa: Annotated[float | None, typer.Option(help="Weight of the width; if not given, the policy's own.")] = None,
    kept: Annotated[int, typer.Option(min=1, help="Rows that a model of flinucb-saga holds.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the sample and of the policy's chance.")] = 0,
    workers: Annotated[int, typer.Option(help="Processes on this machine; -1 is one a core.")] = -1,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler to use instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a policy warm, from a log as partitioned Parquet.

    Each file is a shard. Up to 5,000 features (and for linucb and flinucb-cd always) sums over the shards are exact;
    beyond, flinucb-saga averages what the shards learn, or with --workers 1 learns them as one stream: approximations.
    By default every article has a model of its own. `driftls replay --warm` goes on with what is written here.

    \b
    Examples:
      driftls fit days --policy flinucb-saga --out warm.policy
      driftls fit days --policy linucb --features outer --out warm.policy
      driftls fit days --policy flinucb-saga --features hashed --width 262144 --out warm.policy
      driftls fit days --policy flinucb-cd --out warm.policy --cluster tcp://127.0.0.1:8786
    """  # noqa: D301
    from driftls import fit as stage
    from driftls import logs
    from driftls.features import UserFeatures
    from driftls.history import Reservoir
    from driftls.policies.named import one_model_an_article

    table = policies()
    if policy not in table:
        raise typer.BadParameter(f"{policy!r} is not one of {', '.join(table)}.", param_hint="'--policy'")
    where: dict[str, Any] = {"workers": workers, "cluster": cluster}
    log = logs.ParquetLog([str(days)])
    paths = [str(Path(path).resolve()) for path in log.paths]
    begin = perf_counter()
    made = stage.with_articles(_features(features, log.format, dim, articles, width), paths, **where)
    more = {"history": Reservoir(kept)} if policy == "flinucb-saga" else {}
    start = table[policy](made.dim, kappa, seed, **more)
    start = one_model_an_article(start, seed) if isinstance(made, UserFeatures) else start
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
