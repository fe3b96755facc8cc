"""`driftls study`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from driftls.cli.common import AsJson, app, progress, typer


@app.command()
def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY.TOML", exists=True, dir_okay=False, help="What to run.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for finished runs and results.")],
    workers: Annotated[int, typer.Option(help="Processes on this machine; -1 is one a core.")] = -1,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of a Dask scheduler to use instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tune and compare policies over knobs, seeds, bandits and logs, on all cores or on a cluster.

    The file is checked as a whole before anything runs. Knobs are tuned on some seeds and days, and reported on others.
    Results are the same for any number of workers; run again, it does only what is missing. Writes results.parquet and
    report.html.

    \b
    Examples:
      driftls study study.toml --out study
      driftls study study.toml --out study --workers 2 --json
      driftls study study.toml --out study --cluster tcp://127.0.0.1:8786
    """  # noqa: D301
    from driftls import report
    from driftls.study import Plan, run_study
    from driftls.study.page import page_of
    from driftls.study.plan import LARGER_IS_BETTER
    from driftls.study.results import leaderboard

    if workers == 0 or workers < -1:
        raise typer.BadParameter(f"{workers} is not a number of processes, nor -1.", param_hint="'--workers'")
    plan = Plan.load(file)
    with progress() as bar:
        task = bar.add_task("", total=None, note="")

        def tell(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total, note=f"{done} of {total} runs")

        rows = run_study(plan, out, workers=workers, cluster=cluster, progress=tell)
    metric = plan.metrics[0]
    standings = leaderboard(rows, metric, larger=LARGER_IS_BETTER[metric])
    results, page = str(out / "results.parquet"), str(out / "report.html")
    report.write(page_of(plan, rows, report.how(plan=file.name)), page)
    if as_json:
        board = [{name: _plain(value) for name, value in standing._asdict().items()} for standing in standings]
        typer.echo(
            json.dumps({"metric": metric, "runs": len(rows), "leaderboard": board, "results": results, "report": page})
        )
        return
    typer.echo(f"{'':<16}{'':<24}{metric:>12}{'95%':>10}{'behind':>12}{'95%':>10}{'p':>9}{'us':>9}  knobs")
    for one in standings:
        behind = f"{one.behind:>12.4g}{one.behind_half:>10.3g}{one.p:>9.2g}" if one.behind else " " * 31
        line = f"{one.problem:<16}{one.policy:<24}{one.mean:>12.4g}{one.half:>10.3g}{behind}"
        typer.echo(f"{line}{one.microseconds:>9.2f}  {one.setting}")
    typer.echo(f"\n{plan.split} p by paired t-tests and Holm's rule. {len(rows)} runs are in {results}")
    typer.echo(f"The report is {page}")


def _plain(value: float | str) -> float | str | None:
    """JSON has no infinity and no NaN."""
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
