"""Results of a study: each run with what it was for, and one Parquet file of all."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from msgspec.structs import replace

from driftls.errors import missing_extra
from driftls.persistence import atomic
from driftls.run import Run

__all__ = ["labelled", "write"]


def labelled(run: Run, policy: str, problem: str, metrics: Sequence[str], **settings: object) -> Run:
    """A run under the names of its study, with the study's metrics; settings say what it was for."""
    traces = {metric: run.traces.get(metric, []) for metric in metrics}
    return replace(run, policy=policy, problem=problem, traces=traces, settings={**run.settings, **settings})


def write(runs: Sequence[Run], path: str | os.PathLike[str]) -> None:
    """One Parquet file, whole or not at all; knobs, and values and traces by metric, have columns of their own."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise missing_extra("pyarrow", "study", "the results of a study") from error
    records = []
    for run in runs:
        told = {name: run.settings[name] for name in ("stage", "day", "key")}
        told |= {name: getattr(run, name) for name in ("problem", "policy", "seed", "rounds", "points", "microseconds")}
        told |= {"knobs": json.dumps(run.settings["knobs"]), "error": run.settings.get("error", "")}
        told |= {f"{metric}_trace": trace for metric, trace in run.traces.items()}
        records.append(told | {metric: trace[-1] if trace else None for metric, trace in run.traces.items()})
    with atomic(path) as part:
        pq.write_table(pa.Table.from_pylist(records), part)
