"""`driftls inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from driftls.cli import common
from driftls.cli.common import AsJson, OnError, app, counting, print_json, print_pairs, typer

if TYPE_CHECKING:
    from driftls.logs.inspect import Summary, Uniformity

ADVICE = {
    "uniform": "matched lines can be counted",
    "propensities": "lines have to be weighted by 1/p, which `driftls replay` does",
    "skewed": "no estimate is valid; log propensities",
    "unknown": "matched lines can be counted if this log was uniform, which cannot be seen",
}


@app.command()
def inspect(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Files or folders of one format.")],
    shown: common.Shown = None,
    reward: common.Reward = None,
    propensity: common.Propensity = None,
    on_error: OnError = "skip",
    as_json: AsJson = False,
) -> None:
    """Say what a log holds, and how it showed its candidates.

    Reads Yahoo's R6A and R6B (gzipped or not), Parquet files and folders, folders of the Open Bandit Dataset, and tables. A
    replay that counts matched lines is unbiased only if candidates were shown uniformly; otherwise an estimate needs
    propensities that are right. A p-value below 0.001 speaks against either.

    \b
    Examples:
      driftls inspect day.gz
      driftls inspect days --json
      driftls inspect events.csv --shown offer --reward click --propensity likely
    """  # noqa: D301
    import msgspec

    from driftls import logs

    log = common.opened(paths, on_error, shown, reward, propensity)
    with counting(paths[0].name, lambda lines: log.share) as report:
        summary = logs.inspect(log, progress=report)
    if as_json:
        print_json(msgspec.to_builtins(summary))
        return
    broken = [("broken", example) for example in summary.examples]
    wide = summary.user_dim > max(common.R6B_FEATURES, log.user_dim)
    names = " ".join(map(str, paths)) + (f" --dim {summary.user_dim}" if wide else "")
    columns = {"shown": shown, "reward": reward, "propensity": propensity}
    names += "".join(f" --{name} {column}" for name, column in columns.items() if column)
    print_pairs(
        [*_rows(summary), *broken], notes=[f"Next: driftls replay {names} --policy linucb-auto --policy random"]
    )


def _rows(s: Summary) -> list[tuple[str, str]]:
    from numpy import datetime64  # dates of any year, for logs whose clock is not in seconds

    first, last = (str(datetime64(seconds, "s")).replace("T", " ") for seconds in (s.first_time, s.last_time))
    dropped = f", {s.dropped_lines:,} dropped" if s.dropped_lines else ""
    sizes = f"{s.pool_min} to {s.pool_max}, mean {s.pool_mean:.2f}, harmonic mean {s.pool_harmonic_mean:.2f}"
    gone = f"; {s.dropped_candidates:,} candidates dropped" if s.dropped_candidates else ""
    shown, fit = s.logging, s.logging.propensity_fit
    propensity = "yes" if s.propensity else "no"
    if fit is not None:
        verdict = "too few lines to say whether they fit" if fit.p is None else f"p = {fit.p:.3g} that they fit"
        propensity = f"yes, down to {shown.smallest_propensity:.3g}; {verdict} how often arms were shown"
    doubt = f"{shown.doubt}: no estimate that rests on them can be trusted"
    users = f"{s.user_dim}, {s.user_nonzeros:.2f} of them not 0; constant alone: {s.constant_only:.1%}"
    numbered = s.format != "table"  # whose visitors are dicts
    return [
        ("format", s.format),
        ("lines", f"{s.lines:,}: {s.events:,} events, {s.broken:,} broken{dropped}"),
        *([("time", f"{first} to {last} UTC")] if numbered else []),
        ("clicks", f"{s.clicks:,g}, a rate of {s.ctr:.5f}"),
        ("arms", f"{s.arms:,}"),
        ("pool", f"{sizes}{gone}"),
        *([("user features", users), ("arm features", str(s.arm_features or "no"))] if numbered else []),
        ("truth", "yes" if s.truth else "no"),
        ("propensities", propensity),
        ("uniform by position", _test(shown.uniform_positions)),
        ("uniform by arm", _test(shown.uniform_arms)),
        ("replay", f"{ADVICE[shown.kind]}: {shown.reason}"),
        *([("warning", doubt)] if shown.doubt else []),
    ]


def _test(found: Uniformity) -> str:
    if found.p is None:
        return "too few lines to say"
    return f"p = {found.p:.3g} (chi-square {found.statistic:.1f}, {found.degrees:.1f} degrees of freedom)"
