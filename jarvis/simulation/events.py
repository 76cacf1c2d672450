"""The host calls and GPU events of a trace as arrays: the input of the dependency graph.

Times are integer nanoseconds after the first event.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis.core.arrays import Bools, Int64s
from jarvis.perf_report.intervals import least_ns
from jarvis.perf_report.timeline.host_spans import LOADS_KERNELS, with_threads
from jarvis.perf_report.timeline.steps import StepSource, step_marks
from jarvis.schemas.names import C
from jarvis.trace import Trace
from jarvis.trace.links import SUBMITS_WORK
from jarvis.trace.tables import THREAD_KEY

QUERIES_IN_A_ROW = 3
QUERY_RUN_NS = 50_000
"""That many queries in a row, for that long, are one call that waits."""

_ROLES = {
    "records": r"EventRecord",
    "waits_event": r"StreamWaitEvent",
    "syncs_device": r"(Device|Ctx)Synchronize",
    "syncs_stream": r"StreamSynchronize|EventSynchronize",
    "queries": r"(Event|Stream)Query",
    "copies": r"(?i)memcpy",
    "copies_blocking": r"^(cuda|hip)Memcpy(2D|3D)?(WithStream)?$|Memcpy(DtoH|HtoD)(_v2)?$",
    "manages_memory": r"^(cuda|hip|cu)(Malloc|Free|Host|Mem(Alloc|Free|Create|Map|Unmap|Release))"
    f"|{LOADS_KERNELS}",
    "submits": SUBMITS_WORK,
}


@dataclass(frozen=True)
class Calls:
    """Runtime calls and step marks, by start, enclosing calls first.

    ``thread``: its number. ``around``: position of the call that encloses it, or -1. ``is_mark``:
    a step mark, a call of no duration. ``launches``: a GPU event is linked to it. The other flags
    say what a call does, by its name.
    """

    uid: Int64s
    thread: Int64s
    around: Int64s
    start: Int64s
    end: Int64s
    correlation: Int64s
    is_mark: Bools
    records: Bools
    waits_event: Bools
    syncs_device: Bools
    syncs_stream: Bools
    queries: Bools
    copies: Bools
    copies_blocking: Bools
    manages_memory: Bools
    launches: Bools

    def __len__(self) -> int:
        return self.uid.size


@dataclass(frozen=True)
class GpuEvents:
    """GPU events, by stream and start. ``stream`` numbers the pairs of device and stream.

    ``launch``: position of the call that launched the event, or -1. ``stream_id``: the stream's
    own number.
    """

    uid: Int64s
    device: Int64s
    stream: Int64s
    stream_id: Int64s
    start: Int64s
    end: Int64s
    launch: Int64s
    is_copy: Bools

    def __len__(self) -> int:
        return self.uid.size

    @property
    def predecessor(self) -> Int64s:
        """Return the position of the event before each one on its stream, or -1."""
        before = np.arange(len(self), dtype=np.int64) - 1
        before[:1] = -1
        before[1:][self.stream[1:] != self.stream[:-1]] = -1
        return before


@dataclass(frozen=True)
class Recording:
    """All events that the graph is built from.

    ``threads``: ``pid, tid, thread``. ``busy``: ``thread, ts_ns, end_ns`` of operators and runtime
    calls. ``syncs``: what the profiler recorded about event
    waits. ``first_ns`` is the time of the first event on the trace's clock.
    """

    first_ns: int
    threads: pl.DataFrame
    calls: Calls
    gpu: GpuEvents
    busy: pl.DataFrame
    syncs: pl.DataFrame


def runs(keys: Int64s) -> dict[int, slice]:
    """Return the range of each key in a sorted array."""
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: keys.size])
    stops = [*first[1:].tolist(), keys.size]
    return {
        int(keys[start]): slice(start, stop)
        for start, stop in zip(first.tolist(), stops[: first.size], strict=True)
    }


def read_events(trace: Trace) -> Recording:
    """Return the events of a trace, without those of threads that only watch or poll."""
    marks = _marks(trace)
    threads = (
        pl.concat([trace.runtime.select(THREAD_KEY), marks.select(THREAD_KEY)])
        .unique(maintain_order=True)
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(C.thread))
    )
    calls = with_threads(_with_roles(pl.concat([_runtime(trace), marks])), threads)
    calls = calls.filter(pl.any_horizontal(_WORKS).any().over(C.thread))
    operators = with_threads(_timed(trace.cpu_ops), threads).drop_nulls(C.thread)
    gpu = _timed(trace.gpu_events, C.device, C.stream, C.cat)
    annotations = _timed(trace.host_annotations)
    spans = [calls, operators, gpu, annotations]
    if marks.is_empty():
        spans.append(_timed(trace.python_functions))
    first = least_ns(pl.concat([f[C.ts_ns] for f in spans])) or 0
    calls = _query_runs(calls.sort(C.ts_ns, C.end_ns, C.uid, descending=[False, True, False]))
    busy = pl.concat(
        f.select(C.thread, pl.col(C.ts_ns) - first, pl.col(C.end_ns) - first)
        for f in (operators, calls)
    )
    return Recording(
        first_ns=first,
        threads=threads,
        calls=_calls(calls, trace.call_tree, first),
        gpu=_gpu(gpu, calls, trace.launches, first),
        busy=busy,
        syncs=trace.event_waits,
    )


_FLAGS = [
    "is_mark",
    "records",
    "waits_event",
    "syncs_device",
    "syncs_stream",
    "queries",
    "copies",
    "copies_blocking",
    "manages_memory",
    "launches",
]
_WORKS = ["submits", "records", "waits_event", "syncs_device", "syncs_stream", "is_mark"]


def _timed(events: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return ``uid, pid, tid, ts_ns, end_ns`` and ``columns`` of events with a time."""
    return events.drop_nulls([C.ts_ns, C.dur_ns]).select(
        C.uid,
        *THREAD_KEY,
        C.ts_ns,
        (pl.col(C.ts_ns) + pl.col(C.dur_ns).clip(0)).alias(C.end_ns),
        *columns,
    )


def _runtime(trace: Trace) -> pl.DataFrame:
    linked = trace.launches[C.runtime_uid].unique()
    return _timed(trace.runtime, C.name, "correlation").with_columns(
        launches=pl.col(C.uid).is_in(linked.implode()), is_mark=False
    )


def _marks(trace: Trace) -> pl.DataFrame:
    """Return the start of each step and the end of the last, as calls of no duration."""
    steps = step_marks(trace).filter(pl.col(C.source) != StepSource.RECORDING)
    starts = steps.select(*THREAD_KEY, C.step, pl.col(C.host_start_ns).alias(C.ts_ns))
    last = steps.tail(1).select(
        *THREAD_KEY, pl.col(C.step) + 1, pl.col("host_end_ns").alias(C.ts_ns)
    )
    return pl.concat([starts, last]).select(
        (-1 - pl.col(C.step)).alias(C.uid),
        *THREAD_KEY,
        C.ts_ns,
        pl.col(C.ts_ns).alias(C.end_ns),
        pl.lit("", pl.String).alias(C.name),
        pl.lit(None, pl.Int64).alias("correlation"),
        launches=pl.lit(False),
        is_mark=pl.lit(True),
    )


def _with_roles(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the calls with a flag for each role; each distinct name is tested once."""
    names = calls.select(C.name).unique()
    roles = names.with_columns(
        pl.col(C.name).str.contains(pattern).alias(role) for role, pattern in _ROLES.items()
    )
    return calls.join(roles, on=C.name, how="left", maintain_order="left").with_columns(
        pl.col("submits") | pl.col("launches")
    )


def _query_runs(calls: pl.DataFrame) -> pl.DataFrame:
    """Return the calls, each run of queries as one call from the first to the last."""
    if not calls["queries"].any():
        return calls
    run = (pl.col("queries") != pl.col("queries").shift(1)).fill_null(True).cum_sum()
    numbered = calls.with_columns(run.over(C.thread).alias("run"))
    first, last = pl.col(C.ts_ns).min(), pl.col(C.end_ns).max()
    group = [C.thread, "run"]
    is_run = pl.col("queries") & (pl.len().over(group) >= QUERIES_IN_A_ROW)
    is_run &= (last.over(group) - first.over(group)) >= QUERY_RUN_NS
    merged = numbered.with_columns(is_run=is_run)
    runs = (
        merged.filter("is_run")
        .with_columns(last.over(group).alias(C.end_ns))
        .unique(group, keep="first", maintain_order=True)
    )
    rest = merged.filter(~pl.col("is_run")).with_columns(queries=False)
    return pl.concat([rest, runs]).sort(C.ts_ns, C.end_ns, C.uid, descending=[False, True, False])


def _calls(calls: pl.DataFrame, call_tree: pl.DataFrame, first_ns: int) -> Calls:
    positions = calls.select(
        pl.col(C.uid).alias(C.parent_uid), around=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    around = (
        calls.select(C.uid)
        .join(call_tree.select(C.uid, C.parent_uid), on=C.uid, how="left", maintain_order="left")
        .join(positions, on=C.parent_uid, how="left", maintain_order="left")
    )["around"]
    times = {
        "uid": calls[C.uid].to_numpy(),
        "around": around.fill_null(-1).to_numpy(),
        "thread": calls[C.thread].to_numpy(),
        "start": calls[C.ts_ns].to_numpy() - first_ns,
        "end": calls[C.end_ns].to_numpy() - first_ns,
        "correlation": calls["correlation"].fill_null(-1).to_numpy(),
    }
    return Calls(**times, **{flag: calls[flag].to_numpy() for flag in _FLAGS})


def _gpu(
    events: pl.DataFrame, calls: pl.DataFrame, launches: pl.DataFrame, first_ns: int
) -> GpuEvents:
    """Return the GPU events; of several calls linked to one, the last is its launch."""
    positions = calls.select(
        pl.col(C.uid).alias(C.runtime_uid), launch=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    linked = (
        launches.join(positions, on=C.runtime_uid).group_by(C.gpu_uid).agg(pl.col("launch").max())
    )
    rows = events.with_columns(pl.col(C.device, C.stream).fill_null(-1)).sort(
        C.device, C.stream, C.ts_ns, C.end_ns, C.uid, maintain_order=True
    )
    rows = rows.join(linked, left_on=C.uid, right_on=C.gpu_uid, how="left", maintain_order="left")
    return GpuEvents(
        uid=rows[C.uid].to_numpy(),
        device=rows[C.device].to_numpy(),
        stream=rows.select(pl.struct(C.device, C.stream).rle_id().cast(pl.Int64))
        .to_series()
        .to_numpy(),
        stream_id=rows[C.stream].to_numpy(),
        start=rows[C.ts_ns].to_numpy() - first_ns,
        end=rows[C.end_ns].to_numpy() - first_ns,
        launch=rows["launch"].fill_null(-1).to_numpy(),
        is_copy=(rows[C.cat] == "gpu_memcpy").to_numpy(),
    )


def union(spans: Iterable[tuple[int, int]]) -> tuple[Int64s, Int64s]:
    """Return disjoint spans by time."""
    times = np.array(sorted(spans), np.int64)
    begins, stops = times[:, 0], np.maximum.accumulate(times[:, 1])
    is_new = np.append(True, begins[1:] > stops[:-1])
    is_last = np.append(is_new[1:], True)
    return begins[is_new], stops[is_last]


def length_before(begins: Int64s, stops: Int64s, times: Int64s) -> Int64s:
    """Return the time that disjoint spans cover before each of ``times``."""
    total = np.concatenate([[0], np.cumsum(stops - begins)])
    index = np.searchsorted(begins, times, side="right")
    last_stop = np.concatenate([[0], stops])[index]
    result: Int64s = total[index] - np.maximum(last_stop - times, 0) * (index > 0)
    return result
