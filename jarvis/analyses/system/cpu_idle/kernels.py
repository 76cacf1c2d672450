"""Number and duration of the kernels in the timeline's window, from the GPU events."""

import polars as pl
from pydantic import JsonValue

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.operations import timeline_window
from jarvis.analyses.severity import Ladder, grade
from jarvis.analyses.system.cpu_idle.wording import MESSAGES
from jarvis.findings import EvidenceValue, Severity
from jarvis.preconditions import GRAPH_LAUNCH, replayed
from jarvis.schemas.names import C
from jarvis.text.messages import Message

SHORT_KERNEL_US = 10.0
SHORT_SHARE_PCT: Ladder = ((50.0, Severity.HIGH), (30.0, Severity.MEDIUM))
KERNEL_COUNT: Ladder = ((5000, Severity.HIGH), (1000, Severity.MEDIUM))
MEAN_KERNEL_US: Ladder = ((20.0, Severity.MEDIUM), (0.0, Severity.HIGH))
MEAN_KERNEL_LIMIT_US = 50.0
"""A lower mean kernel time is MEDIUM, below 20 µs HIGH."""

Pattern = tuple[str, Severity, Message]
"""Name, grade, evidence."""


def kernels(data: CategoryData) -> pl.DataFrame:
    """Return the kernels (no copies, no fills) of the timeline's window; empty without single
    events."""
    if "gpu_work" not in data.tables:
        times = dict.fromkeys((C.ts_ns, C.dur_ns), pl.Int64)
        return pl.DataFrame(schema={C.kind: pl.String, C.launcher_name: pl.String, **times})
    return timeline_window(data.tables["gpu_work"]).filter(pl.col(C.cat) == "kernel")


def short_count(rows: pl.DataFrame) -> int:
    """Return the number of kernels shorter than SHORT_KERNEL_US."""
    return int((rows[C.dur_ns] < SHORT_KERNEL_US * 1000).sum())


def short_share_pct(rows: pl.DataFrame) -> float:
    """Return the share of kernels shorter than SHORT_KERNEL_US in percent; 0 without kernels."""
    return impact.share_pct(short_count(rows), rows.height)


def mean_us(rows: pl.DataFrame) -> float:
    """Return the mean duration of kernels in µs."""
    return float(rows[C.dur_ns].sum()) / 1000 / rows.height


def evidence(rows: pl.DataFrame) -> dict[str, EvidenceValue]:
    """Return number and durations of the kernels as evidence."""
    return {
        "kernels": rows.height,
        "short_kernels": short_count(rows),
        "short_kernels_pct": short_share_pct(rows),
        "mean_kernel_us": mean_us(rows),
    }


def graph_replay_pct(data: CategoryData) -> float:
    """Return the share of kernels that GPU graphs launch, in percent."""
    rows, events = kernels(data), data.tables.get("inference_events")
    is_launch = pl.col(C.launcher_name).str.contains(GRAPH_LAUNCH).fill_null(value=False)
    if events is not None and rows.height:
        rows = rows.join(events.select(C.uid, C.graph_launch_uid), on=C.uid, how="left")
        is_launch |= replayed()
    return impact.share_pct(rows.filter(is_launch).height, rows.height)


def statistics(rows: pl.DataFrame) -> dict[str, JsonValue]:
    """Return exact counts and times of the kernels."""
    by_kind = rows.group_by(C.kind).agg(pl.len()).sort(C.kind)
    return {
        "total_kernel_count": rows.height,
        "short_kernel_count": short_count(rows),
        "short_kernel_percent": short_share_pct(rows),
        "short_kernel_limit_us": SHORT_KERNEL_US,
        "avg_kernel_time_us": mean_us(rows) if rows.height else None,
        "kernel_count_by_kind": dict(by_kind.iter_rows()),
    }


def patterns(rows: pl.DataFrame) -> list[Pattern]:
    """Grade the share of short kernels, the number of kernels and their mean time."""
    if rows.is_empty():
        return []
    short_pct, mean = short_share_pct(rows), mean_us(rows)
    is_short = mean < MEAN_KERNEL_LIMIT_US
    return [
        (
            "short_kernels",
            grade(short_pct, SHORT_SHARE_PCT),
            MESSAGES("pattern.short_kernels", share_pct=short_pct, limit_us=SHORT_KERNEL_US),
        ),
        (
            "kernel_count",
            grade(rows.height, KERNEL_COUNT),
            MESSAGES("pattern.kernel_count", kernels=rows.height),
        ),
        (
            "mean_kernel_time",
            grade(mean, MEAN_KERNEL_US) if is_short else Severity.ACCEPTABLE,
            MESSAGES("pattern.mean_kernel_time", mean_us=mean),
        ),
    ]
