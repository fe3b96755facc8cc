"""`driftls fit`."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from driftls.cli import common
from driftls.cli.common import app, typer


@app.command()
def fit(
    days: Annotated[Path, typer.Argument(exists=True, help="A Parquet log, or a folder partitioned by day.")],
    policy: Annotated[str, typer.Option(metavar="NAME", help="linucb or linucb-exact.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file of the policy.")],
    features: common.FeatureKind = "auto",
    dim: common.Dim = None,
    articles: common.Articles = 1000,
    width: common.Width = 1024,
    kappa: common.Kappa = None,
    seed: common.Seed = 0,
    workers: common.Workers = -1,
    cluster: common.Cluster = None,
    as_json: common.AsJson = False,
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
    from driftls.features import UserOnly
    from driftls.policies.registry import as_disjoint

    table = common.check_policies([policy])
    where: dict[str, Any] = {"workers": workers, "cluster": cluster}
    log = logs.read(days)
    if not isinstance(log, logs.ParquetLog):
        raise SettingsError(
            f"{days}: expected a log as Parquet, got {log.format}. Run: driftls convert {days} --out days"
        )
    paths = [str(Path(path).resolve()) for path in log.paths]
    begin = perf_counter()
    made = common.features_of(features, log, dim, articles, width)
    start = table[policy](made.dim, kappa, seed)
    start = as_disjoint(start, seed) if isinstance(made, UserOnly) else start
    start.features = made  # saved with the policy
    with common.telling(policy) as tell:
        done = count(1)
        found = stage.fit(start, paths, progress=lambda _: tell(next(done), len(paths)), **where)
    found.policy.save(out)
    seconds = round(perf_counter() - begin, 3)
    if as_json:
        result = {"policy": policy, "rows": found.rows, "shards": len(paths), "dim": made.dim}
        common.print_json({**result, "seconds": seconds, "file": out})
        return
    shards = "1 file" if len(paths) == 1 else f"{len(paths)} files"
    typer.echo(f"{policy} has learned {found.rows:,} rows of {shards}, {made.dim:,} features, in {seconds:.1f} s.")
    typer.echo(f"Next: driftls replay LOG --warm {out}")
