"""Sums and shares that every recomputation uses, and the documented limits."""

import math
import re
from collections.abc import Iterable
from typing import Any

from tests.arithmetic.run_directory import Row, RunDirectory, by_time

KERNEL_FLOOR_US = 2.0
ANOMALY_PCT = 110.0
TARGET_PCT = 80.0
IDLE_TARGET_PCT = 20.0
OVERLAP_TARGET_PCT = 70.0
DOUBTFUL_CAUSES = ("stalled_queue", "unlinked_work", "carried_in", "window_edge")
TRANSPOSE = re.compile(r"batched_transpose|transpose_nchw|transpose_cnhw|nchw2|nhwc2|nchwto|nhwcto")
FILL_OR_CAST = re.compile(r"subtensorop|memset|fillfunctor|setzero|set_zero|zero_tensor")

Facts = dict[str, list[float]]
"""Values by name; several where the words beside a number do not tell which of them is meant."""


def share(part: float, whole: float) -> float:
    """In percent; 0 of nothing."""
    return 100 * part / whole if whole else 0.0


def time_ms(rows: Iterable[Row]) -> float:
    return math.fsum(row.time_us for row in rows) / 1000


def compute_pct(rows: Iterable[Row], run: RunDirectory) -> float:
    """The rows' share of compute, to which copies do not count; of the sum of all rows if it is
    longer, as kernels can run at the same time."""
    compute_us = {
        row["uid"]: math.fsum(k["total_us"] for k in row["kernels"] or () if not _is_copy(k))
        for row in run.table("operations")
    }
    everything_ms = math.fsum(compute_us.values()) / 1000
    own_ms = math.fsum(compute_us[row.uid] for row in rows) / 1000
    return share(own_ms, max(run.compute_ms, everything_ms))


def _is_copy(kernel: dict[str, Any]) -> bool:
    return kernel["name"].startswith("Memcpy ") or "copyBuffer" in kernel["name"]


def efficiency_pct(rows: Iterable[Row]) -> float | None:
    """Weighted by time, over the rows that have one."""
    known = [row for row in rows if row.efficiency_pct is not None]
    total_us = math.fsum(row.time_us for row in known)
    if not total_us:
        return None
    return math.fsum((row.efficiency_pct or 0.0) * row.time_us for row in known) / total_us


def quantities_of(finding: dict[str, Any]) -> dict[str, Any]:
    """Values of the evidence by name."""
    return {quantity["name"]: quantity["value"] for quantity in finding["quantities"]}


def own_rows(run: RunDirectory, finding: dict[str, Any]) -> list[Row]:
    """The rows that a finding is about, most time first."""
    return by_time(run.rows[operation["uid"]] for operation in finding["operations"])


def data_rows(run: RunDirectory, finding: dict[str, Any]) -> list[Row]:
    """The rows that a card for other tools lists: its own, else those that it shares."""
    if finding["operations"]:
        return own_rows(run, finding)
    return by_time(run.rows[uid] for uid in finding["shared_uids"])
