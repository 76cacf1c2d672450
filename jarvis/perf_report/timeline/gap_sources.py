"""Name where the host is while the GPU idles: Python function, annotation, and copy."""

import polars as pl

from jarvis.perf_report.timeline.callers import Callers, annotations_around, python_callers
from jarvis.perf_report.timeline.host_spans import HostActivity
from jarvis.perf_report.work import COPY
from jarvis.schemas.names import C
from jarvis.trace import Trace

MIN_SHARE = 0.5
"""Minimum share of a gap, or of the host time before it, that a cause or a function fills."""

_WAITS_FOR_COPY = r"(?i)(stream|event)synchronize"


def with_sources(
    gaps: pl.DataFrame, trace: Trace, events: pl.DataFrame, activity: HostActivity
) -> pl.DataFrame:
    """Return gaps with ``host_frame, host_annotation, host_copy_uid``.

    Args:
        gaps: With causes, ``call_uid`` and ``host_op_uid``; ``device_cause`` is null where the
            host causes the gap.
        trace: The trace.
        events: All GPU events of the trace.
        activity: What its host does.
    """
    by_host = gaps.filter(pl.col("device_cause").is_null())
    functions = python_callers(trace, activity.threads)
    frame, annotation = (
        _during(by_host, callers)
        for callers in (functions, annotations_around(trace, activity.threads))
    )
    named = gaps.join(
        frame.rename({"found": "frame"}), on="gap", how="left", maintain_order="left"
    ).join(
        annotation.rename({"found": C.host_annotation}),
        on="gap",
        how="left",
        maintain_order="left",
    )
    calling = pl.lit(None, pl.String) if functions is None else functions.around(gaps["call_uid"])
    return named.with_columns(
        pl.coalesce(calling, "frame").alias(C.host_frame),
        # The loader is both.
        pl.when(pl.col(C.host_annotation).ne_missing(pl.col(C.host_call))).then(C.host_annotation),
        _copies(gaps, trace, events).alias(C.host_copy_uid),
    ).drop("frame")


def _during(gaps: pl.DataFrame, callers: Callers | None) -> pl.DataFrame:
    """Return ``gap, found``, on the thread of the launch, else on that of the previous one."""
    to_ns = pl.min_horizontal("to_ns", C.end_ns)
    spans = pl.concat(
        gaps.select("gap", pl.col(thread).alias(C.thread), from_ns=C.start_ns, to_ns=to_ns)
        for thread in ("launch_thread", "before_thread")
    ).filter(pl.col(C.thread).is_not_null() & (pl.col("from_ns") < pl.col("to_ns")))
    if callers is None or spans.is_empty():
        return pl.DataFrame(schema={"gap": pl.Int64, "found": pl.String})
    return callers.during(spans, MIN_SHARE)


def _copies(gaps: pl.DataFrame, trace: Trace, events: pl.DataFrame) -> pl.Series:
    """Return the copy that the call of each gap waits for.

    That is the copy that it launches, or of a call that waits for a stream the last one that its
    operator launched before.
    """
    copies = events.filter((pl.col(C.kind) == COPY) & pl.col(C.linked)).select(
        pl.col(C.uid).alias("copy_uid"), C.launch_uid, C.op_uid
    )
    times = trace.runtime.select(pl.col(C.uid).alias(C.launch_uid), launched_ns=C.ts_ns)
    copies = copies.join(times, on=C.launch_uid).drop_nulls("launched_ns")
    calls = gaps.select(
        "gap", "call_uid", C.host_call, pl.col("host_op_uid").alias(C.op_uid)
    ).drop_nulls("call_uid")
    own = calls.join(copies, left_on="call_uid", right_on=C.launch_uid)
    waiting = calls.filter(pl.col(C.host_call).str.contains(_WAITS_FOR_COPY)).join(
        times.rename({C.launch_uid: "call_uid", "launched_ns": "called_ns"}), on="call_uid"
    )
    earlier = waiting.join(copies, on=C.op_uid).filter(pl.col("launched_ns") <= pl.col("called_ns"))
    found = (
        pl.concat([part.select("gap", "copy_uid", "launched_ns") for part in (own, earlier)])
        .sort("gap", "launched_ns", "copy_uid")
        .unique("gap", keep="last")
    )
    return gaps.join(found, on="gap", how="left", maintain_order="left")["copy_uid"]
