"""Breakdown of GPU time: compute, communication, copies, idle."""

from dataclasses import dataclass, replace

import polars as pl

from jarvis.perf_report.intervals import END, START, covered_ns, microseconds
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.perf_report.work import COMMUNICATION, COMPUTE, COPY, GpuWork
from jarvis.schemas.names import C


@dataclass(frozen=True, slots=True)
class Totals:
    """Times of the parts of the GPU timeline, and their shares of ``total_time_ms``.

    ``total_time_ms`` is the time from the first GPU start to the last GPU end; shares are None if
    it is 0. ``linked_pct`` is the share of all GPU busy time that host calls of the trace launched;
    the timeline counts only that part. ``step`` bounds what can be saved of the recorded steps;
    None in runs of earlier releases.
    """

    compute_time_ms: float
    exposed_comm_time_ms: float
    exposed_memcpy_time_ms: float
    busy_time_ms: float
    idle_time_ms: float
    total_time_ms: float
    total_comm_time_ms: float
    total_memcpy_time_ms: float
    linked_pct: float | None
    step: StepBounds | None = None

    def _share(self, time_ms: float) -> float | None:
        return 100 * time_ms / self.total_time_ms if self.total_time_ms else None

    @property
    def compute_pct(self) -> float | None:
        """Computation in percent of the total."""
        return self._share(self.compute_time_ms)

    @property
    def exposed_comm_pct(self) -> float | None:
        """Communication not overlapped by computation, in percent of the total."""
        return self._share(self.exposed_comm_time_ms)

    @property
    def exposed_memcpy_pct(self) -> float | None:
        """Copies not overlapped by other work, in percent of the total."""
        return self._share(self.exposed_memcpy_time_ms)

    @property
    def busy_pct(self) -> float | None:
        """Any GPU work, in percent of the total."""
        return self._share(self.busy_time_ms)

    @property
    def idle_pct(self) -> float | None:
        """No GPU work, in percent of the total."""
        return self._share(self.idle_time_ms)


def totals(work: GpuWork) -> Totals:
    """Return the parts of the GPU timeline over all devices and streams."""
    window = work.window
    compute = covered_ns(_of(window, COMPUTE))
    compute_or_comm = covered_ns(_of(window, COMPUTE, COMMUNICATION))
    busy = covered_ns(window)
    total = _span_ns(window)
    all_busy = covered_ns(work.events)
    return Totals(
        compute_time_ms=compute / 1e6,
        exposed_comm_time_ms=(compute_or_comm - compute) / 1e6,
        exposed_memcpy_time_ms=(busy - compute_or_comm) / 1e6,
        busy_time_ms=busy / 1e6,
        idle_time_ms=(total - busy) / 1e6,
        total_time_ms=total / 1e6,
        total_comm_time_ms=covered_ns(_of(window, COMMUNICATION)) / 1e6,
        total_memcpy_time_ms=covered_ns(_of(window, COPY)) / 1e6,
        linked_pct=100 * covered_ns(work.linked) / all_busy if all_busy else None,
    )


def gpu_timeline(
    work: GpuWork, parts: Totals, micro_idle_thresh_us: float | None = None
) -> pl.DataFrame:
    """Return the sheet ``gpu_timeline``.

    If the events have ``is_recompute``, recomputed work has separate rows below the others, each
    part with its own total.

    Args:
        work: The GPU work.
        parts: Its ``totals``.
        micro_idle_thresh_us: Splits idle time into gaps shorter than this, and others.
    """
    window = work.window
    if C.is_recompute not in window.columns:
        return _rows(work, parts, micro_idle_thresh_us)
    tables = []
    for flag in (False, True):
        part = window.filter(pl.col(C.is_recompute) == flag)
        if part.height or not flag:
            alone = replace(work, events=part, launches=work.launches.clear(), counts_unlinked=True)
            rows = _rows(alone, totals(alone), micro_idle_thresh_us)
            tables.append(rows.with_columns(pl.lit(flag).alias(C.is_recompute)))
    return pl.concat(tables)


def _rows(work: GpuWork, parts: Totals, micro_idle_thresh_us: float | None) -> pl.DataFrame:
    idle_ms = {"idle_time": parts.idle_time_ms}
    if micro_idle_thresh_us is not None:
        micro = _short_gaps_ns(work.window, micro_idle_thresh_us) / 1e6
        idle_ms = {"micro_idle_time": micro, "macro_idle_time": parts.idle_time_ms - micro}
    times_ms = {
        "computation_time": parts.compute_time_ms,
        "exposed_comm_time": parts.exposed_comm_time_ms,
        "exposed_memcpy_time": parts.exposed_memcpy_time_ms,
        "busy_time": parts.busy_time_ms,
        **idle_ms,
        "total_time": parts.total_time_ms,
        "total_comm_time": parts.total_comm_time_ms,
        "total_memcpy_time": parts.total_memcpy_time_ms,
    }
    frame = pl.DataFrame({C.type: list(times_ms), C.time_ms: list(times_ms.values())})
    share = 100 * pl.col(C.time_ms) / parts.total_time_ms
    return frame.with_columns(
        (share if parts.total_time_ms else pl.lit(None, pl.Float64)).alias(C.percent)
    )


def _short_gaps_ns(events: pl.DataFrame, shorter_than_us: float) -> int:
    """Return the sum of the gaps between GPU work that are shorter than the threshold."""
    ordered = events.sort(C.ts_ns)
    gaps = ordered.select(gap=START - END.cum_max().shift(1))["gap"]
    return int(gaps.filter((gaps > 0) & (gaps < 1000 * shorter_than_us)).sum())


def memory_copies(work: GpuWork) -> pl.DataFrame:
    """Return copies by direction, in the window of the timeline (schema: ``memory_copies``)."""
    copies = _of(work.window, COPY).with_columns(copy_direction())
    hidden = _of(work.window, COMPUTE, COMMUNICATION).select(C.ts_ns, C.dur_ns)
    hidden_ns = covered_ns(hidden)
    exposed = {
        direction: covered_ns(pl.concat([hidden, of.select(C.ts_ns, C.dur_ns)])) - hidden_ns
        for (direction,), of in copies.group_by(C.direction)
    }
    ns = pl.col(C.dur_ns)
    return (
        copies.group_by(C.direction)
        .agg(
            **{
                C.count: pl.len(),
                C.total_time_us: microseconds(ns.sum()),
                C.avg_time_us: microseconds(ns.sum()) / pl.len(),
                C.max_time_us: microseconds(ns.max()),
                C.total_bytes: pl.when(pl.col(C.bytes).count() > 0).then(pl.col(C.bytes).sum()),
                C.avg_bytes: pl.col(C.bytes).mean(),
            },
        )
        .with_columns(
            microseconds(pl.col(C.direction).replace_strict(exposed, return_dtype=pl.Int64)).alias(
                C.exposed_time_us
            )
        )
        .sort([C.total_time_us, C.direction], descending=[True, False])
    )


def copy_direction() -> pl.Expr:
    """Return the ``direction`` of a copy by its name: H2D, D2H, D2D or other."""
    name = pl.col(C.name).str.to_lowercase()
    patterns = {
        "H2D": r"htod|host_to_device|host -> device",
        "D2H": r"dtoh|device_to_host|device -> host",
        "D2D": r"dtod|device_to_device|device -> device",
    }
    choice = pl.coalesce(
        *(pl.when(name.str.contains(p)).then(pl.lit(d)) for d, p in patterns.items())
    )
    return choice.fill_null("other").alias(C.direction)


def _of(events: pl.DataFrame, *kinds: str) -> pl.DataFrame:
    return events.filter(pl.col(C.kind).is_in(kinds))


def _span_ns(events: pl.DataFrame) -> int:
    if events.is_empty():
        return 0
    first, last = events.select(pl.col(C.ts_ns).min(), last=END.max()).row(0)
    return int(last - first)
