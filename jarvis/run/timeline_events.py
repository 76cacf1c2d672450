"""Events of a timeline: lanes and bins, frames around user code, idle time, the critical path."""

import numpy as np
import polars as pl

from jarvis.core.arrays import Int64s
from jarvis.perf_report.intervals import covered_by_bin
from jarvis.perf_report.timeline.step_account import StepAccount
from jarvis.run.run import Run
from jarvis.schemas.names import C
from jarvis.simulation.edges import Kind
from jarvis.simulation.graph import What
from jarvis.simulation.path import HOST_KINDS, OF_KINDS, UNEXPLAINED, UNLINKED_WORK, unlinked_part
from jarvis.simulation.simulation import Simulation


def bin_edges(start_ns: int, end_ns: int, count: int) -> Int64s:
    """Return the edges of up to ``count`` bins of about equal length, none shorter than 1 ns."""
    length = end_ns - start_ns
    bins = max(min(count, length), 1)
    return np.array([start_ns + length * n // bins for n in range(bins + 1)], dtype=np.int64)


def binned(events: pl.DataFrame, edges: Int64s) -> pl.DataFrame:
    """Return the covered time of each bin in each row of a timeline, and its largest part.

    ``events``: ``row, what, ts_ns, dur_ns``. Returns ``row, what, start_ns, end_ns, busy_ns`` by
    row and time, without empty bins.
    """
    parts = [
        _binned_row(row, row_events, edges)
        for (row,), row_events in events.partition_by(C.row, as_dict=True).items()
    ]
    return pl.concat(parts) if parts else _binned_row("", events, edges).clear()


def _binned_row(row: object, events: pl.DataFrame, edges: Int64s) -> pl.DataFrame:
    busy = covered_by_bin(events, edges)
    parts = events.partition_by("what", as_dict=True) or {("",): events}
    whats = sorted(what for (what,) in parts)
    shares = [covered_by_bin(parts[what,], edges) for what in whats]
    most = np.argmax(np.stack(shares), axis=0)
    bins = pl.DataFrame({C.start_ns: edges[:-1], C.end_ns: edges[1:], C.busy_ns: busy}).select(
        pl.lit(str(row)).alias(C.row),
        pl.Series("what", whats, dtype=pl.String)[most].alias("what"),
        C.start_ns,
        C.end_ns,
        C.busy_ns,
    )
    return bins.filter(pl.col(C.busy_ns) > 0)


def stacked(events: pl.DataFrame) -> pl.DataFrame:
    """Add ``lane`` (from 0) to events, so that none overlaps another one of its row and lane.

    An event is below the events of its row that contain it, else in the first free lane.
    ``events``: ``row, ts_ns, dur_ns`` and others; returned by row and time.
    """
    ordered = events.sort(C.row, C.ts_ns, C.dur_ns, descending=[False, False, True])
    lanes: list[int] = []
    reached: list[int] = []
    current = None
    rows = ordered.select(
        C.row, C.ts_ns, (pl.col(C.ts_ns) + pl.col(C.dur_ns)).alias(C.end_ns)
    ).iter_rows()
    for row, start, end in rows:
        if row != current:
            current, reached = row, []
        lane = next(
            (n + 1 for n in range(len(reached))[::-1] if _contains(reached[n], start, end)), 0
        )
        while lane < len(reached) and reached[lane] > start:
            lane += 1
        reached[lane:] = [end, *reached[lane + 1 :]]
        lanes.append(lane)
    return ordered.with_columns(pl.Series("lane", lanes, dtype=pl.Int64))


def _contains(reached: int, start: int, end: int) -> bool:
    """Return whether the event that ends a lane at ``reached`` still runs and outlasts another
    one."""
    return reached > start and reached >= end


_STARTERS = (
    r"^(?:<string>|<frozen [^>]*>"
    r"|(?:.*[/\\])?(?:threading|runpy|pdb|bdb|cProfile)\.py"
    r"|(?:.*[/\\])?(?:multiprocessing|concurrent[/\\]futures|importlib)[/\\].*\.py"
    r"|(?:.*[/\\])?torch[/\\](?:distributed[/\\](?:run|launch|launcher|elastic)|multiprocessing)\b.*\.py"
    r"|.*[/\\]bin[/\\][^/\\]+"
    r")\(\d+\): |^<built-in (?:method|function) exec\b"
)


def starter_frames(frames: pl.DataFrame) -> pl.Series:
    """Return the ``uid`` of the frames that start user code in a thread.

    They are the outermost frames of a thread as long as they are of the interpreter, of a process
    or thread starter, or of a launcher; what such modules do inside user code is not included.

    Args:
        frames: Python frames (``thread, uid, name, ts_ns, dur_ns``).
    """
    placed = stacked(
        frames.select(
            pl.col(C.thread).alias(C.row),
            C.uid,
            C.ts_ns,
            C.dur_ns,
            start=C.ts_ns,
            is_starter=pl.col(C.name).str.contains(_STARTERS),
        )
    ).with_columns(end=pl.col(C.ts_ns) + pl.col(C.dur_ns))
    starters = placed.filter("is_starter")
    found = level = starters.filter(pl.col("lane") == 0)
    while not level.is_empty():
        inner = starters.filter(pl.col("lane") == level["lane"][0] + 1).sort(C.ts_ns)
        outer = level.select(C.row, C.ts_ns, outer_end="end").sort(C.ts_ns)
        level = (
            inner.join_asof(
                outer, on=C.ts_ns, by=C.row, strategy="backward", check_sortedness=False
            )
            .filter(pl.col("end") <= pl.col("outer_end"))
            .drop("outer_end")
        )
        found = pl.concat([found, level])
    return found[C.uid]


_FIRST_NS, _LAST_NS = -(2**62), 2**62
"""Before and after all times of a trace."""


def idle_gaps(run: Run) -> pl.DataFrame:
    """Return the idle time of the steps by time, before their first and after their last GPU event
    included: it adds up to the idle time of their account.

    Rows of ``step_gaps``, with the further columns of ``idle_gaps`` for gaps that are in both; all
    rows of ``idle_gaps`` if no step has a time.
    """
    of_window = run.table("idle_gaps")
    if not _has_steps(run):
        return of_window.sort(C.start_ns)
    of_steps = run.table("step_gaps")
    further = [name for name in of_window.columns if name not in of_steps.columns]
    return of_steps.join(
        of_window.select(C.start_ns, *further), on=C.start_ns, how="left", maintain_order="left"
    ).sort(C.start_ns)


def recorded_gaps(run: Run) -> pl.DataFrame:
    """Return ``idle_gaps`` of the run and the gaps of its GPU window outside the steps, by time."""
    gaps = idle_gaps(run)
    if not _has_steps(run):
        return gaps
    outside = _within(run.table("idle_gaps"), _between_steps(run.table("steps")))
    return pl.concat([gaps, outside], how="diagonal").sort(C.start_ns)


def _between_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Return the times before, between and after the steps: ``from_ns, to_ns``."""
    ordered = steps.drop_nulls(C.dur_ns).sort(C.start_ns)
    ends = (ordered[C.start_ns] + ordered[C.dur_ns]).cum_max()
    limits = pl.Series([_FIRST_NS], dtype=pl.Int64), pl.Series([_LAST_NS], dtype=pl.Int64)
    times = {
        "from_ns": pl.concat([limits[0], ends]),
        "to_ns": pl.concat([ordered[C.start_ns], limits[1]]),
    }
    return pl.DataFrame(times).filter(pl.col("from_ns") < pl.col("to_ns"))


def _within(gaps: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of gaps that are within some times."""
    start, end = pl.col(C.start_ns), pl.col(C.start_ns) + pl.col(C.dur_ns)
    found = gaps.with_columns(end.alias(C.end_ns)).join_where(
        times, pl.col(C.start_ns) < pl.col("to_ns"), pl.col(C.end_ns) > pl.col("from_ns")
    )
    first, last = pl.max_horizontal(start, "from_ns"), pl.min_horizontal(C.end_ns, "to_ns")
    return found.with_columns(first.alias(C.start_ns), (last - first).alias(C.dur_ns)).select(
        gaps.columns
    )


def _has_steps(run: Run) -> bool:
    has_tables = "steps" in run.tables and "step_gaps" in run.tables
    return has_tables and StepAccount.of(run.table("steps")) is not None


HOST, LATENCY, NOT_LINKED = "Host", "Launch latency and gaps", "Not linked"
"""Kinds of events of the path, besides those of linked GPU work."""

PATH_COLUMNS = (C.uid, C.ts_ns, C.dur_ns, C.kind, C.name, "operation", C.input_dims, "what")
"""Columns of ``Timeline.gpu_events`` that events of the path have, too."""

_CALL = "runtime call"
_MOSTLY = 0.5
"""Time of which unlinked work fills this part is its time."""


def path_events(simulation: Simulation, gpu_events: pl.DataFrame) -> pl.DataFrame:
    """Return what the end of the steps waited for, one after the other, by time.

    PATH_COLUMNS of ``gpu_events`` (``Timeline.gpu_events``): GPU work with its ``uid``; host time
    and time between events without one, with the name of its part.
    """
    graph, path = simulation.graph, simulation.recorded.path
    kinds, targets = graph.kind[path.edges], graph.dst[path.edges]
    is_own = kinds == Kind.DURATION
    is_gpu = is_own & (graph.what[targets] == What.GPU_END)
    is_host = np.isin(kinds, HOST_KINDS) | (is_own & ~is_gpu)
    is_unlinked = kinds == Kind.UNLINKED
    busy_part = unlinked_part(graph, path.edges[is_unlinked], simulation.names_of_work)
    is_unlinked[is_unlinked] = busy_part >= _MOSTLY
    names = {int(kind): name for kind, name in OF_KINDS.items()}
    names |= {int(kind): "host work" for kind in HOST_KINDS} | {int(Kind.DURATION): _CALL}
    parts = pl.DataFrame(
        {
            C.uid: graph.uid[targets],
            "is_gpu": is_gpu,
            "part": pl.Series(kinds).cast(pl.Int64).replace_strict(names, default=UNEXPLAINED),
            "is_unlinked": is_unlinked,
            "kind_of_part": np.where(is_host, HOST, np.where(is_unlinked, NOT_LINKED, LATENCY)),
            C.ts_ns: graph.time[targets] - path.ns + graph.first_ns,
            C.dur_ns: path.ns,
        }
    ).with_columns(
        pl.when("is_gpu").then(C.uid).alias(C.uid),
        pl.when("is_unlinked").then(pl.lit(UNLINKED_WORK)).otherwise("part").alias("part"),
    )
    of_gpu = gpu_events.select(PATH_COLUMNS).drop(C.ts_ns, C.dur_ns)
    return (
        parts.filter(pl.col(C.dur_ns) > 0)
        .join(of_gpu, on=C.uid, how="left", maintain_order="left")
        .with_columns(
            pl.coalesce(C.name, "part").alias(C.name),
            pl.coalesce("what", "kind_of_part").alias("what"),
        )
        .select(PATH_COLUMNS)
        .sort(C.ts_ns, C.dur_ns)
    )
