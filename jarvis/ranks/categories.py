"""What the GPU of each rank computes, by category, and which ranks stand out."""

from collections.abc import Mapping, Sequence

import polars as pl

from jarvis.ranks.clock import NORMAL
from jarvis.ranks.delays import CATEGORY
from jarvis.ranks.members import Member
from jarvis.schemas.columns import Column, number, text
from jarvis.schemas.names import C
from jarvis.schemas.ranks import RANK_CATEGORIES

MIN_RANKS = 3
"""Ranks of a role that a median needs."""

MADS = 3
MIN_OUTLIER_PCT, MIN_OUTLIER_MS = 2.0, 0.02
"""A smaller difference from the median, in percent or per step, is not an outlier."""

COLUMNS: tuple[Column, ...] = (
    *RANK_CATEGORIES,
    text("category", "Category", "of the kernels"),
    number("extra_ms", "Longer by (ms)", "ms", "than the median of the ranks", "+,.3f"),
    number("extra_pct", "Longer by (%)", "%", "the same, in percent of the median", "+,.1f"),
)
"""Descriptions of the columns of ``outliers``."""

SHOWN = (C.rank, "category", "extra_ms", "extra_pct", C.time_ms, C.median_ms)


def outliers(categories: pl.DataFrame) -> pl.DataFrame:
    """Return the outliers of the table ``rank_categories`` with the columns SHOWN, those that
    differ most from the median first."""
    extra_ms = pl.col(C.time_ms) - pl.col(C.median_ms)
    return (
        categories.filter(C.is_outlier)
        .with_columns(CATEGORY.alias("category"), extra_ms.alias("extra_ms"))
        .with_columns(
            pl.when(pl.col(C.median_ms) > 0)
            .then(100 * pl.col("extra_ms") / pl.col(C.median_ms))
            .alias("extra_pct")
        )
        .sort(pl.col("extra_ms").abs(), C.rank, "category", descending=[True, False, False])
        .select(SHOWN)
    )


def rank_categories(
    times: pl.DataFrame, members: Sequence[Member], stages: Mapping[int, int]
) -> pl.DataFrame:
    """Return the table ``rank_categories``.

    Args:
        times: ``rank, detail, ns``: the time of each category of compute in the window.
        members: The ranks.
        stages: The pipeline stage of each rank.
    """
    roles = pl.DataFrame(
        [
            (each.rank, each.info.device_name, stages.get(each.rank), max(each.info.steps, 1))
            for each in members
        ],
        {C.rank: times.schema[C.rank], "device": pl.String, "stage": pl.Int64, C.steps: pl.Int64},
        orient="row",
    )
    role, median = ["device", "stage", C.detail], pl.col(C.median_ms)
    extra_ms = pl.col(C.time_ms) - median
    spread_ms = NORMAL * extra_ms.abs().median().over(role)
    is_outlier = (
        (extra_ms.abs() > MADS * spread_ms)
        & (extra_ms.abs() >= MIN_OUTLIER_PCT / 100 * median)
        & (extra_ms.abs() >= MIN_OUTLIER_MS)
    )
    return (
        roles.join(times.select(C.detail).unique(), how="cross")
        .join(times, on=[C.rank, C.detail], how="left", nulls_equal=True)
        .with_columns(
            (pl.col("ns").fill_null(0) / pl.col(C.steps) / 1e6).alias(C.time_ms),
        )
        .filter((pl.col(C.time_ms).max() > 0).over(role))
        .with_columns(
            pl.when(pl.len().over(role) >= MIN_RANKS)
            .then(pl.col(C.time_ms).median().over(role))
            .alias(C.median_ms)
        )
        .with_columns(is_outlier.fill_null(False).alias(C.is_outlier))
        .sort(C.rank, C.detail)
        .select(C.rank, C.detail, C.time_ms, C.median_ms, C.is_outlier)
    )
