"""Report tables -> sheets: TraceLens's names, labels and order, every cell a number or text."""

from collections.abc import Mapping

import polars as pl

from jarvis.schemas import TABLES, labelled

BEFORE_ROOFLINE = (
    "gpu_timeline",
    "ops_summary_by_category",
    "ops_summary",
    "ops_unique_args",
    "unified_perf_summary",
)
AFTER_ROOFLINE = ("coll_analysis",)
ALWAYS = "gpu_timeline"


def sheets(tables: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Tables by sheet name -> sheets with rows (``gpu_timeline`` always), for CSV and xlsx.

    Lists become Python text with plain numbers, truth values the words True and False.
    """
    return {
        name: labelled(_flat(frame), name if name in TABLES else "roofline")
        for name, frame in tables.items()
        if frame.height or name == ALWAYS
    }


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        pl.Series(column.name, [repr(value) for value in column.to_list()], dtype=pl.String)
        for column in frame.select(pl.col(pl.List, pl.Boolean))
    )
