"""`driftls synth`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, counting, typer


def _strength(text: str) -> Any:
    return typer.Option(help=text, show_default=False)


@app.command()
def synth(
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file to write; gzipped if it ends in .gz.")],
    lines: Annotated[int, typer.Option(min=1, help="Fewer make the same day thinner.")] = 1_850_000,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
    truth: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Parquet file for every candidate's click probability.")
    ] = None,
    interaction: Annotated[float | None, _strength("How much tastes differ, in log odds (0.8).")] = None,
    activity: Annotated[float | None, _strength("How much active visitors click more (1).")] = None,
    churn: Annotated[float | None, _strength("New articles a day (43).")] = None,
    life: Annotated[float | None, _strength("Hours that an article stays (20).")] = None,
    fade: Annotated[float | None, _strength("Log odds that it loses meanwhile (1.5).")] = None,
    drift: Annotated[float | None, _strength("Slow waves in all log odds (0.1).")] = None,
    rhythm: Annotated[float | None, _strength("Daily wave of the traffic (0.5).")] = None,
    ctr: Annotated[float | None, _strength("Average click rate (0.037).")] = None,
    anonymous: Annotated[float | None, _strength("Share of visitors without a profile (0.3823).")] = None,
    rare: Annotated[float | None, _strength("Rare features of the others (1.5).")] = None,
    pool_min: Annotated[int | None, _strength("Least candidates (26).")] = None,
    pool_max: Annotated[int | None, _strength("Most candidates (45).")] = None,
    start: Annotated[int | None, _strength("Unix time of the first line (1317513291).")] = None,
    span: Annotated[float | None, _strength("Seconds until the last (86400).")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic day of a news front page, in the format of Yahoo's R6B log.

    The same settings give the same bytes. Files appear under their names when they are complete.

    \b
    Examples:
      driftls synth --lines 200000 --seed 1 --out day.gz
      driftls synth --lines 50000 --out day.gz --truth day-truth.parquet --interaction 1.2 --json
    """  # noqa: D301
    strengths = {
        "interaction": interaction, "activity": activity, "churn": churn, "life": life, "fade": fade, "drift": drift,
        "rhythm": rhythm, "ctr": ctr, "anonymous": anonymous, "rare": rare, "pool_min": pool_min, "pool_max": pool_max,
        "start": start, "span": span,
    }  # fmt: skip
    from driftls.logs import synthetic_day

    given = {name: value for name, value in strengths.items() if value is not None}
    day = synthetic_day(lines=lines, seed=seed, **given)
    with counting(out.name, lambda done: done / lines) as report:
        day.write(out, truth=truth, progress=report)
    size = out.stat().st_size
    if as_json:
        files = {"out": str(out), "truth": None if truth is None else str(truth)}
        typer.echo(json.dumps({"lines": lines, "seed": seed, **given, **files, "bytes": size}))
    else:
        beside = "" if truth is None else f", and the truth to {truth}"
        typer.echo(f"Wrote {lines:,} lines ({size / 1e6:.1f} MB) to {out}{beside}.")
