"""`driftls synth`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from driftls.cli.common import AsJson, Seed, app, counting, print_json, typer


@app.command()
def synth(
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file to write: .parquet, .gz or text.")],
    lines: Annotated[int, typer.Option(min=1, metavar="N", help="Fewer make the same day thinner.")] = 1_850_000,
    seed: Seed = 0,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the day; may be given again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic day of a news front page.

    In Yahoo's R6B format, or as Parquet with the truth of every candidate. The same settings give the same day. The
    file appears under its name when it is complete. Settings and their
    defaults: interaction=0.8 (how much tastes differ, in log odds), activity=1 (how much active visitors click more),
    churn=43 (new articles a day), life=20 (hours that an article stays), fade=1.5 (log odds that it loses meanwhile),
    drift=0.1 (slow waves in all log odds), rhythm=0.5 (daily wave of the traffic), ctr=0.037 (average click rate),
    anonymous=0.3823 (share of visitors without a profile), rare=1.5 (rare features of the others), pool_min=26,
    pool_max=45 (candidates), start=1317513291 (Unix time of the first line), span=86400 (seconds until the last).

    \b
    Examples:
      driftls synth --lines 200000 --seed 1 --out day.gz
      driftls synth --lines 50000 --out day.parquet --set interaction=1.2 --set fade=2 --json
    """  # noqa: D301
    from driftls.logs import synthetic_day

    given = dict(_setting(text) for text in setting or [])
    day = synthetic_day(lines=lines, seed=seed, **given)
    with counting(out.name, lambda done: done / lines) as report:
        day.write(out, progress=report)
    size = out.stat().st_size
    if as_json:
        print_json({"lines": lines, "seed": seed, **given, "out": out, "bytes": size})
        return
    typer.echo(f"Wrote {lines:,} lines ({size / 1e6:.1f} MB) to {out}.")
    typer.echo(f"Next: driftls replay {out} --policy linucb-auto --policy random")


def _setting(text: str) -> tuple[str, float]:
    from dataclasses import fields

    from driftls.logs import SyntheticDay

    kinds = {field.name: int if field.type == "int" else float for field in fields(SyntheticDay)}
    name, _, value = text.partition("=")
    known = [name for name in kinds if name not in ("lines", "seed")]
    try:
        if name not in known:
            raise ValueError
        return name, kinds[name](value)
    except ValueError:
        said = f"expected NAME=VALUE with a number and one of {', '.join(known)}, got {text!r}."
        raise typer.BadParameter(said, param_hint="'--set'") from None
