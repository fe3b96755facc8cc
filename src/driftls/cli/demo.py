"""`driftls demo`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, progress, typer


@app.command()
def demo(
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for the figure and its data.")] = Path("demo"),
    rows: Annotated[int, typer.Option(min=200, help="Length of the stream.")] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Of the stream and of the draws.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Follow a drifting stream with every scheme, and draw how closely.

    The stream is a synthetic day of a news front page: 136 features of a visitor and whether there was a click.
    Writes tracking.svg, tracking.png and tracking.csv. Takes a minute longer the first time, to compile.

    \b
    Examples:
      driftls demo --out demo
      driftls demo --rows 5000 --seed 3 --json
    """  # noqa: D301
    from driftls import demo as stage

    stage.check_extra()
    out.mkdir(parents=True, exist_ok=True)
    with progress() as bar:
        tasks: dict[str, Any] = {}

        def report(scheme: str, n: int, error: float | None) -> None:
            if scheme not in tasks:
                tasks[scheme] = bar.add_task(scheme, total=rows, note="compiling, if new")
            if error is not None:
                bar.update(tasks[scheme], completed=n, note=f"error {error:.3g}")

        result = stage.track(rows, seed, report)
    files = stage.write(result, out)
    if as_json:
        final = {trace.label: trace.relative[-1] for trace in result.traces}
        typer.echo(json.dumps({"rows": rows, "seed": seed, "relative_error": final, "files": [str(f) for f in files]}))
    else:
        typer.echo(stage.table(result))
        typer.echo(f"\nThe figure is {files[0]} (and {files[1].name}), its data {files[2]}")
