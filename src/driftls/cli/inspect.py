"""`driftls inspect`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from driftls.cli.common import AsJson, OnError, app, counting, typer


@app.command()
def inspect(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Files or folders of one format.")],
    on_error: Annotated[OnError, typer.Option(help="At a broken line: stop, or skip and count it.")] = OnError.SKIP,
    as_json: AsJson = False,
) -> None:
    """Say what a log holds, and whether its logging looks uniform.

    Reads Yahoo's R6A and R6B (gzipped or not), Parquet files and folders, and folders of the Open Bandit Dataset. A
    replay that counts matched lines is unbiased only if candidates were shown uniformly: a p-value below 0.001 speaks
    against that.

    \b
    Examples:
      driftls inspect day.gz
      driftls inspect days --json
    """  # noqa: D301
    import msgspec

    from driftls import logs

    log = logs.read(paths, on_error=on_error.value)
    with counting(paths[0].name, lambda lines: log.share) as report:
        summary = logs.inspect(log, progress=report)
    if as_json:
        typer.echo(json.dumps(msgspec.to_builtins(summary)))
        return
    for name, text in _rows(summary):
        typer.echo(f"{name:<22}{text}")
    for example in summary.examples:
        typer.echo(f"{'broken':<22}{example}")


def _rows(s: Any) -> list[tuple[str, str]]:
    from numpy import datetime64  # dates of any year, for logs whose clock is not in seconds

    begin, end = (str(datetime64(time, "s")).replace("T", " ") for time in (s.first_time, s.last_time))
    dropped = f", {s.dropped_lines:,} dropped" if s.dropped_lines else ""
    sizes = f"{s.pool_min} to {s.pool_max}, mean {s.pool_mean:.2f}, harmonic mean {s.pool_harmonic_mean:.2f}"
    gone = f"; {s.dropped_candidates:,} candidates dropped" if s.dropped_candidates else ""
    present = {True: "yes", False: "no"}
    return [
        ("format", s.format),
        ("lines", f"{s.lines:,}: {s.events:,} events, {s.broken:,} broken{dropped}"),
        ("time", f"{begin} to {end} UTC"),
        ("clicks", f"{s.clicks:,g}, a rate of {s.ctr:.5f}"),
        ("arms", f"{s.arms:,}"),
        ("pool", f"{sizes}{gone}"),
        ("user features", f"{s.user_dim}, {s.user_nonzeros:.2f} of them not 0; constant alone: {s.constant_only:.1%}"),
        ("arm features", str(s.arm_features or "no")),
        ("propensity", present[s.propensity]),
        ("truth", present[s.truth]),
        ("uniform by position", _test(s.uniform_positions)),
        ("uniform by arm", _test(s.uniform_arms)),
    ]


def _test(found: Any) -> str:
    if found.p is None:
        return "too few lines to say"
    return f"p = {found.p:.3g} (chi-square {found.statistic:.1f}, {found.degrees:.1f} degrees of freedom)"
