"""The step time that findings save: its bounds, their order and priority, and what adds up."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from jarvis import impact
from jarvis.changes import Change
from jarvis.findings import (
    COMMUNICATION_POOL,
    COPIES_POOL,
    IDLE_POOL,
    Finding,
    Impact,
    Priority,
    Range,
)
from jarvis.perf_report import Totals
from jarvis.perf_report.intervals import covered_until
from jarvis.perf_report.timeline.step_bounds import StepBounds
from jarvis.simulation.of_findings import (
    FUSED,
    changes_by_end,
    finding_changes,
    pool_changes,
    work_of_rows,
)
from jarvis.simulation.simulation import Simulation
from jarvis.text.format import percent
from jarvis.text.messages import Message, MessageTable, to_text

CAPS = ((0.5, Priority.LOW), (1.0, Priority.MEDIUM), (5.0, Priority.HIGH))
"""A finding that saves less than this percentage of the steps has at most the priority."""

FLOORS = ((40.0, Priority.CRITICAL), (1.0, Priority.HIGH), (0.5, Priority.MEDIUM))
"""A finding that saves this percentage of the steps has at least the priority. With CAPS, a finding
is at least as urgent as one that saves less, except an interval; between the last of CAPS and the
first of these, the priority before decides between High and Critical."""

EQUAL_DIGITS = 3
"""Decimals of savings in ms that decide the order: smaller differences than a µs do not."""

SHOWN, MIN_ADDED_PCT = 8, 0.1
"""Maximum number of findings whose part of the saving is shown, and the minimum of a part in a
replay, in percent of the steps."""

MESSAGES = MessageTable(
    "savings",
    {
        "bounded": "{priority}: {time_ms} of GPU time{of_compute} would have a higher priority, "
        "but the step gains only {gain_pct}, at most {high_pct}.",
        "bounded.exact": "{priority}: {time_ms} of GPU time{of_compute} would have a higher "
        "priority, but the step gains only {gain_pct}.",
        "bounded.nothing": "{priority}: {time_ms} of GPU time{of_compute} would have a higher "
        "priority, but the step does not wait for it, so the step time does not change.",
        "bounded.hidden": "{priority}: {time_ms} of GPU time{of_compute} would have a higher "
        "priority, but a collective that ends later hides it, so the step time does not change.",
        "of_compute": " ({compute_pct} of compute)",
        "raised": "{priority}: it saves {gain_pct} of the step.",
        "interval.host": "{priority}: up to {high_pct} of the step, limited by the host; a trace "
        "of one rank does not separate transfer from waiting for other ranks.",
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

    With a simulation, by replays of the recorded steps under the changes of the finding: less GPU
    work saves at most what the steps gain if no kernel takes time. Without, shorter kernels save at
    most the time in which they run, and what bounds all kernels (``StepBounds``). Other findings
    save at most the time of their pool in the steps. Findings are unchanged if the step time is not
    known.
    """
    return within_steps(findings, totals.step, gpu_work, simulation)


def within_steps(
    findings: Iterable[Finding],
    bounds: StepBounds | None,
    gpu_work: pl.DataFrame | None,
    simulation: Simulation | None = None,
) -> list[Finding]:
    """Return the findings as ``with_step_savings`` does, for the bounds of recorded steps."""
    if bounds is None:
        return list(findings)
    return [_with_step_saving(each, bounds, gpu_work, simulation) for each in findings]


def _with_step_saving(
    finding: Finding,
    bounds: StepBounds,
    gpu_work: pl.DataFrame | None,
    simulation: Simulation | None,
) -> Finding:
    gain = step_saving(finding, bounds, gpu_work, simulation)
    if gain is None:
        return finding
    priority = step_priority(finding.priority, gain)
    update: dict[str, object] = {"impact": gain, "priority": priority}
    if priority is not finding.priority:
        is_hidden = bool(bounds.hidden) and bounds.kernels_ms > 0 and not gain.is_replayed
        update["priority_before"] = finding.priority
        update["priority_reason"] = (_reason(finding, gain, priority, is_hidden=is_hidden),)
    return finding.model_copy(update=update)


def step_saving(
    finding: Finding,
    bounds: StepBounds | None,
    gpu_work: pl.DataFrame | None,
    simulation: Simulation | None,
) -> Impact | None:
    """Return the impact of a finding with the step time that it saves (``with_step_savings``)."""
    gain = finding.impact
    if gain is None or bounds is None or bounds.step_ms is None:
        return gain
    if simulation is not None:
        limit_ms = simulation.compute_saved_ms
        if finding.time_pool is not None:
            limit_ms = _limit_ms(finding, bounds, gpu_work)
        return _replayed(finding, gain, limit_ms, bounds.step_ms, simulation)
    if gain.step_ms is not None:
        return gain
    return impact.of_steps(gain, _limit_ms(finding, bounds, gpu_work), bounds.step_ms)


def _replayed(
    finding: Finding, gain: Impact, limit_ms: float, step_ms: float, simulation: Simulation
) -> Impact:
    """Return the impact with the step time that the replays of its three estimates save."""
    saved = [simulation.steps_saved_ms(each) for each in changes_by_end(finding, simulation)]
    if gain.is_interval:
        return impact.of_steps(gain, min(limit_ms, max(saved)), step_ms)
    gain = gain.model_copy(update={"is_replayed": True})
    low, mid, high = (min(max(each, 0.0), limit_ms) for each in saved)
    low, high = min(low, mid), max(mid, high)
    if finding.time_pool is None and finding.check not in FUSED:
        kernel_ms = gain.saved_ms  # launches that go with kernels are not claimed
        low, mid, high = min(low, kernel_ms.low), min(mid, kernel_ms.mid), min(high, kernel_ms.high)
    return impact.with_steps(gain, Range(low=low, mid=mid, high=high), step_ms)


def _limit_ms(finding: Finding, bounds: StepBounds, gpu_work: pl.DataFrame | None) -> float:
    """Return the most step time that the finding can save."""
    if finding.time_pool is None:
        running_ms = bounds.kernels_ms
        if gpu_work is not None:
            running_ms = _running_ms(work_of_rows(finding, gpu_work), bounds)
        return min(bounds.kernels_ms, running_ms)
    limit_ms = _pool_ms(finding.time_pool, bounds)
    return min(limit_ms, bounds.kernels_ms) if _is_awaited(finding, bounds) else limit_ms


def _pool_ms(pool: str, bounds: StepBounds) -> float:
    """Return the time of a pool in the steps."""
    pools = {
        IDLE_POOL: bounds.idle_ms,
        COMMUNICATION_POOL: bounds.comm_ms,
        COPIES_POOL: bounds.copies_ms,
    }
    limits = (limit for name, limit in pools.items() if pool.startswith(name))
    return next(limits, bounds.step_ms or 0.0)


def pool_saving_ms(
    pool: str, left: float, bounds: StepBounds | None, simulation: Simulation
) -> float:
    """Return the ms that the steps gain if a part ``left`` (0 to 1) of the idle time or of the
    communication remains."""
    saved_ms = simulation.steps_saved_ms(pool_changes(pool, left, simulation))
    limit_ms = saved_ms if bounds is None else _pool_ms(pool, bounds)
    return max(0.0, min(saved_ms, limit_ms))


def _is_awaited(finding: Finding, bounds: StepBounds) -> bool:
    """Return whether a finding saves only time in which the host waits for the GPU.

    Less idle time saves time of the host, and so do fewer copies, by their calls, if the host
    sets the pace.
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
    if high_pct <= 0:
        return MESSAGES.pick(nothing, values)
    is_exact = percent(high_pct) == percent(gain.gain_pct)
    return MESSAGES.pick("bounded.exact" if is_exact else "bounded", values)


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


@dataclass(frozen=True)
class Added:
    """What findings save of each step after those before them; only the last can be several."""

    findings: tuple[Finding, ...]
    saved_ms: float


def added_savings(
    findings: Iterable[Finding], totals: Totals, simulation: Simulation | None = None
) -> list[Added]:
    """Return what findings save of each step together: SHOWN of them one by one, and all others.

    With a simulation, in the order of ``findings``, each by a replay with the changes so far.
    Without, those whose savings add up, largest first: together at most the step, those that
    shorten GPU work at most what bounds all kernels. Intervals are not included: an estimate cannot
    be added to them.
    """
    if simulation is not None:
        added = _replayed_together(findings, simulation)
    else:
        added = [Added((finding,), saved_ms) for finding, saved_ms in _added(findings, totals)]
        rest = added[SHOWN:]
        others = tuple(finding for each in rest for finding in each.findings)
        more = [Added(others, sum(each.saved_ms for each in rest))] if rest else []
        added = [each for each in (*added[:SHOWN], *more) if each.saved_ms > 0]
    steps = step_count(totals)
    return [Added(each.findings, each.saved_ms / steps) for each in added]


def _replayed_together(findings: Iterable[Finding], simulation: Simulation) -> list[Added]:
    """Return what each finding adds in the order of the findings, by replays with its changes and
    those before it."""
    min_ms = MIN_ADDED_PCT / 100 * sum(simulation.recorded.steps_ns) / 1e6
    made: tuple[Change, ...] = ()
    saved_ms, added, left = 0.0, list[Added](), list[tuple[Finding, tuple[Change, ...]]]()
    for finding in findings:
        if finding.impact is None or finding.impact.is_interval:
            continue
        if not (changes := tuple(finding_changes(finding, simulation))):
            continue
        if len(added) < SHOWN:
            together_ms = simulation.steps_saved_ms([*made, *changes])
            if together_ms - saved_ms >= min_ms:
                added.append(Added((finding,), together_ms - saved_ms))
                made, saved_ms = (*made, *changes), together_ms
                continue
        left.append((finding, changes))
    all_ms = simulation.steps_saved_ms([*made, *(each for _, own in left for each in own)])
    if all_ms > saved_ms:
        added.append(Added(tuple(finding for finding, _ in left), all_ms - saved_ms))
    return added


def _added(findings: Iterable[Finding], totals: Totals) -> Iterator[tuple[Finding, float]]:
    bounds = totals.step
    left_ms = whole_ms(totals) * step_count(totals)
    kernels_ms = left_ms if bounds is None or bounds.step_ms is None else bounds.kernels_ms
    for finding in disjoint_findings(findings):
        is_awaited = _is_awaited(finding, bounds or StepBounds())
        gain_ms = finding.impact.gain_ms if finding.impact else 0.0
        gain_ms = min(gain_ms, left_ms, kernels_ms if is_awaited else left_ms)
        left_ms -= gain_ms
        kernels_ms -= gain_ms if is_awaited else 0.0
        yield finding, gain_ms


def together_ms(
    findings: Iterable[Finding], totals: Totals, simulation: Simulation | None = None
) -> float:
    """Return the sum of ``added_savings`` in ms."""
    return sum(added.saved_ms for added in added_savings(findings, totals, simulation))


def step_count(totals: Totals) -> int:
    """Return the number of steps that the time saved by a finding is summed over; 1 if the steps
    are not known."""
    bounds = totals.step
    return 1 if bounds is None or bounds.step_ms is None else max(1, bounds.steps)


def over_steps(totals: Totals) -> str:
    """Return ``over 2 steps`` for times that are sums of several steps, else an empty text."""
    steps = step_count(totals)
    return f"over {steps} steps" if steps > 1 else ""


def per_step(gain: Impact, totals: Totals) -> Impact:
    """Return an impact with the time that it saves of one step, the mean of the steps, as texts and
    pages show it. Savings of GPU time remain sums."""
    if gain.step_ms is None or (steps := step_count(totals)) == 1:
        return gain
    low, mid, high = (ms / steps for ms in (gain.step_ms.low, gain.step_ms.mid, gain.step_ms.high))
    return gain.model_copy(update={"step_ms": Range(low=low, mid=mid, high=high)})


def whole_ms(totals: Totals) -> float:
    """Return the time of which savings are a part: of one step, the mean of the steps, or, if
    unknown, of the GPU window."""
    bounds = totals.step
    if bounds is None or bounds.step_ms is None:
        return totals.total_time_ms
    return bounds.step_ms / step_count(totals) or totals.total_time_ms


def whole_name(totals: Totals) -> str:
    """Return the name of ``whole_ms``."""
    bounds = totals.step
    if bounds is None or bounds.step_ms is None:
        return "the GPU window"
    if not bounds.is_marked:
        return "the recording"
    return "the step" if bounds.steps == 1 else "each step"
