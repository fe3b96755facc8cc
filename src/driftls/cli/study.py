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
    from driftls.study.page import metric_name, page_of
    from driftls.study.plan import LARGER_IS_BETTER
    from driftls.study.results import leaderboard

    plan = Plan.load(file)
    with common.progress() as bar:
        task = bar.add_task("", total=None, note="")

        def tell(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total, note=f"{done} of {total} runs")

        rows = run_study(plan, out, workers=workers, cluster=cluster, extend=extend, progress=tell)
    metric = plan.metrics[0]
    board = leaderboard(rows, metric, larger=LARGER_IS_BETTER[metric])
    results, page = out / "results.parquet", out / "report.html"
    report.write(page_of(plan, rows, report.how(plan=file.name)), page)
    if as_json:
        told = [one._asdict() for one in board]
        common.print_json(
            {"metric": metric, "runs": len(rows), "leaderboard": told, "results": results, "report": page}
        )
        return
    cells, before = [], ""
    for one in board:
        first = one.problem != before
        gap = "" if first else report.plus_minus(one.difference, one.difference_half)
        p = "" if first or one.p != one.p else f"{one.p:.2g}"
        mean, cost = report.plus_minus(one.mean, one.half), f"{one.microseconds:.1f}"
        cells.append([one.problem if first else "", one.policy, one.setting, mean, gap, p, cost])
        before = one.problem
    head = ["problem", "policy", "knobs", metric_name(metric), "to the first", "p", "µs a round"]
    notes = [
        f"{plan.split} Intervals are 95%; p (paired t-tests, Holm's rule) is empty where the runs are too few to tell.",
        f"Next: open {page}. All {len(rows)} runs are in {results}.",
    ]
    common.print_table(head, cells, words=3, notes=notes)
