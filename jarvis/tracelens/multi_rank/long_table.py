"""The sheets ``nccl_long`` and ``nccl_summary_long``, and the columns on nodes."""

import json
from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from jarvis.perf_report.collectives import KERNEL, MIB, message_bytes
from jarvis.perf_report.work import TRACELENS_COMMUNICATION
from jarvis.schemas import conform, labeled
from jarvis.schemas.names import C
from jarvis.schemas.sheets import COLL_ANALYSIS
from jarvis.tracelens.coll_analysis import RECORDED, SIZED, UNKNOWN_GROUP, by_message

ALL_GROUPS = "all"
"""Group of all kernels, where no trace records groups and each has a single stream."""

ID, GROUP, RANKS = "collective_id", "Process Group Name", "Process Group Ranks"
NAME, SIZE, DTYPE, STREAM = "Collective name", "Group size", "dtype", "stream"
IN, OUT, IN_MB, OUT_MB = "In msg nelems", "Out msg nelems", "In msg size (MB)", "Out msg size (MB)"
IN_SPLITS, OUT_SPLITS = "In split size", "Out split size"
RANK, TS, DUR, NODE, SPAN = "rank", "ts", "dur", "node_id", "node_span"

_CUSTOM_ALL_REDUCE = r"(?i)cross_device_reduce"
_LABELS = {column.name: column.label for column in COLL_ANALYSIS} | {
    C.in_msg_mb: IN_MB,
    C.out_msg_mb: OUT_MB,
}

Nodes = Callable[..., pl.DataFrame]


def long_table(collectives: Mapping[int, pl.DataFrame]) -> pl.DataFrame:
    """Return ``nccl_long`` without the columns on nodes: a row for each kernel of each rank.

    Args:
        collectives: The table ``collectives`` of each rank.
    """
    rows = pl.concat([_events(collectives[rank], rank) for rank in sorted(collectives)])
    streams = rows.group_by(RANK).agg(pl.col(STREAM).n_unique())[STREAM].max()
    if (rows[GROUP] == UNKNOWN_GROUP).all() and (not isinstance(streams, int) or streams <= 1):
        rows = rows.with_columns(pl.lit(ALL_GROUPS).alias(GROUP))
    index = pl.col(TS).rank("ordinal").over(GROUP, RANK).cast(pl.Int64) - 1
    rows = rows.with_columns(index_in_group=index)
    identifier = pl.concat_str(pl.col(GROUP), pl.lit("_"), pl.col("index_in_group"))
    return rows.with_columns(identifier.alias(ID)).select(
        ID,
        "index_in_group",
        *(RANK, GROUP, RANKS, NAME, SIZE, DTYPE),
        *(IN, IN_MB, OUT, OUT_MB, IN_SPLITS, OUT_SPLITS),
        *(STREAM, TS, DUR),
    )


def _events(collectives: pl.DataFrame, rank: int) -> pl.DataFrame:
    """Return the kernels that TraceLens takes for communication, with its labels."""
    is_custom = pl.col(C.name).str.contains(_CUSTOM_ALL_REDUCE)
    is_recorded = pl.col(C.args_source).eq_missing(KERNEL)
    recorded = (
        pl.when(is_recorded).then(pl.col(column)).alias(column)
        for column in RECORDED
        if column not in (C.collective, C.process_group_name)
    )
    name = pl.when(is_recorded).then(C.collective).when(is_custom).then(pl.lit("allreduce"))
    rows = (
        collectives.filter(
            pl.col(C.name).str.contains(TRACELENS_COMMUNICATION),
            pl.any_horizontal(pl.col(C.correlation, C.external_id).is_not_null()),
        )
        .sort(C.uid)
        .with_columns(
            pl.lit(rank, pl.Int64).alias(C.rank),
            *recorded,
            name.alias(C.collective),
            pl.when(is_recorded).then(C.group).fill_null(UNKNOWN_GROUP).alias(C.process_group_name),
        )
        .with_columns(
            pl.when(pl.col(C.dtype).is_in(SIZED)).then(message_bytes(elements) / MIB).alias(size)
            for elements, size in ((C.in_msg_nelems, C.in_msg_mb), (C.out_msg_nelems, C.out_msg_mb))
        )
    )
    return rows.select(
        C.rank,
        *(pl.col(column) for column in (*RECORDED, C.in_msg_mb, C.out_msg_mb, C.stream)),
        (pl.col(C.ts_ns) / 1e3).alias(TS),
        pl.col(C.dur_us).alias(DUR),
    ).rename(_LABELS, strict=False)


def summary_long(rows: pl.DataFrame) -> pl.DataFrame:
    """Return ``nccl_summary_long`` without the columns on nodes: kernels by rank and message."""
    names = {label: name for name, label in _LABELS.items()} | {DUR: C.dur_us}
    grouped = by_message(rows.rename(names, strict=False))
    return labeled(conform(grouped, "coll_analysis"), "coll_analysis")


def nodes_of(gpus_per_node: int | None) -> Nodes:
    """Return a function that adds ``node_id`` (of rows of a rank) and ``node_span``."""
    return partial(_with_nodes, gpus_per_node) if gpus_per_node else _without_nodes


def _without_nodes(rows: pl.DataFrame, *, by_rank: bool = False) -> pl.DataFrame:
    return rows


def _with_nodes(gpus_per_node: int, rows: pl.DataFrame, *, by_rank: bool = False) -> pl.DataFrame:
    if by_rank:
        rows = rows.with_columns((pl.col(RANK) // gpus_per_node).alias(NODE))
    if RANKS not in rows.columns:
        return rows

    def spans(texts: pl.Series) -> pl.Series:
        found = {text: node_span(text, gpus_per_node) for text in texts.unique().drop_nulls()}
        return texts.replace_strict(found, default=None, return_dtype=pl.String)

    return rows.with_columns(pl.col(RANKS).map_batches(spans, pl.String).alias(SPAN))


def node_span(ranks: str, gpus_per_node: int) -> str | None:
    """Return whether the ranks of a group, as a recorded list, are on one node; None if the list
    is not readable."""
    try:
        listed = json.loads(ranks)
        nodes = {rank // gpus_per_node for rank in listed}
    except (ValueError, TypeError):
        return None
    return ("intra_node" if len(nodes) == 1 else "inter_node") if nodes else None
