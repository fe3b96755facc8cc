"""`driftls report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from driftls.cli.common import AsJson, app, print_json, typer

Figures = Annotated[Path | None, typer.Option(file_okay=False, help="Folder for every figure as SVG.")]


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(exists=True, help="Files of runs, or folders of them.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The page.")] = Path("report.html"),
    figures: Figures = None,
    as_json: AsJson = False,
) -> None:
    """Compare your own runs on one page.

    Runs are the JSON files that `driftls simulate --out`, `driftls replay --out` and `Run.save` write. Those of one
    problem are drawn together: each trace against the rounds, the mean over seeds with its 95% interval.

    \b
    Examples:
      driftls report runs
      driftls report runs/*.json --out compared.html
      driftls report runs --figures figures --json
    """  # noqa: D301
    from driftls import report as stage
    from driftls.errors import InputError
    from driftls.run import Run

    paths = [file for path in runs for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not paths:
        raise InputError(f"{runs[0]}: expected runs, but the folder holds no JSON file. Pass what `--out` wrote.")
    page = stage.of_runs([Run.load(path) for path in paths], stage.how(files=str(len(paths))))
    files = stage.write(page, out, figures=figures)
    if as_json:
        print_json({"runs": len(paths), "files": files, **page.data()})
        return
    for section in page.sections:
        typer.echo(f"{section.title}: {section.found}" if section.found else section.title)
    typer.echo(f"Next: open {out}")
