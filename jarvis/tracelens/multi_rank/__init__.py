"""TraceLens's collective report of several ranks (``jarvis collectives``).

Clocks of different ranks are compared as recorded, collectives match by their order in groups of
one name, and "GB/s" is GiB/s: sheets are TraceLens's. ``jarvis.ranks`` has corrected values.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl

from jarvis.tracelens.multi_rank import all_to_all_v, implicit_sync
from jarvis.tracelens.multi_rank.long_table import long_table, nodes_of, summary_long

__all__ = ["AGGREGATIONS", "DEFAULT_AGGREGATIONS", "MultiRankSheets", "multi_rank_sheets"]

DEFAULT_AGGREGATIONS = ("mean", "median", "min", "max")
AGGREGATIONS = (*DEFAULT_AGGREGATIONS, "std", "sum")
"""Aggregations of the summaries."""


class MultiRankSheets(NamedTuple):
    """The sheets by name; ``left_out`` are collectives that ranks record differently."""

    sheets: dict[str, pl.DataFrame]
    left_out: tuple[str, ...]


def multi_rank_sheets(
    collectives: Mapping[int, pl.DataFrame],
    *,
    gpus_per_node: int | None,
    aggregations: Sequence[str] = DEFAULT_AGGREGATIONS,
) -> MultiRankSheets:
    """Return the sheets of some ranks.

    Args:
        collectives: The table ``collectives`` of each rank.
        gpus_per_node: Ranks of a node, for the columns on nodes; without it they are left out.
        aggregations: Of AGGREGATIONS, for the summaries.
    """
    nodes = nodes_of(gpus_per_node)
    ranks = sorted(collectives)
    rows = long_table(collectives)
    synchronized, differing = implicit_sync.implicit_sync(rows, ranks)
    exchanged, others = all_to_all_v.all_to_all_v(rows, ranks)
    sheets = {
        "nccl_long": nodes(rows, by_rank=True),
        "nccl_summary_long": nodes(summary_long(rows), by_rank=True),
        "nccl_implicit_sync": nodes(synchronized),
        "nccl_summary_implicit_sync": implicit_sync.summary(synchronized, aggregations),
        "nccl_all2allv": nodes(exchanged),
        "nccl_summary_all2allv": nodes(all_to_all_v.summary(exchanged, aggregations)),
        "straggler_summary": nodes(
            implicit_sync.straggler_summary(synchronized, rows, ranks), by_rank=True
        ),
    }
    if len(ranks) <= all_to_all_v.MAX_HEAT_MAP_RANKS:
        sheets["nccl_all2allv_heatmap"] = all_to_all_v.heat_map(rows)
    return MultiRankSheets(sheets, (*differing, *others))
