"""Whether the recording contains warm-up: first uses, which later steps do not repeat."""

from collections.abc import Iterator

import polars as pl

from jarvis.core.expressions import contains
from jarvis.perf_report.intervals import END, covered_during, covered_ns
from jarvis.perf_report.timeline.host_spans import LOADS_KERNELS, SLOW_LAUNCH_NS
from jarvis.perf_report.timeline.steps import StepSource, step_marks
from jarvis.schemas.names import C
from jarvis.text.format import counted, milliseconds, percent
from jarvis.trace import Trace
from jarvis.trace.links import GRAPH_LAUNCHES
from jarvis.trace_health.facts import Fact, Severity

WARNING_PCT = 10.0
"""Share of the steps from which warm-up gets a warning: the other figures are not those of a
steady step."""

NOTE_PCT = 1.0

_LAUNCHES = r"(?i)launch"
_ALLOCATES = r"^(cuda|hip|cu)(Malloc|HostAlloc|HostMalloc|MemAlloc|MemCreate)"
_TUNES = r"(?i)(?:^|[^a-z])autotun|benchmark_all_configs|\bdo_bench\b|(cudnn|miopen)\w*Find"
_WARMS_UP = r"(?i)(?:^|[^a-z])warm[-_ ]?up(?:$|[-_ #]*(?:\d|step|iter|run|phase|batch|loop))"
_MAX_BUSY_SHARE = 0.5
_CALL = (C.name, C.ts_ns, C.dur_ns)


def warm_up_facts(trace: Trace) -> Iterator[Fact]:
    """Yield how much time of the steps warm-up takes.

    That is time in calls that load modules; launch calls of at least SLOW_LAUNCH_NS that use a
    kernel for the first time while the GPU does not work; allocations that not every step makes;
    autotuning; and annotations named warm-up. They count once where they overlap.
    """
    marks = step_marks(trace)
    spans = marks.select(C.step, from_ns=C.host_start_ns, to_ns="host_end_ns")
    steps_ns = int(spans.select((pl.col("to_ns") - pl.col("from_ns")).sum()).item())
    if not steps_ns:
        return
    runtime = trace.runtime[C.name]
    named = {
        name: _within(calls, spans)
        for name, calls in {
            "module load": trace.runtime.filter(contains(runtime, LOADS_KERNELS)),
            "slow first launch call": _first_launches(trace),
            "memory allocation": trace.runtime.filter(contains(runtime, _ALLOCATES)),
            "autotuning call": _named(trace, _TUNES),
            "warm-up annotation": trace.host_annotations.filter(
                pl.col(C.name).str.contains(_WARMS_UP)
            ),
        }.items()
    }
    named["memory allocation"] = _not_in_every_step(named["memory allocation"], marks.height)
    found = {name: calls for name, calls in named.items() if calls.height}
    spent_ns = covered_ns(pl.concat(calls.select(_CALL) for calls in named.values()))
    share_pct = 100 * spent_ns / steps_ns
    severity = Severity.OK
    if share_pct >= NOTE_PCT:
        severity = Severity.WARNING if share_pct >= WARNING_PCT else Severity.NOTE
    whole = "recording" if marks[C.source].first() == StepSource.RECORDING else "time of the steps"
    what = ", ".join(counted(calls.height, name) for name, calls in found.items())
    yield Fact(
        "warm_up",
        "Warm-up in the recording",
        f"Warm-up takes at least {milliseconds(spent_ns / 1e6)}, {percent(share_pct)} of the "
        f"{whole}: {what}."
        if found
        else "No warm-up found.",
        share_pct,
        "%",
        severity,
        ""
        if severity is Severity.OK
        else "A steady step does not repeat this time, so other figures of this recording are not "
        "those of a steady step."
        if severity is Severity.WARNING
        else "A steady step does not repeat this time.",
        ""
        if severity is Severity.OK
        else "Record steps after the engine has warmed up."
        if marks[C.source].first() == StepSource.ENGINE
        else "Record steps after warm-up: `schedule(wait=1, warmup=3, active=3)`.",
    )


def _within(calls: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the parts of calls during steps: ``name, ts_ns, dur_ns, step``."""
    timed = calls.select(_CALL).drop_nulls().sort(C.ts_ns)
    return (
        timed.join_asof(spans.sort("from_ns"), left_on=C.ts_ns, right_on="from_ns")
        .with_columns(pl.min_horizontal(END, "to_ns").alias(C.end_ns))
        .filter(pl.col(C.end_ns) > pl.col(C.ts_ns))
        .select(C.name, C.ts_ns, (pl.col(C.end_ns) - pl.col(C.ts_ns)).alias(C.dur_ns), C.step)
    )


def _first_launches(trace: Trace) -> pl.DataFrame:
    """Return slow launch calls that use a kernel for the first time while the GPU does not work."""
    calls = trace.runtime.drop_nulls([C.ts_ns, C.dur_ns])
    slow = calls.filter(pl.col(C.dur_ns) >= SLOW_LAUNCH_NS).filter(
        pl.col(C.name).str.contains(_LAUNCHES), ~pl.col(C.name).is_in(GRAPH_LAUNCHES)
    )
    if slow.is_empty():
        return slow
    busy = trace.gpu_events.drop_nulls([C.ts_ns, C.dur_ns])
    ends, starts = (slow.select(each).to_series().to_numpy() for each in (END, pl.col(C.ts_ns)))
    busy_ns = covered_during(busy, starts, ends)
    launched = (
        trace.launches.join(calls.select(C.ts_ns, **{C.runtime_uid: C.uid}), on=C.runtime_uid)
        .join(trace.gpu_events.select(kernel=C.name, **{C.gpu_uid: C.uid}), on=C.gpu_uid)
        .sort(C.ts_ns)
        .unique("kernel", keep="first", maintain_order=True)
    )
    return slow.filter(
        pl.Series(busy_ns <= _MAX_BUSY_SHARE * (ends - starts))
        & pl.col(C.uid).is_in(launched[C.runtime_uid].implode())
    )


def _named(trace: Trace, pattern: str) -> pl.DataFrame:
    frames = (trace.annotations, trace.cpu_ops, trace.python_functions, trace.runtime)
    return pl.concat(
        events.select(_CALL).filter(contains(events[C.name], pattern)) for events in frames
    )


def _not_in_every_step(calls: pl.DataFrame, steps: int) -> pl.DataFrame:
    """Return calls of which some of several steps makes none."""
    return calls if steps == 1 or calls[C.step].n_unique() < steps else calls.clear()
