"""The step time that findings save: its bounds, their order and priority, and what adds up."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.findings import (
    COMMUNICATION_POOL,
    COPIES_POOL,
    IDLE_POOL,
    Finding,
    Impact,
    Priority,
)
from jarvis.perf_report import Totals
from jarvis.perf_report.intervals import covered_until
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.simulation.of_findings import without_work, work_of_rows
from jarvis.simulation.simulation import Simulation
from jarvis.text.messages import Message, MessageTable, to_text

CAPS = ((0.5, Priority.LOW), (1.0, Priority.MEDIUM), (5.0, Priority.HIGH))
"""A finding that saves less than this percentage of the steps has at most the priority."""

FLOORS = ((40.0, Priority.CRITICAL), (10.0, Priority.HIGH), (1.0, Priority.MEDIUM))
"""A finding that saves this percentage of the steps has at least the priority. So none saves ten
times more than one of a more urgent priority, except an interval."""

EQUAL_DIGITS = 3
"""Savings in ms that are equal in so many decimals, to the µs, do not decide the order."""

MESSAGES = MessageTable(
    "savings",
    {
        "bounded": "{priority}: {time_ms} of GPU time{of_compute}, but the step gains {gain_pct}, "
        "at most {high_pct}.",
        "bounded.nothing": "{priority}: {time_ms} of GPU time{of_compute}, but the step does not "
        "wait for it and stays as long.",
        "bounded.hidden": "{priority}: {time_ms} of GPU time{of_compute}, but a collective that "
        "ends later hides it, so the step stays as long.",
        "of_compute": " ({compute_pct} of compute)",
        "raised": "{priority}: it saves {gain_pct} of the step.",
        "interval.host": "{priority}: up to {high_pct} of the step, as the host needs the rest for "
        "itself; a trace of one rank does not separate transfer from waiting for other ranks.",
        "interval": "{priority}: up to {high_pct} of the step, but a trace of one rank does not "
        "separate transfer from waiting for other ranks.",
    },
)


def with_step_savings(
    findings: Iterable[Finding],
    totals: Totals,
    gpu_work: pl.DataFrame | None,
    simulation: Simulation | None = None,
) -> list[Finding]:
    """Return the findings with the step time that they save and the priority that it allows.

    Shorter kernels save at most the time in which they run, and what bounds all kernels
    (``StepBounds``); other findings at most the time of their pool in the steps. With a simulation,
    less GPU work saves at most what the replayed steps gain without that work. Findings are
    unchanged if the step time is not known.
    """
    return within_steps(findings, totals.step, gpu_work, simulation)


def within_steps(
    findings: Iterable[Finding],
    bounds: StepBounds | None,
    gpu_work: pl.DataFrame | None,
    simulation: Simulation | None = None,
) -> list[Finding]:
    """Return the findings as ``with_step_savings`` does, for the bounds of recorded steps."""
    if bounds is None or bounds.step_ms is None:
        return list(findings)
    step_ms = bounds.step_ms
    return [_with_step_saving(each, bounds, step_ms, gpu_work, simulation) for each in findings]


def _with_step_saving(
    finding: Finding,
    bounds: StepBounds,
    step_ms: float,
    gpu_work: pl.DataFrame | None,
    simulation: Simulation | None,
) -> Finding:
    if finding.impact is None:
        return finding
    gain = finding.impact
    if gain.step_ms is None:
        limit_ms = _limit_ms(finding, bounds, gpu_work)
        if simulation is not None and (without := without_work(finding, simulation)):
            limit_ms = min(limit_ms, max(0.0, simulation.steps_saved_ms(without)))
        gain = impact.of_steps(gain, limit_ms, step_ms)
    priority = step_priority(finding.priority, gain)
    update: dict[str, object] = {"impact": gain, "priority": priority}
    if priority is not finding.priority:
        is_hidden = bool(bounds.hidden) and bounds.kernels_ms > 0
        update["priority_before"] = finding.priority
        update["priority_reason"] = (_reason(finding, gain, priority, is_hidden=is_hidden),)
    return finding.model_copy(update=update)


def _limit_ms(finding: Finding, bounds: StepBounds, gpu_work: pl.DataFrame | None) -> float:
    """Return the most step time that the finding can save."""
    if finding.time_pool is None:
        running_ms = bounds.kernels_ms
        if gpu_work is not None:
            running_ms = _running_ms(work_of_rows(finding, gpu_work), bounds)
        return min(bounds.kernels_ms, running_ms)
    pools = {
        IDLE_POOL: bounds.idle_ms,
        COMMUNICATION_POOL: bounds.comm_ms,
        COPIES_POOL: bounds.copies_ms,
    }
    limits = (limit for pool, limit in pools.items() if finding.time_pool.startswith(pool))
    limit_ms = next(limits, bounds.step_ms or 0.0)
    return min(limit_ms, bounds.kernels_ms) if _is_awaited(finding, bounds) else limit_ms


def _is_awaited(finding: Finding, bounds: StepBounds) -> bool:
    """Return whether a finding saves only time in which the host waits for the GPU.

    Less idle time does not need that, nor do fewer copies, whose calls take time on the host, if
    the host sets the pace.
    """
    pool = finding.time_pool or ""
    if pool.startswith(COPIES_POOL):
        return bounds.by_gpu
    return not pool or pool.startswith(COMMUNICATION_POOL)


def _running_ms(own: pl.DataFrame, bounds: StepBounds) -> float:
    """Return for how long this GPU work runs within the steps.

    Work at the same time counts once: it can be hidden behind other work of the finding, and the
    step waits for one of them at a time. Work that is hidden behind a collective does not count
    (``hidden_work``). Whether other work hides it is not known without the dependencies, so such
    time counts.
    """
    times = np.array([(bounds.start_ns, bounds.end_ns), *bounds.hidden], dtype=np.int64)
    times = times.clip(bounds.start_ns, bounds.end_ns)
    (running_ns, *hidden_ns) = np.diff(covered_until(own, times.ravel()).reshape(times.shape))
    return float((running_ns - sum(hidden_ns)).item()) / 1e6


def step_priority(priority: Priority, gain: Impact) -> Priority:
    """Return the priority, bounded and raised by the share of the steps that a finding saves."""
    pct = gain.gain_pct
    cap = next((cap for below_pct, cap in CAPS if pct < below_pct), Priority.CRITICAL)
    if gain.is_interval:
        cap = cap.at_most(Priority.MEDIUM)
    floor = next((floor for from_pct, floor in FLOORS if pct >= from_pct), Priority.LOW)
    return priority.at_least(floor).at_most(cap)


def _reason(finding: Finding, gain: Impact, priority: Priority, *, is_hidden: bool) -> Message:
    high_pct = (gain.step_pct or gain.e2e_pct).high
    if gain.is_interval:
        is_limited = gain.step_ms is not None and gain.step_ms.high < gain.saved_ms.high
        key = "interval.host" if is_limited else "interval"
        return MESSAGES(key, priority=priority.value, high_pct=high_pct)
    if priority.rank < finding.priority.rank:
        return MESSAGES("raised", priority=priority.value, gain_pct=gain.gain_pct)
    compute_pct = finding.evidence.get("compute_pct")
    values = {
        "priority": priority.value,
        "time_ms": gain.time_ms,
        "of_compute": None
        if compute_pct is None
        else MESSAGES("of_compute", compute_pct=compute_pct),
        "gain_pct": gain.gain_pct,
        "high_pct": high_pct,
    }
    nothing = "bounded.hidden" if is_hidden else "bounded.nothing"
    return MESSAGES.pick("bounded" if high_pct > 0 else nothing, values)


def ranked(findings: Iterable[Finding], totals: Totals) -> list[Finding]:
    """Sort findings in the order of their P-numbers.

    By the step time that they save, of GPU time where steps are not known; then by kernel time
    saved. Findings without a known saving follow, by priority and the time that they concern. Those
    of earlier releases are sorted as these did.
    """
    return by_priority(findings) if totals.step is None else sorted(findings, key=_order)


def _order(finding: Finding) -> tuple[bool, bool, float, float, int, float, str, str]:
    gain = finding.impact
    return (
        not finding.leads,
        gain is None,
        -round(gain.gain_ms, EQUAL_DIGITS) if gain else 0.0,
        -gain.saved_ms.mid if gain else 0.0,
        finding.priority.rank,
        -_time_ms(finding),
        finding.category,
        to_text(finding.title),
    )


def by_priority(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by priority, as releases did before they knew the steps.

    Within a priority, findings whose operations another one speeds up more come last. Then by
    saving, and those without a known saving by the time that they concern.
    """
    found = list(findings)
    covered = [_is_covered(finding, found) for finding in found]

    def order(place: int) -> tuple[int, bool, float, float, str, str]:
        finding = found[place]
        saved_ms = finding.impact.saved_ms.mid if finding.impact else 0.0
        names = finding.category, to_text(finding.title)
        return finding.priority.rank, covered[place], -saved_ms, -_time_ms(finding), *names

    return [found[place] for place in sorted(range(len(found)), key=order)]


def _time_ms(finding: Finding) -> float:
    value = finding.evidence.get("gpu_time_ms")
    return float(value) if isinstance(value, int | float) else 0.0


def _is_covered(finding: Finding, others: Iterable[Finding]) -> bool:
    """Return whether another finding, at least as urgent, saves more on all of this one's rows."""
    if finding.impact is None or not (rows := finding.row_uids):
        return False
    saved_ms = finding.impact.saved_ms.mid
    return any(
        other.impact is not None
        and other.impact.saved_ms.mid > saved_ms
        and other.priority.rank <= finding.priority.rank
        and rows <= other.row_uids
        for other in others
    )


def disjoint_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings whose savings add up, largest saving first.

    Of findings that share an operation or a pool of time, only the one that saves most is included.
    Intervals are not: an estimate cannot be added to them.
    """
    chosen: list[Finding] = []
    used: set[int | str] = set()
    quantified = [f for f in findings if f.impact is not None and not f.impact.is_interval]
    for finding in sorted(quantified, key=lambda f: -f.impact.gain_ms if f.impact else 0.0):
        sources = time_sources(finding)
        if not sources & used:
            used |= sources
            chosen.append(finding)
    return chosen


def time_sources(finding: Finding) -> set[int | str]:
    """Return the sources of a finding's saving: rows of the operations table and pools of time."""
    pool = () if finding.time_pool is None else (finding.time_pool,)
    return {*finding.row_uids, *pool}


def added_savings(findings: Iterable[Finding], totals: Totals) -> list[tuple[Finding, float]]:
    """Return the findings whose savings add up with what each adds in ms, largest first.

    Together they save at most ``whole_ms``, those that shorten GPU work at most what bounds all
    kernels.
    """
    bounds = totals.step
    left_ms = whole_ms(totals)
    kernels_ms = left_ms if bounds is None or bounds.step_ms is None else bounds.kernels_ms
    added = []
    for finding in disjoint_findings(findings):
        is_awaited = _is_awaited(finding, bounds or StepBounds())
        gain_ms = finding.impact.gain_ms if finding.impact else 0.0
        gain_ms = min(gain_ms, left_ms, kernels_ms if is_awaited else left_ms)
        left_ms -= gain_ms
        kernels_ms -= gain_ms if is_awaited else 0.0
        added.append((finding, gain_ms))
    return added


def disjoint_saving_ms(findings: Iterable[Finding], totals: Totals) -> float:
    """Return the sum of ``added_savings`` in ms."""
    return sum(gain_ms for _, gain_ms in added_savings(findings, totals))


def whole_ms(totals: Totals) -> float:
    """Return the time of which savings are a part: of the steps or, if unknown, the GPU window."""
    bounds = totals.step
    return totals.total_time_ms if bounds is None else bounds.step_ms or totals.total_time_ms


def whole_name(totals: Totals) -> str:
    """Return the name of ``whole_ms``."""
    bounds = totals.step
    if bounds is None or bounds.step_ms is None:
        return "the GPU window"
    if not bounds.is_marked:
        return "the recording"
    return "the step" if bounds.steps == 1 else f"the {bounds.steps} steps"
