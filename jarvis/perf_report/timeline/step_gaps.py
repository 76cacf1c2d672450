"""The idle time of each step with its causes, and the slow steps."""

from dataclasses import replace
from enum import StrEnum

import polars as pl

from jarvis.perf_report.calls import HostCalls
from jarvis.perf_report.intervals import END
from jarvis.perf_report.timeline.host_spans import HostActivity, with_threads
from jarvis.perf_report.timeline.idle_gaps import IdleCause, explained, with_launches
from jarvis.perf_report.timeline.steps import IDLE_PARTS, PARTS
from jarvis.perf_report.work import GpuWork
from jarvis.schemas.names import C
from jarvis.schemas.steps import OF_GAPS
from jarvis.trace import Trace

MIN_STEPS = 3
"""Minimum number of steps that have a median to compare with."""

MIN_CAUSE_SHARE = 0.5
"""Minimum share of a slow part's excess that one cause must explain to be named."""

SLOW_STEP_PCT = 5.0
"""A step is slow if it exceeds the median by more."""


class Place(StrEnum):
    """Where in a step the GPU idles, relative to the GPU events in it."""

    BEFORE = "before"
    BETWEEN = "between"
    AFTER = "after"


_PLACES = dict(zip(Place, IDLE_PARTS, strict=True))


def step_gaps(
    steps: pl.DataFrame,
    idle_gaps: pl.DataFrame,
    trace: Trace,
    work: GpuWork,
    calls: HostCalls,
    activity: HostActivity,
) -> pl.DataFrame:
    """Return the idle time of each step (schema: ``step_gaps``), by step and time.

    The time before the first and after the last GPU event of a step is a gap of its own, from the
    start or to the end of the step, and has the causes of ``idle_gaps``.

    Args:
        steps: Result of ``steps.steps``.
        idle_gaps: The gaps between all GPU work.
        trace: The trace.
        work: All its GPU work, with that of unrecorded launches.
        calls: Its host calls.
        activity: What its host does.
    """
    threads = steps.select(C.step, C.pid, C.tid).join(activity.threads, on=[C.pid, C.tid])
    edges = _edges(steps, work.window).join(
        threads.select(C.step, step_thread=C.thread), on=C.step, how="left", maintain_order="left"
    )
    edges = _with_host(edges, trace, activity)
    # The host is recorded in a step, even if Python frames are all that it has.
    outer = explained(edges, trace, work, calls, replace(activity, first_ns=None, last_ns=None))
    inner = _between(steps, idle_gaps).with_columns(pl.lit(Place.BETWEEN.value).alias(C.place))
    of_steps = steps.select(C.step, step_ns=C.dur_ns)
    # No kernel is beside an edge on both sides that could be shorter than a launch.
    is_launch = pl.col(C.cause) == IdleCause.LAUNCH_BOUND.value
    cause = pl.when(is_launch).then(pl.lit(IdleCause.HOST_WORK.value)).otherwise(C.cause)
    outer = outer.with_columns(cause.alias(C.cause))
    return (
        pl.concat([outer.select(inner.columns), inner])
        .join(of_steps, on=C.step, how="left", maintain_order="left")
        .with_columns((100 * pl.col(C.dur_ns) / pl.col("step_ns")).alias(C.percent_of_step))
        .sort(C.step, C.start_ns)
    )


def _between(steps: pl.DataFrame, idle_gaps: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps between GPU events of the same step, with ``step``."""
    spans = steps.select(
        C.step,
        from_ns=pl.col(C.start_ns) + pl.col(C.idle_before_ns),
        to_ns=pl.col(C.end_ns) - pl.col(C.idle_after_ns),
    ).drop_nulls()
    columns = (C.start_ns, C.dur_ns, C.cause, *OF_GAPS)
    end = pl.col(C.start_ns) + pl.col(C.dur_ns)
    return (
        idle_gaps.select(columns)
        .sort(C.start_ns)
        .join_asof(spans.sort("from_ns"), left_on=C.start_ns, right_on="from_ns")
        .filter(end <= pl.col("to_ns"))
        .select(C.step, *columns)
    )


def _edges(steps: pl.DataFrame, window: pl.DataFrame) -> pl.DataFrame:
    """Return the idle time before and after the GPU events of each step as gaps, with ``step`` and
    ``place``, and the GPU events beside them, as ``find_gaps`` does."""
    first = pl.col(C.start_ns)
    before = steps.select(
        C.step, C.start_ns, (first + pl.col(C.idle_before_ns)).alias(C.end_ns)
    ).with_columns(pl.lit(Place.BEFORE.value).alias(C.place))
    after = steps.select(
        C.step, (pl.col(C.end_ns) - pl.col(C.idle_after_ns)).alias(C.start_ns), C.end_ns
    ).with_columns(pl.lit(Place.AFTER.value).alias(C.place))
    edges = (
        pl.concat([before, after])
        .filter(pl.col(C.start_ns) < pl.col(C.end_ns))
        .with_row_index("gap")
        .with_columns(
            pl.col("gap").cast(pl.Int64), (pl.col(C.end_ns) - pl.col(C.start_ns)).alias(C.dur_ns)
        )
    )
    events = window.sort(C.ts_ns, C.uid)
    columns = (C.uid, C.name, C.kind, C.stream, C.launch_uid, C.launcher_uid)
    for side, time, edge in (("prev_", END, C.start_ns), ("next_", pl.col(C.ts_ns), C.end_ns)):
        beside = events.select(time.alias(edge), pl.col(columns).name.prefix(side))
        edges = edges.join(
            beside.unique(edge, keep="first"), on=edge, how="left", maintain_order="left"
        )
    return edges


def _with_host(edges: pl.DataFrame, trace: Trace, activity: HostActivity) -> pl.DataFrame:
    """Return edges as ``explained`` takes them.

    Host time is that of the step: from the beginning of the gap, on the thread that launches the
    next event. If no event ends the gap, it is the thread of the step's mark, or without marks the
    one that launches most events.
    """
    launches = trace.launches.select(pl.col(C.runtime_uid).alias(C.uid))
    calls = trace.runtime.select(C.uid, C.pid, C.tid).join(launches, on=C.uid, how="semi")
    threads = with_threads(calls, activity.threads)[C.thread]
    most = threads.value_counts(sort=True)[C.thread].head(1).to_list() or [None]
    has_next = pl.col(C.next_uid).is_not_null()
    at_end = [
        pl.when(has_next).then(name).otherwise(C.end_ns).alias(name)
        for name in ("launch_ns", "launch_end_ns", "submitted_ns")
    ]
    return with_launches(edges, trace, activity).with_columns(
        *at_end,
        pl.when(has_next)
        .then("launch_thread")
        .otherwise(pl.coalesce("step_thread", pl.lit(most[0], pl.Int64)))
        .alias("launch_thread"),
        before_ns=C.start_ns,
        before_thread=pl.lit(None, pl.Int64),
        is_pending=pl.lit(False),
    )


def with_slow_steps(steps: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return steps with the columns on slow steps.

    The slow part exceeds its median over the steps most. Of idle time, the cause that exceeds its
    own median most is named, with the host call of its longest gap, if that is at least
    MIN_CAUSE_SHARE of what the part exceeds its median by.
    """
    times = steps[C.dur_ns].drop_nulls()
    median = pl.col(C.dur_ns).median().round().cast(pl.Int64)
    is_known = pl.lit(times.len() >= MIN_STEPS)
    excess = pl.when(is_known).then(pl.col(C.dur_ns) - median)
    is_slow = (100 * excess > SLOW_STEP_PCT * median).fill_null(False)
    parts = pl.concat_list(pl.col(part) - pl.col(part).median() for part in PARTS)
    part = parts.list.arg_max().replace_strict(dict(enumerate(PARTS)), return_dtype=pl.String)
    rows = steps.with_columns(
        excess.alias(C.excess_ns),
        is_slow.alias(C.is_slow),
        pl.when(is_slow).then(part).alias(C.slow_part),
    )
    causes = _slow_causes(rows, gaps)
    return rows.join(causes, on=C.step, how="left", maintain_order="left").with_columns(
        pl.col(C.slow_part).str.strip_suffix("_ns")
    )


def _slow_causes(rows: pl.DataFrame, gaps: pl.DataFrame) -> pl.DataFrame:
    """Return ``step, slow_cause, slow_call`` of the slow steps that one cause explains."""
    timed = rows.drop_nulls(C.dur_ns)
    slow = timed.filter(C.is_slow).select(
        C.step,
        pl.col(C.slow_part)
        .replace_strict(
            {part: str(place) for place, part in _PLACES.items()},
            default=None,
            return_dtype=pl.String,
        )
        .alias(C.place),
        part_excess=pl.max_horizontal(
            pl.when(pl.col(C.slow_part) == part).then(pl.col(part) - timed[part].median())
            for part in IDLE_PARTS
        ),
    )
    of_steps = (
        gaps.sort(C.dur_ns, C.start_ns, descending=[True, False])
        .group_by(C.step, C.place, C.cause, maintain_order=True)
        .agg(pl.col(C.dur_ns).sum(), pl.col(C.host_call).first().alias(C.slow_call))
    )
    kinds = of_steps.select(C.place, C.cause).unique(maintain_order=True)
    usual = (
        timed.select(C.step)
        .join(kinds, how="cross")
        .join(of_steps, on=[C.step, C.place, C.cause], how="left", maintain_order="left")
        .with_columns(pl.col(C.dur_ns).fill_null(0))
        .with_columns(
            excess=pl.col(C.dur_ns) - pl.col(C.dur_ns).median().over(C.place, C.cause),
        )
    )
    return (
        slow.drop_nulls()
        .join(usual, on=[C.step, C.place])
        .filter(pl.col("excess") >= MIN_CAUSE_SHARE * pl.col("part_excess"))
        .sort(C.step, "excess", C.cause, descending=[False, True, False])
        .unique(C.step, keep="first", maintain_order=True)
        .select(C.step, pl.col(C.cause).alias(C.slow_cause), C.slow_call)
    )
