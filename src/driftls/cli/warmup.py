"""`driftls warmup`."""

from __future__ import annotations

from time import perf_counter

from driftls.cli import common
from driftls.cli.common import app, typer


@app.command()
def warmup(as_json: common.AsJson = False) -> None:
    """Compile every kernel ahead of the first row.

    Machine code is kept in DRIFTLS_CACHE_DIR (by default the user's cache folder); what older versions left there is
    removed.

    \b
    Examples:
      driftls warmup
      DRIFTLS_CACHE_DIR=/srv/cache driftls warmup --json
    """  # noqa: D301
    from driftls.kernels import INTERPRET, all_parts
    from driftls.kernels.objects import folder, remove_stale

    if INTERPRET:
        typer.echo("Nothing to compile: DRIFTLS_INTERPRET is set.")
        return
    begin, stale, place = perf_counter(), remove_stale(), folder()
    parts = all_parts()
    before = set() if place is None else set(place.glob("*.obj"))
    with common.telling() as tell:
        for done, part in enumerate(parts):
            tell(done, len(parts), part.name)
            part.address  # noqa: B018  (which compiles it)
    compiled = 0 if place is None else len(set(place.glob("*.obj")) - before)
    seconds = perf_counter() - begin
    if as_json:
        found = {"parts": len(parts), "compiled": compiled, "stale_removed": stale, "seconds": round(seconds, 3)}
        common.print_json({**found, "folder": place})
    elif place is None:
        typer.echo("Compiled, but not kept: there is no cache folder that only this user can write to.", err=True)
    else:
        typer.echo(f"{compiled} of {len(parts)} kernels compiled in {seconds:.1f} s; they are in {place}")
