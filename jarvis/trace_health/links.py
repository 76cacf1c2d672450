"""Facts about GPU work: how much of it the trace links to host calls, and why not the rest."""

from collections.abc import Iterator

import polars as pl

from jarvis.text.format import counted, milliseconds, percent
from jarvis.trace import Trace
from jarvis.trace.links import ARROW, GRAPH_LAUNCHES, link_column
from jarvis.trace_health.facts import Fact, Severity, when

LINKED_PCT = 99.0
"""With less of the GPU time linked to host calls, every reader is warned."""

GRAPH_PCT = 1.0
"""With more of the GPU time replayed from graphs, every reader is warned."""

_FINISH_FIRST = (
    "Let the GPU finish before the recording begins: wait for it, and give the profiler's "
    "`schedule` warm-up steps."
)
_NEWER_PROFILER = "A newer version of the profiler may record the arrows."


def link_facts(trace: Trace) -> Iterator[Fact]:
    """What of the GPU work is linked, what is not, and by what."""
    work = _work(trace)
    if work.is_empty():
        return
    yield _linked(work, has_calls=not trace.runtime.is_empty())
    if trace.runtime.is_empty():
        return
    yield _launched_before(work)
    yield _without_arrow(work)
    yield _graph_replay(work)
    yield _basis(trace)
    yield _shared_ids(trace)


def _work(trace: Trace) -> pl.DataFrame:
    """GPU events with a duration: ``dur_ns, linked, by_graph, has_launch``."""
    key = link_column(trace.runtime)
    graphs = trace.runtime.filter(pl.col("name").is_in(GRAPH_LAUNCHES)).select(runtime_uid="uid")
    replayed = trace.launches.join(graphs, on="runtime_uid", how="semi")["gpu_uid"]
    ids = trace.runtime[key].drop_nulls()
    return trace.gpu_events.filter(pl.col("dur_ns") >= 0).select(
        "dur_ns",
        linked=pl.col("uid").is_in(trace.launches["gpu_uid"].implode()),
        by_graph=pl.col("uid").is_in(replayed.implode()),
        has_launch=pl.col(key).is_in(ids.implode()).fill_null(value=False),
    )


def _ms(work: pl.DataFrame) -> float:
    return float(work["dur_ns"].sum()) / 1e6


def _share_pct(part: pl.DataFrame, whole: pl.DataFrame) -> float:
    return 100 * _ms(part) / _ms(whole) if _ms(whole) else 0.0


def _linked(work: pl.DataFrame, *, has_calls: bool) -> Fact:
    rest = work.filter(~pl.col("linked"))
    linked_pct = 100 - _share_pct(rest, work)
    title = "GPU time linked to host calls"
    if not has_calls:
        return Fact(
            "linked_gpu_time",
            title,
            "The trace holds no launch calls, so no GPU work is linked to the host.",
            linked_pct,
            "%",
            Severity.NOTE,
            "The timeline counts all GPU work; there are no operations.",
            "Record with CPU activity.",
        )
    if rest.is_empty():
        summary = "All GPU time is linked to host calls of the trace."
        return Fact("linked_gpu_time", title, summary, linked_pct, "%")
    early = rest.filter(~pl.col("has_launch"))
    return Fact(
        "linked_gpu_time",
        title,
        f"{percent(linked_pct)} of GPU time, summed over all streams, is linked to host calls of "
        "the "
        f"trace, {percent(100 - linked_pct)} ({milliseconds(_ms(rest))}) is not.",
        linked_pct,
        "%",
        when(linked_pct < LINKED_PCT, Severity.WARNING),
        "The timeline and all tables leave the unlinked work out."
        if work["linked"].any()
        else "The timeline counts all GPU work; the tables of operations have none.",
        _FINISH_FIRST if 2 * _ms(early) > _ms(rest) else _NEWER_PROFILER,
    )


def _launched_before(work: pl.DataFrame) -> Fact:
    early = work.filter(~pl.col("linked") & ~pl.col("has_launch"))
    key, title = "launched_before", "GPU work launched before the recording"
    if early.is_empty():
        return Fact(key, title, "Every GPU event has its launch in the trace.", 0.0, "events")
    return Fact(
        key,
        title,
        f"{counted(early.height, 'GPU event')} ({milliseconds(_ms(early))}) were launched before "
        "the "
        "recording began, or by calls that it does not hold.",
        float(early.height),
        "events",
        Severity.NOTE,
        "They belong to no operation.",
        _FINISH_FIRST,
    )


def _without_arrow(work: pl.DataFrame) -> Fact:
    single = work.filter(~pl.col("linked") & pl.col("has_launch"))
    key, title = "launches_without_arrow", "Launches without a flow arrow"
    if single.is_empty():
        return Fact(key, title, "No launch lacks its flow arrow.", 0.0, "events")
    return Fact(
        key,
        title,
        f"{counted(single.height, 'GPU event')} ({milliseconds(_ms(single))}) have a launch in "
        "the trace, "
        "but no flow arrow from it.",
        float(single.height),
        "events",
        Severity.NOTE,
        "They count as unlinked, as in TraceLens.",
        _NEWER_PROFILER,
    )


def _graph_replay(work: pl.DataFrame) -> Fact:
    replayed = work.filter("by_graph")
    share_pct = _share_pct(replayed, work)
    key, title = "graph_replay", "GPU time replayed from GPU graphs"
    if replayed.is_empty():
        return Fact(key, title, "No work is replayed from GPU graphs.", 0.0, "%")
    return Fact(
        key,
        title,
        f"{percent(share_pct)} of GPU time ({milliseconds(_ms(replayed))}) is replayed from GPU "
        "graphs.",
        share_pct,
        "%",
        Severity.WARNING if share_pct > GRAPH_PCT else Severity.NOTE,
        "Replayed kernels have no operators, shapes or modules of their own, so no perf model.",
        "Record one step without GPU graphs.",
    )


def _basis(trace: Trace) -> Fact:
    key, title = "link_basis", "How GPU work is linked"
    if trace.flows.filter(pl.col("cat") == ARROW).height:
        return Fact(key, title, "By the flow arrows of the trace.")
    if trace.launches.is_empty():
        return Fact(
            key,
            title,
            "The trace has neither flow arrows nor ids that link GPU work to its launches.",
            severity=Severity.NOTE,
            affects="No operation has GPU time.",
            remedy="Export the trace with the profiler's own `export_chrome_trace`.",
        )
    ids = _linking_id(trace)
    shares = " A kernel may stand at a neighboring call of its operation."
    return Fact(
        key,
        title,
        f"The trace has no flow arrows; GPU work is linked by {ids}.",
        severity=Severity.NOTE,
        affects="TraceLens sees no GPU work in such a trace."
        + (shares if ids == "External id" else ""),
        remedy="Export the trace with the profiler's own `export_chrome_trace`.",
    )


def _linking_id(trace: Trace) -> str:
    """The id by which a trace without arrows is linked: one that call and GPU event share."""
    first = trace.launches.head(1)
    call = trace.runtime.join(first, left_on="uid", right_on="runtime_uid")
    event = trace.gpu_events.join(first, left_on="uid", right_on="gpu_uid")
    shares = call["correlation"].item() == event["correlation"].item()
    return "correlation" if shares and call["correlation"].item() else "External id"


def _shared_ids(trace: Trace) -> Fact:
    ids = trace.runtime["correlation"].drop_nulls()
    shared = int((ids.filter(ids > 0).value_counts()["count"] - 1).sum())
    twice = int(trace.launches["gpu_uid"].is_duplicated().sum())
    key, title = "shared_correlations", "Runtime calls that share a correlation id"
    if not shared:
        return Fact(key, title, "Every runtime call has an id of its own.", 0.0, "calls")
    return Fact(
        key,
        title,
        f"{counted(shared, 'runtime call')} repeat a correlation id.",
        float(shared),
        "calls",
        Severity.WARNING if twice else Severity.NOTE,
        f"{counted(twice, 'link')} are of GPU events that more than one call claims; their time "
        "counts at each."
        if twice
        else "No GPU event is claimed twice.",
        "Analyze the trace of each process by itself.",
    )
