"""All-to-alls of unequal messages: the sheets ``nccl_all2allv``, ``nccl_summary_all2allv`` and
``nccl_all2allv_heatmap``."""

import json
from collections.abc import Sequence

import polars as pl

from jarvis.core.dtypes import element_bytes
from jarvis.perf_report.calls import statistics
from jarvis.perf_report.collectives import MIB
from jarvis.tracelens.coll_analysis import SIZED
from jarvis.tracelens.multi_rank.implicit_sync import END_SKEW, START_SKEW, agreeing, per_rank
from jarvis.tracelens.multi_rank.long_table import (
    DTYPE,
    DUR,
    GROUP,
    ID,
    IN,
    IN_MB,
    IN_SPLITS,
    NAME,
    OUT,
    OUT_MB,
    OUT_SPLITS,
    RANK,
    RANKS,
    SIZE,
    STREAM,
    TS,
)

MAX_HEAT_MAP_RANKS = 1024
_NAME = "all_to_allv"
_METADATA = (GROUP, RANKS, NAME, SIZE, DTYPE)
_TOTAL_MB, _WALL = "total data communicated (MB)", "wall_time (us)"
_THROUGHPUT, _IMBALANCE, _MAX_DUR = "throughput (GB/s)", "size_imbalance", "max_rank_dur (us)"
_IN_FULL = (_IMBALANCE, _MAX_DUR, START_SKEW, END_SKEW)
"""Columns of the summary that have their mean and maximum only."""


def all_to_all_v(rows: pl.DataFrame, ranks: Sequence[int]) -> tuple[pl.DataFrame, list[str]]:
    """Return ``nccl_all2allv``, and the ids of collectives that ranks record differently."""
    rows, differing = agreeing(rows.filter(pl.col(NAME) == _NAME), _METADATA)
    end = pl.col(TS) + pl.col(DUR)
    total_mb, wall = pl.col(IN_MB).sum(), end.max() - pl.col(TS).min()
    own_rate = (pl.col(IN_MB) / 1024) / (pl.col(DUR) / 1e6)
    figures = rows.group_by(ID, maintain_order=True).agg(
        *(pl.col(column).first() for column in (*_METADATA, STREAM)),
        total_mb.alias(_TOTAL_MB),
        pl.col(IN).sum().alias("total nelems communicated"),
        wall.alias(_WALL),
        pl.col(DUR).max().alias(_MAX_DUR),
        pl.col(DUR).min().alias("min_rank_dur (us)"),
        pl.col(DUR).mean().alias("avg_rank_dur (us)"),
        ((total_mb / 1024) / (wall / 1e6)).alias(_THROUGHPUT),
        own_rate.max().alias("max_rank_throughput (GB/s)"),
        own_rate.min().alias("min_rank_throughput (GB/s)"),
        (pl.col(IN_MB).max() / pl.col(IN_MB).mean()).alias(_IMBALANCE),
        (pl.col(TS).max() - pl.col(TS).min()).alias(START_SKEW),
        (end.max() - end.min()).alias(END_SKEW),
    )
    rows = rows.with_columns(
        (pl.col(TS) - pl.col(TS).min().over(ID)).alias(START_SKEW),
        (end.max().over(ID) - end).alias(END_SKEW),
    )
    recorded = (TS, DUR, IN, OUT, IN_MB, OUT_MB, IN_SPLITS, OUT_SPLITS)
    for values in (recorded, (START_SKEW, END_SKEW)):
        figures = figures.join(per_rank(rows, values, ranks), on=ID, maintain_order="left")
    return figures.sort(_TOTAL_MB, descending=True, maintain_order=True), differing


def summary(exchanged: pl.DataFrame, aggregations: Sequence[str]) -> pl.DataFrame:
    """Return ``nccl_summary_all2allv``: by group and dtype."""

    total = pl.col(_WALL).sum()
    return (
        exchanged.drop_nulls([GROUP, DTYPE])
        .group_by(GROUP, DTYPE, maintain_order=True)
        .agg(
            *statistics((_TOTAL_MB, _WALL), aggregations),
            total.alias("Total wall_time (us)"),
            *statistics([_THROUGHPUT], aggregations),
            *statistics(_IN_FULL, ("mean", "max")),
            pl.len().alias("count"),
            *(pl.col(column).first() for column in (RANKS, NAME, SIZE)),
            (total / 1000).alias("Total wall_time (ms)"),
        )
        .sort("Total wall_time (us)", descending=True, maintain_order=True)
    )


def heat_map(rows: pl.DataFrame) -> pl.DataFrame:
    """Return ``nccl_all2allv_heatmap``: MiB by sender and index of the receiver in the group."""
    sent: dict[tuple[int, int], list[float]] = {}
    chosen = rows.filter(pl.col(NAME) == _NAME).select(RANK, SIZE, DTYPE, IN_SPLITS)
    for rank, size, dtype, text in chosen.iter_rows():
        splits = _splits(text)
        item_bytes = element_bytes(dtype) if dtype in SIZED else None
        if item_bytes is None or len(splits) != size:
            continue
        for index, elements in enumerate(splits):
            sent.setdefault((rank, index), []).append(elements * item_bytes / MIB)
    return pl.DataFrame(
        [
            (*pair, sum(sizes), sum(sizes) / len(sizes), len(sizes))
            for pair, sizes in sorted(sent.items())
        ],
        schema={
            "src_rank": pl.Int64,
            "dst_rank": pl.Int64,
            "total_sent_MB": pl.Float64,
            "avg_sent_MB": pl.Float64,
            "count": pl.Int64,
        },
        orient="row",
    )


def _splits(text: str | None) -> list[int]:
    try:
        splits = json.loads(text or "[]")
    except ValueError:
        return []
    is_list = isinstance(splits, list) and all(isinstance(entry, int) for entry in splits)
    return splits if is_list else []
