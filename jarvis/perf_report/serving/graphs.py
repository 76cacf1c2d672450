"""Launches of GPU graphs, and replays of the same graph in a row."""

import polars as pl

from jarvis.perf_report.intervals import END
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES

MIN_REPLAYS = 3
"""Minimum number of replays of one graph in a row that are steps."""


def graph_launches(trace: Trace, work: GpuWork) -> pl.DataFrame:
    """Return ``launch_uid, pid, tid, host_start_ns, host_end_ns, graph_key`` of the launches of
    graphs with GPU work, by time.

    Launches that replay the same kernels in the same order have the same key.
    """
    calls = trace.runtime.filter(pl.col(C.name).is_in(GRAPH_LAUNCHES)).select(
        pl.col(C.uid).alias(C.launch_uid),
        C.pid,
        C.tid,
        pl.col(C.ts_ns).alias(C.host_start_ns),
        host_end_ns=END,
    )
    names = pl.col(C.name).cast(pl.String).sort_by(C.ts_ns, C.uid).str.join("\n")
    calls = calls.drop_nulls()
    replayed = work.events.join(calls, on=C.launch_uid, how="semi")
    keys = replayed.group_by(C.launch_uid).agg(names.alias(C.graph_key))
    return (
        calls.join(keys, on=C.launch_uid)
        .sort(C.host_start_ns, C.launch_uid)
        .with_columns(pl.col(C.graph_key).rank("dense"))
    )


def replays(launches: pl.DataFrame) -> pl.DataFrame:
    """Return the longest run of at least MIN_REPLAYS launches with the same key; the first of
    equal ones."""
    runs = launches.with_columns(run=pl.col(C.graph_key).rle_id())
    lengths = runs.group_by("run").len().sort("len", "run", descending=[True, False])
    longest = lengths.filter(pl.col("len") >= MIN_REPLAYS).head(1)
    return runs.join(longest, on="run", how="semi", maintain_order="left").drop("run")
