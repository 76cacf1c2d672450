"""Findings about the time of a step outside compute: idle time, communication and copies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.comparison import basis as names
from jarvis.comparison.basis import FindingInput
from jarvis.comparison.messages import MESSAGES
from jarvis.comparison.sides import Side
from jarvis.findings import COMMUNICATION_POOL, COPIES_POOL, IDLE_POOL, Finding, Priority, texts_of
from jarvis.perf_report.timeline.steps import IDLE_PARTS, PARTS
from jarvis.schemas.names import C
from jarvis.text.messages import Message
from jarvis.text.quantities import QUANTITIES, idle_quantity


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a step: its check, columns of ``steps``, row of the GPU timeline, and pool of
    savings."""

    check: str
    columns: tuple[str, ...]
    timeline: str
    evidence: str
    category: str
    pool: str


IDLE = Part("longer_idle", IDLE_PARTS, "idle_time", "idle_ms", "cpu_idle", IDLE_POOL)
COMMUNICATION = Part(
    "more_exposed_communication",
    (C.exposed_comm_ns,),
    "exposed_comm_time",
    "exposed_communication_ms",
    "multi_kernel",
    COMMUNICATION_POOL,
)
COPIES = Part(
    "more_exposed_copies",
    (C.exposed_copy_ns,),
    "exposed_memcpy_time",
    "exposed_copies_ms",
    "multi_kernel",
    COPIES_POOL,
)
OUTSIDE_COMPUTE = {part.check: part for part in (IDLE, COMMUNICATION, COPIES)}


def outside_compute(inputs: FindingInput) -> Iterator[Finding]:
    """Yield a finding for each part of the step that takes longer on the target."""
    target, reference = inputs.paired.target, inputs.paired.reference
    has_steps = _has_steps(target, reference)
    step_ms = _part_ms(target, PARTS, "total_time", has_steps=has_steps) or 0.0
    for part in OUTSIDE_COMPUTE.values():
        times = [
            _part_ms(side, part.columns, part.timeline, has_steps=has_steps) or 0.0
            for side in (target, reference)
        ]
        extra_ms = times[0] - times[1]
        is_relevant = impact.share_pct(extra_ms, step_ms) >= impact.RELEVANT_STEP_PCT
        if is_relevant and extra_ms >= impact.MIN_SAVED_MS:
            yield _finding(inputs, part, times[0], times[1], step_ms, has_steps=has_steps)


def _has_steps(target: Side, reference: Side) -> bool:
    """Return whether the steps of both sides are known, and marked on both or on none."""
    known = [side.steps_ms(*PARTS) is not None for side in (target, reference)]
    return all(known) and (target.steps is None) == (reference.steps is None)


def _part_ms(
    side: Side, columns: tuple[str, ...], timeline: str, *, has_steps: bool
) -> float | None:
    return side.steps_ms(*columns) if has_steps else side.timeline_ms(timeline)


def causes(target: Side, reference: Side) -> Mapping[str, tuple[float, float]]:
    """Return the idle time of target and reference by cause, in ms, largest difference first."""
    if not _has_steps(target, reference):
        return {}
    of_target, of_reference = target.gaps_ms(), reference.gaps_ms()
    both = {
        _label(cause): (
            of_target.get(cause, 0.0),
            of_reference.get(cause, 0.0),
        )
        for cause in {**of_target, **of_reference}
    }
    return dict(sorted(both.items(), key=lambda item: (item[1][1] - item[1][0], item[0])))


def _label(cause: str) -> str:
    return QUANTITIES[idle_quantity(cause)].label.lower()


def _finding(
    inputs: FindingInput,
    part: Part,
    time_ms: float,
    reference_ms: float,
    step_ms: float,
    *,
    has_steps: bool,
) -> Finding:
    extra_ms = time_ms - reference_ms
    total_ms = step_ms if inputs.paired.target.bounds is None else inputs.total_ms
    gain = impact.bounded_impact(time_ms, extra_ms, compute_ms=inputs.compute_ms, total_ms=total_ms)
    cause = _cause(inputs, extra_ms) if part is IDLE else None
    values = {
        "time_ms": time_ms,
        "reference_ms": reference_ms,
        "extra_ms": extra_ms,
        "step_pct": impact.share_pct(extra_ms, step_ms),
        "span": _span(inputs.paired.target, has_steps=has_steps),
        "whole": MESSAGES("whole.steps" if has_steps else "whole.window"),
        "cause": cause,
    }
    texts = texts_of(MESSAGES, values, suffix=part.check)
    if cause is not None and isinstance(call := cause.values["call"], Message):
        texts |= texts_of(MESSAGES, values | call.values, suffix=f"{part.check}.call")
    priority = _priority(impact.share_pct(extra_ms, step_ms))
    return Finding(
        check=part.check,
        category=part.category,
        **texts,
        evidence={part.evidence: time_ms, names.UNEXPLAINED_TIME: extra_ms},
        impact=gain,
        priority=priority,
        priority_local=priority,
        time_pool=part.pool,
    )


def _span(side: Side, *, has_steps: bool) -> Message:
    if side.divisor > 1:
        return MESSAGES("span.step")
    steps = side.steps if has_steps else None
    return MESSAGES("span.recording") if steps is None else MESSAGES("span.steps", steps=steps)


def _cause(inputs: FindingInput, extra_ms: float) -> Message | None:
    """Return the cause with at least half of the difference."""
    target, reference = inputs.paired.target, inputs.paired.reference
    labels = {_label(cause): cause for cause in target.gaps_ms()}
    for label, (time_ms, other_ms) in causes(target, reference).items():
        if time_ms - other_ms >= extra_ms / 2:
            call = _main_call(target, labels[label])
            named = None if call is None else MESSAGES("cause.call", call=call)
            values = {"cause": label, "cause_ms": time_ms, "other_ms": other_ms, "call": named}
            return MESSAGES("cause", **values)
    return None


def _main_call(side: Side, cause: str) -> str | None:
    """Return the host call with at least half of the idle time of a cause, if it is recorded."""
    gaps = side.rows("step_gaps").filter(pl.col(C.cause) == cause)
    if C.host_call not in gaps.columns or gaps.is_empty():
        return None
    calls = gaps.group_by(C.host_call).agg(pl.col(C.dur_ns).sum()).sort(C.dur_ns, C.host_call)
    name, time_ns = calls.row(-1)
    return name if 2 * time_ns >= gaps[C.dur_ns].sum() else None


def _priority(extra_pct: float) -> Priority:
    if extra_pct >= impact.HIGH_COMPUTE_PCT:
        return Priority.HIGH
    return Priority.MEDIUM if extra_pct >= impact.MEDIUM_COMPUTE_PCT else Priority.LOW
