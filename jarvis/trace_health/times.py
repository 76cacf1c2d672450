"""Facts about times: of a step, of the GPU with and without unlinked work, and faulty ones."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from jarvis.text.format import counted, milliseconds
from jarvis.trace import Trace
from jarvis.trace.metadata import STEP_PREFIX
from jarvis.trace_health.facts import Fact, Severity, when

TOO_LONG_NS = 24 * 3600 * 10**9
"""No recording lasts a day; an event that does overflowed."""

UNLIKE_PCT = 1.0
"""Two spans that differ by more are worth a note."""


def time_facts(trace: Trace) -> Iterator[Fact]:
    """How long steps and GPU work last by each definition, and which times are faulty."""
    if trace.info.steps:
        yield _step_time(trace)
    if not trace.gpu_events.is_empty():
        yield from _gpu_spans(trace)
    yield from _durations(trace)


def _step_time(trace: Trace) -> Fact:
    steps = trace.annotations.filter(
        (pl.col("cat") == "user_annotation") & pl.col("name").str.starts_with(STEP_PREFIX)
    )
    times_ms = (steps["dur_ns"] / 1e6).drop_nulls()
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
    linked = trace.gpu_events.filter(pl.col("uid").is_in(trace.launches["gpu_uid"].implode()))
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
    differs = 100 * (all_ms - counted_ms) > UNLIKE_PCT * all_ms
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
        "Let the GPU finish before the recording begins." if differs else "",
    )


def _span_ms(events: pl.DataFrame) -> float:
    timed = events.drop_nulls(["ts_ns", "dur_ns"])
    if timed.is_empty():
        return 0.0
    first, last = timed.select(
        first=pl.col("ts_ns").min(), last=(pl.col("ts_ns") + pl.col("dur_ns")).max()
    ).row(0)
    return (int(last) - int(first)) / 1e6


@dataclass(frozen=True, slots=True)
class _Fault:
    key: str
    title: str
    one: str
    many: str
    rows: pl.Expr
    affects: str
    severity: Severity = Severity.WARNING


_DURATION = pl.col("dur_ns")
_FAULTS = (
    _Fault(
        "zero_durations",
        "GPU events without length",
        "lasts no time",
        "last no time",
        _DURATION == 0,
        "Such events count as calls that take no time.",
        Severity.NOTE,
    ),
    _Fault(
        "negative_durations",
        "Negative durations",
        "ends before it begins",
        "end before they begin",
        _DURATION < 0,
        "Of GPU work they count as 0; times of host calls are meaningless, and so are their sums.",
    ),
    _Fault(
        "missing_times",
        "Events without start or duration",
        "has no usable start or duration",
        "have no usable start or duration",
        _DURATION.is_null() | pl.col("ts_ns").is_null(),
        "Such events are left out.",
    ),
    _Fault(
        "overflowing_durations",
        "Overflowing durations",
        "lasts longer than a day",
        "last longer than a day",
        _DURATION >= TOO_LONG_NS,
        "Their times are meaningless, and so are sums with them.",
    ),
)


def _durations(trace: Trace) -> Iterator[Fact]:
    """Faulty times of GPU events, operators and runtime calls; those without length are short."""
    for fault in _FAULTS:
        on_gpu = trace.gpu_events.filter(fault.rows).height
        on_host = 0
        if fault.severity is Severity.WARNING:
            on_host = sum(
                frame.filter(fault.rows).height for frame in (trace.cpu_ops, trace.runtime)
            )
        if not on_gpu + on_host:
            yield Fact(fault.key, fault.title, "There is no such event.", 0.0, "events")
            continue
        on_either = [
            counted(events, noun)
            for events, noun in ((on_gpu, "GPU event"), (on_host, "host event"))
            if events
        ]
        yield Fact(
            fault.key,
            fault.title,
            f"{' and '.join(on_either)} {fault.one if on_gpu + on_host == 1 else fault.many}.",
            float(on_gpu + on_host),
            "events",
            fault.severity,
            fault.affects,
            "Record again, with another version of the profiler if it recurs.",
        )
