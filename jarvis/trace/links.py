"""Link GPU events to runtime calls, and autograd nodes to their forward ops."""

import polars as pl

from jarvis.core.expressions import contains
from jarvis.schemas.names import C
from jarvis.trace.tables import THREAD_KEY

GRAPH_LAUNCHES = ("cudaGraphLaunch", "hipGraphLaunch")
"""Runtime calls that launch many kernels under one link id."""

CAPTURE_ROOT = "CaptureRoot"
"""Name of the runtime call around the captured calls of a graph launch, if there are any."""

SUBMITS_WORK = r"(?i)launch|memcpy|memset"
"""Pattern of the names of runtime calls that submit GPU work."""

RUNTIME_CALL = r"^(cuda|cu|hip|ur|ze)[A-Z]\w*$"
"""Pattern of the names of calls of the runtime and the driver, which are no operations."""

ARROW = "ac2g"
"""Category of the flow arrows from a host call to its GPU event."""


BACKWARD_PREFIX = "autograd::engine::evaluate_function:"
"""Prefix of the host events in which autograd runs one backward node."""


def link_column(runtime: pl.DataFrame) -> str:
    """Return the id column that links runtime calls with GPU events, by the first launch call."""
    first = runtime["correlation"].filter(contains(runtime[C.name], "(?i)launch")).head(1)
    return "correlation" if first.drop_nulls().len() else C.external_id


def launch_links(
    runtime: pl.DataFrame, gpu_events: pl.DataFrame, flows: pl.DataFrame
) -> pl.DataFrame:
    """Return ``link_index, runtime_uid, gpu_uid``, sorted by runtime call and GPU event.

    A graph launch owns every GPU event with its id; any other call owns the event at the end of
    its flow arrow. A GPU event has two rows if two calls share an id. Only traces without arrows
    are linked by ids.
    """
    if not (flows[C.cat] == ARROW).any():
        links = _links_by_id(runtime, gpu_events)
    else:
        links = _links_by_arrow(runtime, gpu_events, flows)
    return (
        links.select(C.runtime_uid, C.gpu_uid)
        .sort(C.runtime_uid, C.gpu_uid)
        .with_row_index(C.link_index)
        .cast({C.link_index: pl.Int64})
    )


def _links_by_arrow(
    runtime: pl.DataFrame, gpu_events: pl.DataFrame, flows: pl.DataFrame
) -> pl.DataFrame:
    key = link_column(runtime)
    is_graph = pl.col(C.name).is_in(GRAPH_LAUNCHES)
    calls = runtime.select(C.uid, link=key, is_graph=is_graph).drop_nulls("link")
    by_graph = (
        calls.filter("is_graph")
        .select(C.uid, "link")
        .join(gpu_events.select(C.uid, link=key), on="link", suffix="_gpu")
    )
    by_flow = calls.filter(~pl.col("is_graph")).join(
        _arrow_targets(runtime, gpu_events, flows, key), on="link", suffix="_gpu"
    )
    columns = [pl.col(C.uid).alias(C.runtime_uid), pl.col("uid_gpu").alias(C.gpu_uid)]
    return pl.concat([by_graph.select(columns), by_flow.select(columns)])


def _arrow_targets(
    runtime: pl.DataFrame, gpu_events: pl.DataFrame, flows: pl.DataFrame, key: str
) -> pl.DataFrame:
    """Return ``uid, link`` of the GPU events at the end of an arrow.

    An arrow ends at a thread and an id; the last event there wins, even if it is not a GPU event.
    """
    is_arrow = pl.col(C.cat) == ARROW
    starts = flows.filter(is_arrow & (pl.col("ph") == "s"))["id"]
    ends = (
        flows.filter(is_arrow & (pl.col("ph") == "f"))
        .select(*THREAD_KEY, link="id")
        .unique("link", keep="last", maintain_order=True)
        .filter(pl.col("link").is_in(starts.implode()))
    )
    # Arrows end at few threads, which have hardly any runtime calls.
    threads = ends.select(THREAD_KEY).unique()
    candidates = [
        events.select(C.uid, *THREAD_KEY, link=key, on_gpu=pl.lit(on_gpu)).join(
            threads, on=THREAD_KEY, how="semi", nulls_equal=True
        )
        for events, on_gpu in ((runtime, False), (gpu_events, True))
    ]
    return (
        pl.concat(candidates)
        .join(ends, on="link", suffix="_end")
        .filter(pl.col(name).eq_missing(pl.col(f"{name}_end")) for name in THREAD_KEY)
        .select(C.uid, "link", "on_gpu")
        .sort(C.uid)
        .unique("link", keep="last")
        .filter("on_gpu")
        .select(C.uid, "link")
    )


def _links_by_id(runtime: pl.DataFrame, gpu_events: pl.DataFrame) -> pl.DataFrame:
    """Return one call per GPU event, matched by ``correlation``, else by ``External id``.

    An external id is that of an op with possibly several calls: those that submit work are matched
    to events in order of start; the last call gets the remaining events.
    """
    by_correlation = _id_pairs(runtime, gpu_events, "correlation").unique(C.gpu_uid, keep="last")
    if not by_correlation.is_empty():
        return by_correlation
    pairs = _id_pairs(
        runtime.filter(pl.col(C.name).str.contains(SUBMITS_WORK)),
        gpu_events.sort(C.ts_ns, C.uid),
        C.external_id,
    )
    return pairs.filter(pl.min_horizontal("event", "last_call") == pl.col("call"))


def _id_pairs(runtime: pl.DataFrame, gpu_events: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return ``runtime_uid, gpu_uid`` with equal ids, numbered within the id: ``call, event``."""
    number = pl.int_range(pl.len()).over("link")
    calls = (
        runtime.sort(C.uid)
        .select(pl.col(C.uid).alias(C.runtime_uid), link=key)
        .filter(pl.col("link") > 0)
    )
    events = gpu_events.select(pl.col(C.uid).alias(C.gpu_uid), link=key).filter(pl.col("link") > 0)
    return (
        calls.with_columns(call=number, last_call=pl.len().over("link").cast(pl.Int64) - 1)
        .join(events.with_columns(event=number), on="link", maintain_order="left_right")
        .drop("link")
    )


def backward_links(cpu_ops: pl.DataFrame) -> pl.DataFrame:
    """Return ``backward_uid, forward_uid``: autograd nodes and the ops that they differentiate.

    Of each sequence number the first autograd node is used; its forward is the op with the same
    number that starts last on any other thread.
    """
    is_backward = pl.col(C.name).str.starts_with(BACKWARD_PREFIX)
    numbered = cpu_ops.select(
        C.uid, C.pid, C.tid, C.ts_ns, C.sequence_number, is_backward=is_backward
    ).drop_nulls(C.sequence_number)
    backward = (
        numbered.filter("is_backward")
        .select(C.uid, C.pid, C.tid, C.sequence_number)
        .unique(C.sequence_number, keep="first", maintain_order=True)
    )
    other_thread = (pl.col(C.pid) != pl.col("pid_b")) | (pl.col(C.tid) != pl.col("tid_b"))
    return (
        numbered.join(backward, on=C.sequence_number, suffix="_b")
        .filter(other_thread)
        .sort(C.ts_ns, C.uid, descending=[True, False])
        .unique("uid_b", keep="first", maintain_order=True)
        .select(pl.col("uid_b").alias(C.backward_uid), pl.col(C.uid).alias(C.forward_uid))
        .sort(C.backward_uid)
    )
