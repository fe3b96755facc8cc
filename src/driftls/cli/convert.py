"""`driftls convert`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from driftls.cli.common import AsJson, OnError, app, counting, print_json, typer


@app.command()
def convert(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Logs of one format, in the order of their time.")],
    out: Annotated[Path, typer.Option(help="A new folder, or a file if it ends in .parquet.")],
    on_error: OnError = "raise",
    as_json: AsJson = False,
) -> None:
    """Write logs as Parquet: one file a day (UTC), or one for all.

    Reads what `inspect` reads. Nothing appears under the name before all of it is there.

    \b
    Examples:
      driftls convert day-1.gz day-2.gz --out days
      driftls convert day.gz --out day.parquet --on-error skip --json
    """  # noqa: D301
    from driftls.logs import read, write_parquet

    log = read(paths, on_error=on_error)
    with counting(out.name, lambda lines: log.share) as report:
        write_parquet(log, out, progress=report)
    files = sorted(out.rglob("*.parquet")) if out.is_dir() else [out]
    if as_json:
        print_json({"format": log.format, **asdict(log.counts), "files": files})
        return
    for example in log.counts.examples:
        typer.echo(f"Skipped: {example}", err=True)
    typer.echo(f"Wrote {log.counts.events:,} of {log.counts.lines:,} lines of {log.format} to {out}.")
    typer.echo(f"Next: driftls inspect {out}, which says how to replay it.")
