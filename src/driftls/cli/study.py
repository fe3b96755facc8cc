"""`driftls study`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from driftls.cli import common
from driftls.cli.common import app, typer


@app.command()
def study(
    file: Annotated[Path, typer.Argument(metavar="STUDY.TOML", exists=True, dir_okay=False, help="What to run.")],
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder for finished runs and results.")],
    extend: Annotated[bool, typer.Option("--extend", help="Take over the folder of another study.")] = False,
    workers: common.Workers = -1,
    cluster: common.Cluster = None,
    as_json: common.AsJson = False,
) -> None:
    """Tune and compare policies, on all cores or on a cluster.

    Over knobs, seeds, bandits and logs. The file is checked as a whole before anything runs. Knobs are tuned on some
    seeds and days, and reported on others. Results are the same for any number of workers; run again, it does only
    what is missing. Writes results.parquet and report.html. A folder that holds another study is refused; with
    --extend its results are replaced, and runs that both have are used again.

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

    plan = Plan.load(file)
    with common.telling() as tell:
        rows = run_study(
            plan, out, workers=workers, cluster=cluster, extend=extend, progress=lambda stage, *n: tell(*n, stage)
        )
    results, html = out / "results.parquet", out / "report.html"
    page = page_of(plan, rows, report.how(plan=file.name))
    report.write(page, html)
    if as_json:
        metric = plan.metrics[0]
        board = [one._asdict() for one in leaderboard(rows, metric, larger=LARGER_IS_BETTER[metric])]
        common.print_json(
            {"metric": metric, "runs": len(rows), "leaderboard": board, "results": results, "report": html}
        )
        return
    for section in page.sections[:-1]:
        head, *cells = section.items[0].cells()
        typer.echo(f"{section.title}: {section.found}\n")
        common.print_table(head, cells, words=2)
        typer.echo()
    typer.echo(
        f"{plan.split} Intervals are 95%; p (paired t-tests, Holm's rule) is empty where runs are too few to tell."
    )
    typer.echo(f"Next: open {html}. All {len(rows)} runs are in {results}.")
