"""`driftls bench`."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from driftls.cli.common import AsJson, app, progress, typer


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="A few small problems, once: some 2 minutes.")] = False,
    problems: Annotated[
        list[str] | None, typer.Option("--problems", metavar="NAME", help="This problem alone; may be given again.")
    ] = None,
    players: Annotated[
        list[str] | None,
        typer.Option("--players", metavar="NAME", help="A method, `ours`, `exact` or a peer; may be given again."),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Install and play other libraries too.")] = True,
    repetitions: Annotated[int | None, typer.Option(min=1, help="Processes a method and problem.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.01, help="Timed seconds of a repetition.")] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Only find the settings of exact methods and peers anew.")
    ] = False,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder of the report and of its data.")] = Path("bench"),
    as_json: AsJson = False,
) -> None:
    """Time ours, exact methods at their best, and other libraries: with memory and reward, in one run on one thread.

    Problems: dense-16, dense-64, dense-136, dense-256, dense-1000, dense-2000, dense-4000, sparse-136, sparse-100000,
    fixed, articles, regression; and, ours against exact ones in compiled loops alone, day, reading, steps, across. Each
    library is installed once, into an environment of its own under the cache folder; one that cannot be installed is
    skipped, with the reason. Without --quick it takes some 30 minutes.

    \b
    Examples:
      driftls bench --quick --out bench
      driftls bench --problems dense-1000 --players ours --players vowpalwabbit
      driftls bench --no-peers --json
    """  # noqa: D301
    from driftls import bench as stage
    from driftls import report

    options = stage.Options(
        repetitions=repetitions or (1 if quick else 3),
        rounds=1000 if quick else 20_000,
        seconds=seconds or (0.2 if quick else 1.0),
        peers=peers,
        players=tuple(players or ()),
    )
    more = [name for name in stage.MORE if not problems or name in problems]
    rest = [name for name in problems or [] if name not in more]
    chosen = stage.chosen(rest, quick) if rest or not problems else []
    out.mkdir(parents=True, exist_ok=True)
    with progress() as bar:
        tasks: dict[str, Any] = {}

        def tell(problem: str, player: str, done: int, of: int) -> None:
            if problem not in tasks:
                tasks[problem] = bar.add_task(problem, total=of, note="")
            bar.update(tasks[problem], completed=done, note=player)

        def told(problem: Any, result: stage.Result) -> None:
            if problem.name in tasks:
                bar.update(tasks[problem.name], completed=bar.tasks[tasks[problem.name]].total, note="")
            _keep(out / "results.json", result, options)
            if not as_json:
                rows = [row for row in result.rows if row["problem"] == problem.name]
                typer.echo(_text(stage.table(rows, problem)))

        if tune:
            typer.echo(f"The settings are in {stage.tune(chosen, options, tell=tell)}")
            return
        result = stage.run(chosen, options, tell=tell, done=told)
        stage.measure(more, quick, result, tell)
        _keep(out / "results.json", result, options)
    page = stage.page(result, options)
    files = [*report.write(page, out / "report.html"), out / "results.json"]
    if as_json:
        typer.echo(json.dumps({"files": [str(file) for file in files], **page.data()}))
        return
    for one in result.skipped:
        typer.echo(f"skipped: {one['player']} on {one['problem']}: {one['reason']}")
    typer.echo(f"The report is {files[0]}")


def _keep(path: Path, result: Any, options: Any) -> None:
    """All that was measured so far: what is there stays if a later problem is interrupted."""
    machine = {"system": f"{platform.system()} {platform.machine()}", "cores": os.cpu_count()}
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"settings": asdict(options), "machine": machine, **asdict(result)}, indent=1))
    part.replace(path)


def _text(table: Any) -> str:
    rows = [[table.title, *table.head[1:]], *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(_aligned(row, widths)) for row in rows) + f"\n{table.note}\n"


def _aligned(row: list[str], widths: list[int]) -> list[str]:
    first, *others = zip(row, widths)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
