"""`driftls reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from driftls.cli.common import AsJson, app, print_json, telling, typer
from driftls.cli.report import Figures


@app.command()
def reproduce(
    quick: Annotated[bool, typer.Option("--quick", help="Everything small: a minute on 2 cores.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Long streams, many seeds: an hour on 2 cores.")] = False,
    log: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="A Yahoo log instead of a synthetic day; may be given again.",
        ),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="This alone; may be given again.")] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The first seed; the others follow.")] = 0,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder of the report and of its data.")] = Path("paper"),
    figures: Figures = None,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Processes; all cores if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Do the paper's experiments again: one page of findings.

    Beside them stands what we recommend. Names for --only: run-times, ctr, tracking, theorem-1, theorem-2, section-4,
    scaling. The paper's own plots are figure-1 (run times) and figure-2 (tracking error). What is measured is kept in
    the folder: interrupted, the same command goes on where it was. Without --quick or --full it takes some 15
    minutes on 2 cores that do nothing else.

    \b
    Examples:
      driftls reproduce --quick --out demo
      driftls reproduce --only figure-2 --seed 3 --json
      driftls reproduce --full --log day-2.gz --log day-4.gz --figures figures
    """  # noqa: D301
    from driftls import report
    from driftls.paper import reproduce as stage

    if quick and full:
        raise typer.BadParameter("not together with --full.", param_hint="'--quick'")
    options = stage.Options(0 if quick else 2 if full else 1, seed, tuple(str(path) for path in log or ()))
    with telling("measuring") as tell:
        page = stage.reproduce(options, out / "data", only=only, workers=jobs or -1, progress=tell)
    files = report.write(page, out / "report.html", figures=figures)
    if as_json:
        print_json({"files": files, **page.data()})
        return
    for finding in (finding for section in page.sections for finding in section.findings):
        typer.echo(f"{finding.question}\n  {finding.text}")
    typer.echo()
    for claim in (claim for section in page.sections for claim in section.claims):
        typer.echo(f"{report.MARKS[claim.verdict]:<19} {claim.claim}")
    typer.echo(f"\nNext: open {files[0]}")
