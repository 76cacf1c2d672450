"""Facts about links between GPU work and host calls, and about captures of replayed graphs."""

from collections.abc import Iterator

import polars as pl

from jarvis.capture import MergedTrace
from jarvis.capture.engines import engine_of
from jarvis.capture.tables import REPLAYED_PCT
from jarvis.perf_report.intervals import greatest_ns, least_ns
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, percent
from jarvis.trace import Trace
from jarvis.trace.links import ARROW, GRAPH_LAUNCHES, link_column
from jarvis.trace_health.facts import Fact, Severity, when

LINKED_PCT = 99.0
"""Below this share of GPU time linked to host calls, a warning is shown."""

_FINISH_FIRST = "Synchronize the GPU before the recording begins."
_NEWER_PROFILER = "A newer version of the profiler may record the arrows."


def link_facts(trace: Trace) -> Iterator[Fact]:
    """Yield the facts about linked and unlinked GPU work."""
    work = _work(trace)
    if work.is_empty():
        return
    yield _linked(work, has_calls=not trace.runtime.is_empty())
    if trace.runtime.is_empty():
        return
    yield _launched_before(work)
    yield _without_arrow(work)
    yield _graph_replay(work, trace)
    yield _link_method(trace)
    yield _shared_ids(trace)


def _work(trace: Trace) -> pl.DataFrame:
    """Return GPU events with a duration: ``ts_ns, dur_ns, linked, by_graph, has_launch``."""
    key = link_column(trace.runtime)
    graphs = trace.runtime.filter(pl.col(C.name).is_in(GRAPH_LAUNCHES)).select(
        pl.col(C.uid).alias(C.runtime_uid)
    )
    replayed = trace.recording.launches.join(graphs, on=C.runtime_uid, how="semi")[C.gpu_uid]
    ids = trace.runtime[key].drop_nulls()
    return trace.gpu_events.filter(pl.col(C.dur_ns) >= 0).select(
        C.ts_ns,
        C.dur_ns,
        pl.col(C.uid).is_in(trace.launches[C.gpu_uid].implode()).alias(C.linked),
        by_graph=pl.col(C.uid).is_in(replayed.implode()),
        has_launch=pl.col(key).is_in(ids.implode()).fill_null(value=False),
    )


def _ms(work: pl.DataFrame) -> float:
    return float(work[C.dur_ns].sum()) / 1e6


def _share_pct(part: pl.DataFrame, whole: pl.DataFrame) -> float:
    return 100 * _ms(part) / _ms(whole) if _ms(whole) else 0.0


def _linked(work: pl.DataFrame, *, has_calls: bool) -> Fact:
    rest = work.filter(~pl.col(C.linked))
    linked_pct = 100 - _share_pct(rest, work)
    title = "GPU time linked to host calls"
    if not has_calls:
        return Fact(
            "linked_gpu_time",
            title,
            "The trace contains no launch calls, so no GPU work is linked to the host.",
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
        f"the trace, {percent(100 - linked_pct)} ({milliseconds(_ms(rest))}) is not: "
        f"{_reasons(work)}.",
        linked_pct,
        "%",
        when(linked_pct < LINKED_PCT, Severity.WARNING),
        "The GPU window and the tables of operations exclude the unlinked work; the step time "
        "counts it as busy."
        if work[C.linked].any()
        else "The timeline counts all GPU work; the tables of operations have none.",
        _FINISH_FIRST if 2 * _ms(early) > _ms(rest) else _NEWER_PROFILER,
    )


def _reasons(work: pl.DataFrame) -> str:
    """Return what is known of the work without a link."""
    rest = work.filter(~pl.col(C.linked))
    early, single = rest.filter(~pl.col("has_launch")), rest.filter("has_launch")
    first_ns, last_ns = least_ns(work.filter(C.linked)[C.ts_ns]), greatest_ns(early[C.ts_ns])
    is_before = first_ns is not None and last_ns is not None and last_ns < first_ns
    reasons = (
        (early, "was launched before the recording" if is_before else "has no recorded launch"),
        (single, "has a recorded launch without an arrow"),
    )
    found = [(milliseconds(_ms(part)), reason) for part, reason in reasons if part.height]
    if len(found) == 1:
        return f"it {found[0][1]}"
    return "; ".join(f"{time} {reason}" for time, reason in found)


def _launched_before(work: pl.DataFrame) -> Fact:
    early = work.filter(~pl.col(C.linked) & ~pl.col("has_launch"))
    key, title = "launched_before", "GPU work launched before the recording"
    if early.is_empty():
        return Fact(key, title, "Every GPU event has its launch in the trace.", 0.0, "events")
    return Fact(
        key,
        title,
        f"{counted(early.height, 'GPU event')} ({milliseconds(_ms(early))}) launched before the "
        "recording began, or by calls that were not recorded.",
        float(early.height),
        "events",
        Severity.NOTE,
        "They belong to no operation.",
        _FINISH_FIRST,
    )


def _without_arrow(work: pl.DataFrame) -> Fact:
    single = work.filter(~pl.col(C.linked) & pl.col("has_launch"))
    key, title = "launches_without_arrow", "Launches without a flow arrow"
    if single.is_empty():
        return Fact(key, title, "No launch lacks its flow arrow.", 0.0, "events")
    return Fact(
        key,
        title,
        f"{counted(single.height, 'GPU event')} ({milliseconds(_ms(single))}) with a launch in the "
        "trace, but without a flow arrow from it.",
        float(single.height),
        "events",
        Severity.NOTE,
        "They count as unlinked, as in TraceLens.",
        _NEWER_PROFILER,
    )


def _graph_replay(work: pl.DataFrame, trace: Trace) -> Fact:
    replayed = work.filter("by_graph")
    share_pct = _share_pct(replayed, work)
    key, title = "graph_replay", "GPU time replayed from GPU graphs"
    if replayed.is_empty():
        return Fact(key, title, "No work is replayed from GPU graphs.", 0.0, "%")
    summary = (
        f"{percent(share_pct)} of GPU time ({milliseconds(_ms(replayed))}) is replayed from GPU "
        "graphs."
    )
    if isinstance(trace, MergedTrace):  # ``capture_facts`` tells what lacks a captured call
        return Fact(key, title, summary, share_pct, "%")
    engine = engine_of(trace.python_functions[C.name].unique().cast(pl.String))
    has_shapes = trace.cpu_ops[C.input_dims].null_count() < trace.cpu_ops.height
    return Fact(
        key,
        title,
        f"Shapes missing: {summary}",
        share_pct,
        "%",
        Severity.WARNING if share_pct > REPLAYED_PCT else Severity.NOTE,
        "Replayed kernels have no operators, shapes or modules, so their efficiency is not known.",
        f"Record the capture of the graphs, too ({engine.name}: {engine.capture}), and analyze "
        "both with `--capture-folder`; or record one step without GPU graphs"
        f"{'' if has_shapes else ' and with `record_shapes=True`'}.",
    )


def _link_method(trace: Trace) -> Fact:
    key, title = "link_basis", "How GPU work is linked"
    if trace.flows.filter(pl.col(C.cat) == ARROW).height:
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
    note = " A kernel may be assigned to a neighboring call of its operation."
    return Fact(
        key,
        title,
        f"The trace has no flow arrows; GPU work is linked by {ids}.",
        severity=Severity.NOTE,
        affects="TraceLens finds no GPU work in such a trace."
        + (note if ids == "External id" else ""),
        remedy="Export the trace with the profiler's own `export_chrome_trace`.",
    )


def _linking_id(trace: Trace) -> str:
    """Return the id that links a trace without arrows: one shared by call and GPU event."""
    first = trace.launches.head(1)
    call = trace.runtime.join(first, left_on=C.uid, right_on=C.runtime_uid)
    event = trace.gpu_events.join(first, left_on=C.uid, right_on=C.gpu_uid)
    shares = call["correlation"].item() == event["correlation"].item()
    return "correlation" if shares and call["correlation"].item() else "External id"


def _shared_ids(trace: Trace) -> Fact:
    ids = trace.runtime["correlation"].drop_nulls()
    shared = int((ids.filter(ids > 0).value_counts()["count"] - 1).sum())
    twice = int(trace.launches[C.gpu_uid].is_duplicated().sum())
    key, title = "shared_correlations", "Runtime calls that share a correlation id"
    if not shared:
        return Fact(key, title, "Every runtime call has a unique id.", 0.0, "calls")
    return Fact(
        key,
        title,
        f"{counted(shared, 'runtime call')} with a repeated correlation id.",
        float(shared),
        "calls",
        Severity.WARNING if twice else Severity.NOTE,
        f"{counted(twice, 'link')} to GPU events with several calls; their time counts for each "
        "call."
        if twice
        else "No GPU event is linked to two calls.",
        "Analyze the trace of each process separately.",
    )


def capture_facts(trace: Trace) -> Iterator[Fact]:
    """Yield how much of the replayed work has a captured call, if there are captures."""
    if not isinstance(trace, MergedTrace):
        return
    events = sum(match.replay.events.height for match in trace.matches)
    total = sum(sum(match.replay.replayed.durations_ns) for match in trace.matches)
    covered = sum(
        match.chosen.coverage * sum(match.replay.replayed.durations_ns)
        for match in trace.matches
        if match.chosen is not None
    )
    pct = 100 * covered / total if total else 0.0
    reasons = dict.fromkeys(match.reason for match in trace.matches if match.chosen is None)
    unverified = any(match.confidence == "unverified" for match in trace.matches)
    refused = sum(match.chosen is None for match in trace.matches)
    without = f" {counted(refused, 'graph launch')} without capture: {'; '.join(reasons)}."
    state = "have the operator and shapes of their capture"
    yield Fact(
        "graph_captures",
        "Replayed work with a captured call",
        f"{trace.links.height:,} of {counted(events, 'replayed GPU event')} "
        f"({percent(pct)} of their time) {state}.{without if refused else ''}",
        pct,
        "%",
        Severity.WARNING if refused or unverified else Severity.OK,
        "Other replayed kernels have no shapes." if refused else _doubt(unverified),
        "Pass the captures of all graphs that the trace replays." if refused else "",
    )


def _doubt(unverified: bool) -> str:
    return "Captured calls have no kernel names: shapes follow from their order only." * unverified
