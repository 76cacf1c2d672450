"""The kernel times of calls as text: one time, or the groups of times that lie apart."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from jarvis.perf_report.populations import lie_apart
from jarvis.schemas.names import C
from jarvis.text.format import decimal
from jarvis.text.messages import Message, MessageTable

GROUPS_SHOWN = 3
"""More groups are summarized by their range."""

MESSAGES = MessageTable(
    "call_times",
    {
        "group": "{group_us} ({group_calls:count call})",
        "groups": "{groups:joined  or }",
        "range": "{shortest_us} to {longest_us}",
        "product": "{group_calls:,} x {group_us}",
        "products": "{groups:joined  + }",
    },
)


_MEAN_US = pl.col(C.total_us) / pl.col(C.calls)


class CallGroup(NamedTuple):
    """Calls with like kernel times."""

    calls: int
    total_us: float

    @property
    def mean_us(self) -> float:
        """Return the mean kernel time of a call."""
        return self.total_us / max(self.calls, 1)


def calls_of(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ``calls`` of rows by like kernel times, shortest times first: their ``total_us``,
    and the index ``row`` of their row."""
    populations = pl.col(C.populations).list
    has_groups = populations.len().fill_null(0) > 0
    rows = rows.select(C.populations, C.operation_count, C.kernel_time_us).with_row_index("row")
    alone = rows.filter(~has_groups).select(
        "row",
        pl.col(C.operation_count).cast(pl.Int64).alias(C.calls),
        pl.col(C.kernel_time_us).cast(pl.Float64).alias(C.total_us),
    )
    apart = rows.filter(has_groups).select("row", C.populations).explode(C.populations)
    group = pl.col(C.populations).struct
    apart = apart.select(
        "row",
        group.field(C.count).cast(pl.Int64).alias(C.calls),
        group.field(C.total_us).cast(pl.Float64),
    )
    return pl.concat([alone, apart]).sort(_MEAN_US, maintain_order=True)


def call_groups(calls: pl.DataFrame) -> list[CallGroup]:
    """Return the groups of all ``calls_of`` some rows, shortest times first."""
    means_us = (calls[C.total_us] / calls[C.calls]).to_numpy()
    firsts = np.flatnonzero(lie_apart(means_us[:-1], means_us[1:])) + 1
    ends = [0, *firsts.tolist(), calls.height] if calls.height else []
    parts = (calls.slice(first, end - first) for first, end in pairwise(ends))
    return [CallGroup(int(part[C.calls].sum()), float(part[C.total_us].sum())) for part in parts]


def time_per_call(calls: pl.DataFrame) -> float | Message:
    """Return the mean time in ms of ``calls_of`` some rows, or a message with the groups that have
    no common mean: ``22.6 µs (35 calls) or 149 µs (1 call)``."""
    groups = call_groups(calls)
    if len(groups) == 1:
        return groups[0].mean_us / 1000
    if len(groups) > GROUPS_SHOWN:
        return MESSAGES(
            "range",
            shortest_us=groups[0].mean_us,
            longest_us=groups[-1].mean_us,
        )
    return MESSAGES("groups", groups=_messages("group", groups))


def products(row: Mapping[str, Any]) -> Message:
    """Return ``35 x 22.6 µs + 1 x 149 µs`` of the groups of a row's calls."""
    return MESSAGES("products", groups=_messages("product", _groups(row)))


def typical_us() -> pl.Expr:
    """Return the mean time of the group of calls that takes most time, the mean of all if the calls
    are one group."""
    each = pl.element().struct
    largest = each.field(C.mean_us).sort_by(each.field(C.total_us)).last()
    mean = pl.col(C.kernel_time_us) / pl.col(C.operation_count)
    return pl.coalesce(pl.col(C.populations).list.agg(largest), C.kernel_time_us_mean, mean)


def summary(row_groups: list[dict[str, Any]] | None) -> str | None:
    """Return ``35 x 22.6, 1 x 149`` of ``populations``, in µs."""
    if not row_groups:
        return None
    return ", ".join(f"{g[C.count]:,} x {decimal(g[C.mean_us])}" for g in row_groups)


def _groups(row: Mapping[str, Any]) -> list[CallGroup]:
    """Return the groups of the calls of one row, shortest times first."""
    if row[C.populations]:
        return [CallGroup(group[C.count], group[C.total_us]) for group in row[C.populations]]
    return [CallGroup(row[C.operation_count], row[C.kernel_time_us])]


def _messages(key: str, groups: Iterable[CallGroup]) -> tuple[Message, ...]:
    return tuple(MESSAGES(key, group_calls=group.calls, group_us=group.mean_us) for group in groups)
