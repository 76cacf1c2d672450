"""Which GPU event was launched by which runtime call, and which backward belongs to which op."""

import polars as pl

GRAPH_LAUNCHES = ("cudaGraphLaunch", "hipGraphLaunch")
"""Runtime calls that launch many kernels under one link id."""

SUBMITS_WORK = r"(?i)launch|memcpy|memset"
"""Names of the runtime calls that put work on the GPU."""

ARROW = "ac2g"
"""Category of the flow arrows from a host call to its GPU event."""

BACKWARD_PREFIX = "autograd::engine::evaluate_function:"
"""Names of the host events under which autograd runs one backward node."""


def link_column(runtime: pl.DataFrame) -> str:
    """The id that links runtime calls with GPU events: that of the first launch call."""
    launches = runtime.filter(pl.col("name").str.to_lowercase().str.contains("launch")).head(1)
    return "correlation" if launches["correlation"].drop_nulls().len() else "external_id"


def launch_links(
    runtime: pl.DataFrame, gpu_events: pl.DataFrame, flows: pl.DataFrame
) -> pl.DataFrame:
    """Rows ``link_index, runtime_uid, gpu_uid``: runtime calls in file order, then their children.

    A graph launch owns every GPU event with its id; any other call owns the event to which its
    flow arrow points. A GPU event can stand twice where two calls carry one id. Only a trace
    without any arrow links by ids alone.
    """
    arrows = flows.filter(pl.col("cat") == ARROW)
    if arrows.is_empty():
        links = _links_by_id(runtime, gpu_events)
    else:
        links = _links_by_arrow(runtime, gpu_events, arrows)
    return (
        links.select("runtime_uid", "gpu_uid")
        .sort("runtime_uid", "gpu_uid")
        .with_row_index("link_index")
        .cast({"link_index": pl.Int64})
    )


def _links_by_arrow(
    runtime: pl.DataFrame, gpu_events: pl.DataFrame, arrows: pl.DataFrame
) -> pl.DataFrame:
    key = link_column(runtime)
    calls = runtime.select("uid", "name", link=key).drop_nulls("link")
    is_graph = pl.col("name").is_in(GRAPH_LAUNCHES)
    by_graph = calls.filter(is_graph).join(
        gpu_events.select("uid", link=key), on="link", how="inner", suffix="_gpu"
    )
    starts = arrows.filter(pl.col("ph") == "s").select(link="id").unique()
    ends = (
        arrows.filter(pl.col("ph") == "f")
        .sort("uid")
        .unique("id", keep="last", maintain_order=True)
        .select("pid", "tid", link="id")
        .join(starts, on="link", how="semi")
    )
    # The arrow points at a thread and an id; the last event there wins, be it a GPU event or not.
    thread = ("pid", "tid")
    targets = (
        pl.concat(
            [
                runtime.select("uid", *thread, link=key, on_gpu=pl.lit(False)),
                gpu_events.select("uid", *thread, link=key, on_gpu=pl.lit(True)),
            ]
        )
        .join(ends, on="link", suffix="_end")
        .filter(pl.col(name).eq_missing(pl.col(f"{name}_end")) for name in thread)
        .sort("uid")
        .unique("link", keep="last")
        .filter("on_gpu")
        .select("uid", "link")
    )
    by_flow = calls.filter(~is_graph).join(targets, on="link", suffix="_gpu")
    columns = [pl.col("uid").alias("runtime_uid"), pl.col("uid_gpu").alias("gpu_uid")]
    return pl.concat([by_graph.select(columns), by_flow.select(columns)])


def _links_by_id(runtime: pl.DataFrame, gpu_events: pl.DataFrame) -> pl.DataFrame:
    """One call for each GPU event: by ``correlation``, else by ``External id``.

    An external id is that of an op, which may make several calls: of those that submit work the
    first takes the event that starts first, and so on; the last one takes what is left.
    """
    by_correlation = _id_pairs(runtime, gpu_events, "correlation").unique("gpu_uid", keep="last")
    if not by_correlation.is_empty():
        return by_correlation
    pairs = _id_pairs(
        runtime.filter(pl.col("name").str.contains(SUBMITS_WORK)),
        gpu_events.sort("ts_ns", "uid"),
        "external_id",
    )
    return pairs.filter(pl.min_horizontal("event", "last_call") == pl.col("call"))


def _id_pairs(runtime: pl.DataFrame, gpu_events: pl.DataFrame, key: str) -> pl.DataFrame:
    """Calls and GPU events with one id: ``runtime_uid, gpu_uid``, and their numbers at that id."""
    number = pl.int_range(pl.len()).over("link")
    calls = runtime.sort("uid").select(runtime_uid="uid", link=key).filter(pl.col("link") > 0)
    events = gpu_events.select(gpu_uid="uid", link=key).filter(pl.col("link") > 0)
    return (
        calls.with_columns(call=number, last_call=pl.len().over("link").cast(pl.Int64) - 1)
        .join(events.with_columns(event=number), on="link", maintain_order="left_right")
        .drop("link")
    )


def backward_links(cpu_ops: pl.DataFrame) -> pl.DataFrame:
    """Rows ``backward_uid, forward_uid``: an autograd node and the op that it differentiates.

    Of each sequence number the first autograd node counts; its forward is the op with the same
    number that starts last on any other thread.
    """
    numbered = cpu_ops.drop_nulls("sequence_number").select(
        "uid", "name", "pid", "tid", "ts_ns", "sequence_number"
    )
    backward = numbered.filter(pl.col("name").str.starts_with(BACKWARD_PREFIX)).unique(
        "sequence_number", keep="first", maintain_order=True
    )
    other_thread = (pl.col("pid") != pl.col("pid_b")) | (pl.col("tid") != pl.col("tid_b"))
    return (
        numbered.join(backward, on="sequence_number", suffix="_b")
        .filter(other_thread)
        .sort("ts_ns", "uid", descending=[True, False])
        .unique("uid_b", keep="first", maintain_order=True)
        .select(backward_uid="uid_b", forward_uid="uid")
        .sort("backward_uid")
    )
