"""Collectives that end on all ranks together: the sheets ``nccl_implicit_sync``,
``nccl_summary_implicit_sync`` and ``straggler_summary``."""

from collections.abc import Sequence

import polars as pl

from jarvis.perf_report.calls import statistics
from jarvis.tracelens.multi_rank.long_table import (
    DTYPE,
    DUR,
    GROUP,
    ID,
    IN,
    IN_MB,
    NAME,
    OUT,
    OUT_MB,
    RANK,
    RANKS,
    SIZE,
    TS,
)

_ALL_REDUCE = ("allreduce", "allreduce_coalesced")
_REDUCE_SCATTER = ("reducescatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_ALL_GATHER = (
    "allgather",
    "all_gather",
    "_allgather_base",
    "all_gather_into_tensor_coalesced",
    "allgather_into_tensor_coalesced",
)
_ALL_TO_ALL = ("all_to_all",)
_METADATA = (GROUP, RANKS, NAME, SIZE, DTYPE, IN, OUT, IN_MB, OUT_MB)

FULL_MB, LATENCY, AVG_WAIT = "Full msg size (MB)", "comm_latency", "avg_wait_time"
START_SKEW, END_SKEW = "skew in start time", "skew in end time"
EARLIEST = "earliest arrival rank"
ALGO_BW, BUS_BW = "algo bw (GB/s)", "bus bw (GB/s)"
_SUMMARIZED = (LATENCY, START_SKEW, END_SKEW, ALGO_BW, BUS_BW)


def agreeing(rows: pl.DataFrame, metadata: Sequence[str]) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of collectives with the same metadata on all ranks, and the other ids."""
    is_same = pl.all_horizontal(pl.col(metadata).n_unique().over(ID) == 1)
    marked = rows.with_columns(is_same.alias("is_same"))
    return (
        marked.filter("is_same").drop("is_same"),
        marked.filter(~pl.col("is_same"))[ID].unique(maintain_order=True).to_list(),
    )


def per_rank(rows: pl.DataFrame, values: Sequence[str], ranks: Sequence[int]) -> pl.DataFrame:
    """Return ``collective_id`` and ``rank_<r>_<value>`` of the values, rank by rank."""
    ids = rows.select(ID).unique(maintain_order=True)
    for rank in ranks:
        own = rows.filter(pl.col(RANK) == rank).select(
            ID, *(pl.col(value).alias(f"rank_{rank}_{value}") for value in values)
        )
        ids = ids.join(own, on=ID, how="left", maintain_order="left")
    return ids


def implicit_sync(rows: pl.DataFrame, ranks: Sequence[int]) -> tuple[pl.DataFrame, list[str]]:
    """Return ``nccl_implicit_sync``, and the ids of collectives that ranks record differently."""
    kinds = [*_ALL_REDUCE, *_REDUCE_SCATTER, *_ALL_GATHER, *_ALL_TO_ALL]
    rows, differing = agreeing(rows.filter(pl.col(NAME).is_in(kinds)), _METADATA)
    end = pl.col(TS) + pl.col(DUR)
    rows = rows.with_columns((pl.col(TS).max().over(ID) - pl.col(TS)).alias("wait_time"))
    size = pl.col(SIZE).first()
    factor = (
        pl.when(pl.col(NAME).first().is_in(_ALL_REDUCE))
        .then(2 * (size - 1) / size)
        .otherwise((size - 1) / size)
    )
    full_mb = pl.when(pl.col(NAME).is_in(_ALL_GATHER)).then(OUT_MB).otherwise(IN_MB).first()
    algo_bw = (full_mb / 1024) / (pl.col(DUR).min() / 1e6)
    latest_of_earliest = pl.col(RANK).sort_by("wait_time", RANK).last()
    figures = rows.group_by(ID, maintain_order=True).agg(
        *(pl.col(column).first() for column in _METADATA),
        full_mb.alias(FULL_MB),
        pl.col(DUR).min().alias(LATENCY),
        pl.col("wait_time").max().alias(START_SKEW),
        latest_of_earliest.alias(EARLIEST),
        pl.col("wait_time").mean().alias(AVG_WAIT),
        (end.max() - end.min()).alias(END_SKEW),
        algo_bw.alias(ALGO_BW),
        (algo_bw * factor).alias(BUS_BW),
    )
    for values in ((TS, DUR), ("wait_time",)):
        figures = figures.join(per_rank(rows, values, ranks), on=ID, maintain_order="left")
    return figures, differing


def summary(synchronized: pl.DataFrame, aggregations: Sequence[str]) -> pl.DataFrame:
    """Return ``nccl_summary_implicit_sync``: collectives by kind and message, over all groups."""
    return (
        synchronized.drop_nulls([NAME, DTYPE, IN])
        .group_by(NAME, DTYPE, IN, maintain_order=True)
        .agg(
            *(pl.col(column).first() for column in (GROUP, SIZE, FULL_MB)),
            *statistics(_SUMMARIZED, aggregations),
            pl.len().alias("count"),
            (pl.col(LATENCY).sum() / 1000).alias("Total comm latency (ms)"),
        )
        .sort("Total comm latency (ms)", descending=True, maintain_order=True)
    )


def straggler_summary(
    synchronized: pl.DataFrame, rows: pl.DataFrame, ranks: Sequence[int]
) -> pl.DataFrame:
    """Return ``straggler_summary``: who waited least comes first."""
    waits = (
        synchronized.select(
            pl.int_range(pl.len()).alias("row"),
            *(pl.col(f"rank_{rank}_wait_time").alias(str(rank)) for rank in ranks),
        )
        .unpivot(index="row", variable_name=RANK, value_name="wait")
        .with_columns(pl.col(RANK).cast(pl.Int64))
        .drop_nulls("wait")
        .sort("row", RANK)
    )
    is_first_of_row = [
        (pl.int_range(pl.len()) == place).over("row").alias(name)
        for name, place in (
            ("came_last", pl.col("wait").arg_min()),
            ("came_first", pl.col("wait").arg_max()),
        )
    ]
    last = pl.col("came_last").sum()
    of_ranks = (
        waits.with_columns(is_first_of_row)
        .group_by(RANK)
        .agg(
            pl.col("wait").sum().round(1).alias("total_wait_time_us"),
            pl.col("wait").mean().round(1).alias("mean_wait_time_us"),
            last.cast(pl.Int64).alias("times_arrived_last"),
            pl.col("came_first").sum().cast(pl.Int64).alias("times_arrived_first"),
            (100 * last / synchronized.height).round(1).alias("pct_arrived_last"),
            pl.len().alias("num_collectives"),
        )
    )
    durations = rows.group_by(RANK).agg(pl.col(DUR).sum().round(1).alias("total_nccl_dur_us"))
    return of_ranks.join(durations, on=RANK, how="left").sort("total_wait_time_us", RANK)
