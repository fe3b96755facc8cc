"""`driftls synth`, `convert` and `inspect`: logs are made, written as Parquet, and looked at."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from driftls.cli import common
from driftls.cli.common import AsJson, LogPaths, OnError, app, counting, print_result, print_table, typer, whole

if TYPE_CHECKING:
    from driftls.logs.inspect import Column, Summary

ADVICE = {
    "uniform": "matched lines can be counted",
    "propensities": "lines have to be weighted by 1/p, which `driftls replay` does",
    "skewed": "no estimate is valid; log propensities",
    "unknown": "matched lines can be counted if this log was uniform, which cannot be seen",
}


@app.command()
def synth(
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file to write: .parquet, .gz or text.")],
    lines: Annotated[int, whole("Fewer make the same day thinner.")] = 1_850_000,
    seed: common.Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Write a synthetic day of a news front page.

    In Yahoo's R6B format, or as Parquet with the truth of every candidate. The same settings give the same day. The
    file appears under its name when it is complete. From Python, `driftls.logs.synthetic_day` takes more settings: how much
    tastes differ, how fast articles come and fade, the average click rate.

    \b
    Examples:
      driftls synth --lines 200000 --seed 1 --out day.gz
      driftls synth --lines 50000 --out day.parquet --json
    """  # noqa: D301
    from driftls.logs import synthetic_day

    day = synthetic_day(lines=lines, seed=seed)
    with counting(out.name, lambda done: done / lines) as report:
        day.write(out, progress=report)
    size = out.stat().st_size
    wrote = f"Wrote {lines:,} lines ({size / 1e6:.1f} MB) to {out}."
    following = f"Next: driftls replay {out} --policy linucb-auto --policy random"
    print_result(as_json, {"lines": lines, "seed": seed, "out": out, "bytes": size}, wrote, following)


@app.command()
def convert(
    paths: LogPaths,
    out: Annotated[Path, typer.Option(help="A new folder, or a file if it ends in .parquet.")],
    on_error: OnError = "raise",
    as_json: AsJson = False,
) -> None:
    """Write logs as Parquet: one file a day (UTC), or one for all.

    Reads Yahoo's R6A and R6B, and Parquet. Nothing appears under the name before all of it is there.

    \b
    Examples:
      driftls convert day-1.gz day-2.gz --out days
      driftls convert day.gz --out day.parquet --on-error skip --json
    """  # noqa: D301
    from driftls.logs import read, write_parquet

    log = read(paths, on_error=on_error)
    with counting(out.name, lambda lines: log.share) as report:
        write_parquet(log, out, progress=report)
    files = sorted(out.rglob("*.parquet")) if out.is_dir() else [out]
    common.tell_skipped(log)
    wrote = f"Wrote {log.counts.events:,} of {log.counts.lines:,} lines of {log.format} to {out}."
    following = f"Next: driftls inspect {out}, which says how to replay it."
    print_result(as_json, {"format": log.format, **asdict(log.counts), "files": files}, wrote, following)


@app.command()
def inspect(
    paths: LogPaths,
    shown: common.Shown = None,
    reward: common.Reward = None,
    propensity: common.Propensity = None,
    visitor: common.Visitor = None,
    on_error: OnError = "skip",
    as_json: AsJson = False,
) -> None:
    """Say what a log holds, and how it showed its candidates.

    Reads Yahoo's R6A and R6B (gzipped or not), Parquet files and folders, and tables. A replay that counts matched
    lines is unbiased only if candidates were shown uniformly; otherwise an estimate needs propensities that are right.
    A p-value below 0.001 speaks against either.

    \b
    Examples:
      driftls inspect day.gz
      driftls inspect days --json
      driftls inspect events.csv --shown offer --reward click --propensity likely
    """  # noqa: D301
    from driftls import logs

    visitor = common.names_of(visitor)
    log = common.opened(paths, on_error, shown, reward, propensity, visitor)
    with counting(paths[0].name, lambda lines: log.share) as report:
        summary = logs.inspect(log, progress=report)
    if as_json:
        print_result(as_json, summary)
        return
    names = " ".join(map(str, paths))
    if summary.user_dim > common.R6B_FEATURES:
        names += f" --dim {summary.user_dim}"
    columns = {"shown": shown, "reward": reward, "propensity": propensity, "visitor": ",".join(visitor)}
    names += "".join(f" --{name} {column}" for name, column in columns.items() if column)
    print_table([], _rows(summary), f"Next: driftls replay {names} --policy linucb-auto --policy random")


def _rows(s: Summary) -> list[tuple[str, str]]:
    from numpy import datetime64  # dates of any year, for logs whose clock is not in seconds

    first, last = (str(datetime64(seconds, "s")).replace("T", " ") for seconds in (s.first_time, s.last_time))
    dropped = f", {s.dropped_lines:,} dropped" if s.dropped_lines else ""
    sizes = f"{s.pool_min} to {s.pool_max}, mean {s.pool_mean:.2f}, harmonic mean {s.pool_harmonic_mean:.2f}"
    gone = f"; {s.dropped_candidates:,} candidates dropped" if s.dropped_candidates else ""
    shown, fit, propensity = s.logging, s.logging.propensity_fit, "no"
    if shown.smallest_propensity is not None:
        verdict = f"p = {fit.p:.3g} that they fit" if fit else "too few lines to say whether they fit"
        propensity = f"yes, down to {shown.smallest_propensity:.3g}; {verdict} how often arms were shown"
    users = f"{s.user_dim}, {s.user_nonzeros:.2f} of them not 0"
    rewards = ("clicks", f"{s.clicks:,.10g}, a rate of {s.ctr:.5f}")
    if not s.binary:
        rewards = ("rewards", f"{s.clicks:,.10g} in all, a mean of {s.ctr:.5g}")
    arms = ", ".join(f"{name} {times:,}" for name, times in s.most_shown.items())
    most = "" if s.arms <= len(s.most_shown) else "the most frequent: "
    rows = [
        ("format", s.format),
        ("lines", f"{s.lines:,}: {s.events:,} events, {s.skipped:,} broken{dropped}"),
        ("time", f"{first} to {last} UTC"),
        rewards,
        ("arms", f"{s.arms:,}"),
        ("times shown", most + arms if s.format == "table" else ""),
        ("pool", f"{sizes}{gone}"),
        ("user features", users),
        *((f"visitor's {name}", _column(one)) for name, one in s.visitor.items()),
        ("arm features", str(s.arm_features or "no")),
        ("truth", "yes" if s.truth else "no"),
        ("propensities", propensity),
        ("replay", f"{ADVICE[shown.kind]}: {shown.reason}"),
        ("warning", f"{shown.doubt}: no estimate that rests on them can be trusted" if shown.doubt else ""),
        *(("broken", example) for example in s.examples),
    ]
    unknown = {"time", "user features", "arm features"} if s.format == "table" else set()  # visitors are dicts there
    return [(name, text) for name, text in rows if text and name not in unknown]


def _column(one: Column) -> str:
    from driftls.logs.inspect import MOST_VALUES

    least = f"{one.distinct:,}" if one.distinct < MOST_VALUES else f"{MOST_VALUES:,} or more"
    return f"{one.kind}, {least} distinct" + (f", {one.missing:,} missing" if one.missing else "")
