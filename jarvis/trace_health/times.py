"""Facts about times: step time, GPU time with and without unlinked work, invalid durations."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from jarvis.perf_report.intervals import END
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds
from jarvis.trace import Trace
from jarvis.trace.metadata import STEP_PREFIX
from jarvis.trace_health.facts import Fact, Severity, when

MAX_DURATION_NS = 24 * 3600 * 10**9
"""A longer event (one day) has overflowed."""

MIN_DIFFERENCE_PCT = 1.0
"""Two spans that differ by more get a note."""


def time_facts(trace: Trace) -> Iterator[Fact]:
    """Yield the facts about step times, GPU times and invalid durations."""
    if trace.info.steps:
        yield _step_time(trace)
    if not trace.gpu_events.is_empty():
        yield from _gpu_spans(trace)
    yield from _durations(trace)


def _step_time(trace: Trace) -> Fact:
    steps = trace.host_annotations.filter(pl.col(C.name).str.starts_with(STEP_PREFIX))
    times_ms = (steps[C.dur_ns] / 1e6).drop_nulls()
    median_ms = times_ms.median()
    median_ms = float(median_ms) if isinstance(median_ms, int | float) else 0.0
    return Fact(
        "step_time",
        "Step time on the host",
        f"{counted(times_ms.len(), 'profiler step')} on the host, {milliseconds(median_ms)} in "
        "the median.",
        median_ms,
        "ms",
    )


def _gpu_spans(trace: Trace) -> Iterator[Fact]:
    linked = trace.gpu_events.filter(pl.col(C.uid).is_in(trace.launches[C.gpu_uid].implode()))
    all_ms = _span_ms(trace.gpu_events)
    counted_ms = all_ms if linked.is_empty() else _span_ms(linked)
    yield Fact(
        "gpu_span",
        "GPU time, first start to last end",
        f"{milliseconds(counted_ms)} from the first GPU start to the last GPU end, as TraceLens "
        "counts it.",
        counted_ms,
        "ms",
    )
    differs = 100 * (all_ms - counted_ms) > MIN_DIFFERENCE_PCT * all_ms
    yield Fact(
        "gpu_span_all",
        "GPU time with unlinked work",
        f"{milliseconds(all_ms)} with the GPU work that no host call of the trace launched."
        if differs
        else "Unlinked work adds nothing to the GPU time.",
        all_ms,
        "ms",
        when(differs),
        "Tools that count unlinked work give the longer time." if differs else "",
        "Synchronize the GPU before the recording begins." if differs else "",
    )


def _span_ms(events: pl.DataFrame) -> float:
    timed = events.drop_nulls([C.ts_ns, C.dur_ns])
    if timed.is_empty():
        return 0.0
    first, last = timed.select(first=pl.col(C.ts_ns).min(), last=END.max()).row(0)
    return (int(last) - int(first)) / 1e6


@dataclass(frozen=True, slots=True)
class _Fault:
    key: str
    title: str
    singular: str
    plural: str
    rows: pl.Expr
    affects: str
    severity: Severity = Severity.WARNING
    remedy: str = "Record again, with another version of the profiler if it recurs."


_DURATION = pl.col(C.dur_ns)
_FAULTS = (
    _Fault(
        "zero_durations",
        "GPU events with zero duration",
        "has zero duration",
        "have zero duration",
        _DURATION == 0,
        "Such events count as calls that take no time.",
        Severity.NOTE,
        "A profiler that records whole µs has 0 for shorter events.",
    ),
    _Fault(
        "negative_durations",
        "Negative durations",
        "ends before it begins",
        "end before they begin",
        _DURATION < 0,
        "GPU events count as 0; times of host calls and their sums are meaningless.",
    ),
    _Fault(
        "missing_times",
        "Events without start or duration",
        "has no usable start or duration",
        "have no usable start or duration",
        _DURATION.is_null() | pl.col(C.ts_ns).is_null(),
        "Such events are excluded.",
    ),
    _Fault(
        "overflowing_durations",
        "Overflowing durations",
        "lasts longer than a day",
        "last longer than a day",
        _DURATION >= MAX_DURATION_NS,
        "Their times and sums are meaningless.",
    ),
)


def _durations(trace: Trace) -> Iterator[Fact]:
    """Yield the facts about invalid times of GPU events, operators and runtime calls.

    Zero durations are valid for host calls, which can be too short to measure.
    """
    for fault in _FAULTS:
        on_gpu = trace.gpu_events.filter(fault.rows).height
        on_host = 0
        if fault.severity is Severity.WARNING:
            on_host = sum(
                frame.filter(fault.rows).height for frame in (trace.cpu_ops, trace.runtime)
            )
        total = on_gpu + on_host
        if not total:
            yield Fact(fault.key, fault.title, "None.", 0.0, "events")
            continue
        on_either = [
            counted(events, noun)
            for events, noun in ((on_gpu, "GPU event"), (on_host, "host event"))
            if events
        ]
        yield Fact(
            fault.key,
            fault.title,
            f"{' and '.join(on_either)} {fault.singular if total == 1 else fault.plural}.",
            float(total),
            "events",
            fault.severity,
            fault.affects,
            fault.remedy,
        )
