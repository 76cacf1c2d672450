"""The dependency graph as tables of a run, and back."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from jarvis.perf_report.intervals import END
from jarvis.perf_report.timeline import host_spans
from jarvis.perf_report.timeline.host_spans import HostActivity, host_activity, with_threads
from jarvis.schemas import conform
from jarvis.schemas.names import C
from jarvis.simulation.edges import Constants, Kind
from jarvis.simulation.graph import Counts, CycleError, Graph, build_graph
from jarvis.simulation.quality import Grade, Quality, quality
from jarvis.trace import Trace

MAX_SPANS = 200_000
LONG_FRAME_NS = 100_000
"""Minimum duration of a Python frame in ``sim_spans``."""

OPERATOR, ANNOTATION, PYTHON = "operator", "annotation", "python"
HELD = (host_spans.KERNEL_LOADING, host_spans.ALLOCATOR)
"""Causes of calls that a graph launch does not shorten."""

TABLES = ("sim_nodes", "sim_edges", "sim_spans")


class SimulationInfo(BaseModel):
    """What the manifest of a run stores about its simulation.

    ``spans_left_out``: host events that are not in ``sim_spans``.
    """

    model_config = ConfigDict(frozen=True)

    quality: Quality
    window_ns: int = 0
    first_ns: int = 0
    constants: Constants = Constants()
    counts: Counts = Counts()
    spans_left_out: int = 0


def not_simulated(reason: str) -> SimulationInfo:
    """Return the information of a run without a graph."""
    return SimulationInfo(quality=Quality(grade=Grade.NOT_SIMULATED, reason=reason))


def simulation_tables(
    trace: Trace, activity: HostActivity | None = None
) -> tuple[dict[str, pl.DataFrame], SimulationInfo]:
    """Return the tables of the dependency graph of a trace, and what is known about it.

    Without tables if there is nothing to replay. ``activity`` is what its host does, if that is
    known already.
    """
    try:
        graph = build_graph(trace)
    except CycleError:
        return {}, not_simulated("events of the same instant wait for each other")
    if graph is None:
        return {}, not_simulated("the trace has no timed events")
    spans, left_out = _spans(trace, graph, activity or host_activity(trace))
    info = SimulationInfo(
        quality=quality(graph),
        window_ns=graph.window_ns,
        first_ns=graph.first_ns,
        constants=graph.constants,
        counts=graph.counts,
        spans_left_out=left_out,
    )
    nodes = pl.DataFrame(
        {
            C.what: graph.what,
            C.uid: graph.uid,
            C.t_ns: graph.time,
            C.thread: graph.thread,
            C.device: graph.device,
            C.stream: graph.stream,
        }
    )
    edges = pl.DataFrame(
        {
            C.src: graph.src,
            C.dst: graph.dst,
            C.kind: graph.kind,
            C.w_ns: graph.weight,
            C.nominal_ns: graph.nominal,
            C.is_binding: graph.binding,
            C.is_inferred: graph.inferred,
        }
    )
    found = {"sim_nodes": nodes, "sim_edges": edges, "sim_spans": spans}
    return {name: conform(table, name) for name, table in found.items()}, info


def stored_graph(tables: Mapping[str, pl.DataFrame], info: SimulationInfo) -> Graph:
    """Return the graph of a run's tables."""
    nodes, edges = tables["sim_nodes"], tables["sim_edges"]
    return Graph(
        time=nodes[C.t_ns].to_numpy(),
        what=nodes[C.what].to_numpy(),
        uid=nodes[C.uid].to_numpy(),
        thread=nodes[C.thread].to_numpy(),
        device=nodes[C.device].to_numpy(),
        stream=nodes[C.stream].to_numpy(),
        src=edges[C.src].to_numpy(writable=True),
        dst=edges[C.dst].to_numpy(writable=True),
        kind=edges[C.kind].to_numpy(),
        weight=edges[C.w_ns].to_numpy(writable=True),
        nominal=edges[C.nominal_ns].to_numpy(writable=True),
        binding=edges[C.is_binding].to_numpy(),
        inferred=edges[C.is_inferred].to_numpy(),
        first_ns=info.first_ns,
        constants=info.constants,
        counts=info.counts,
    )


def _spans(trace: Trace, graph: Graph, activity: HostActivity) -> tuple[pl.DataFrame, int]:
    """Return the table ``sim_spans`` and how many spans it lacks."""
    waiting = graph.uid[graph.dst[graph.kind == Kind.SYNC]]
    waits = trace.runtime.filter(pl.col(C.uid).is_in(np.unique(waiting)))
    frames = trace.python_functions.filter(pl.col(C.dur_ns) >= LONG_FRAME_NS)
    found = pl.concat(
        [
            *_with_causes(activity),
            *(
                _calls(events, activity, cause)
                for events, cause in (
                    (waits, host_spans.SYNCHRONIZATION),
                    (trace.cpu_ops, OPERATOR),
                    (trace.host_annotations, ANNOTATION),
                    (frames, PYTHON),
                )
            ),
        ]
    )
    longest = _longest(found)
    order = (C.thread, C.start_ns, C.uid, C.cause)
    # Keeping equal rows in order makes it a merge of parts that are in order.
    return longest.sort(order, maintain_order=True), found.height - longest.height


def _longest(spans: pl.DataFrame) -> pl.DataFrame:
    """Return the MAX_SPANS longest spans; of equal ones those with the lowest uid."""
    if spans.height <= MAX_SPANS:
        return spans
    length = pl.col(C.end_ns) - pl.col(C.start_ns)
    lengths = spans.select(length).to_series().to_numpy()
    shortest = int(np.partition(lengths, -MAX_SPANS)[-MAX_SPANS])
    # Only these need to be sorted.
    candidates = spans.filter(length >= shortest)
    return candidates.sort(length, C.uid, descending=[True, False]).head(MAX_SPANS)


def _with_causes(activity: HostActivity) -> list[pl.DataFrame]:
    causes = (host_spans.DATA_LOADING, host_spans.ALLOCATOR, host_spans.KERNEL_LOADING)
    return [
        calls.select(
            C.uid,
            C.name,
            pl.lit(cause).alias(C.cause),
            C.thread,
            pl.col(C.ts_ns).alias(C.start_ns),
            C.end_ns,
        )
        for cause in causes
        if (calls := activity.by_activity.get(cause)) is not None
    ]


def _calls(events: pl.DataFrame, activity: HostActivity, cause: str) -> pl.DataFrame:
    timed = events.drop_nulls([C.ts_ns, C.dur_ns])
    return (
        with_threads(timed, activity.threads)
        .drop_nulls(C.thread)
        .select(
            C.uid,
            C.name,
            pl.lit(cause).alias(C.cause),
            C.thread,
            pl.col(C.ts_ns).alias(C.start_ns),
            END.alias(C.end_ns),
        )
    )
