"""What a change would gain and how urgent it is: the only home of these formulas and thresholds."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from jarvis.core.request import DEFAULT_TARGET_PCT
from jarvis.findings import Finding, Impact, Priority, Range
from jarvis.perf_report.efficiency import MEMORY_ONLY
from jarvis.text.format import percent
from jarvis.text.messages import to_text

TARGET_PCT = DEFAULT_TARGET_PCT
"""Default of the target efficiency, of an analysis and of the slider."""

EXCELLENT_EFFICIENCY_PCT = 80.0
"""Above it an operation counts as excellent, whatever the target."""

BOTTLENECK_EFFICIENCY_PCT = 40.0
"""Below it an operation needs investigation; default of the highlight slider."""

GOOD_EFFICIENCY_PCT = 60.0
"""Above it tuning has limited potential."""

PROJECTION_TARGETS_PCT = (20.0, 50.0, 70.0, 100.0)
"""Rows of a projection table, beside the target of the slider."""

ANOMALY_PCT = 110.0
"""Above it the measurement or the peak is in doubt; such rows take no part in projections."""

FULL_PCT = 100.0
BOTTLENECK_TIME_MS = 50.0
BOTTLENECK_CATEGORY_PCT = 5.0

CRITICAL_EFFICIENCY_PCT = 30.0
CRITICAL_COMPUTE_PCT = 15.0
HIGH_COMPUTE_PCT = 10.0
MEDIUM_COMPUTE_PCT = 5.0
RELEVANT_COMPUTE_PCT = 1.0
"""Only above this share of compute can anything raise the priority."""

MIN_SAVED_COMPUTE_PCT = 0.5
MIN_SAVED_MS = 0.01
"""A smaller saving, as a share of compute or as a time, is not urgent: in a short trace half a
percent is less than one launch costs."""

SHORT_CALL_US = 10.0
"""A call with less GPU time than this takes about as long as launching the next one."""

KERNEL_FLOOR_US = 2.0
"""The shortest kernels of real traces take 1.5 to 2 µs, however little they do: a call whose
roofline time is below cannot reach its roofline."""

GAP_PARTS = (0.75, 0.875, 1.0)
"""Parts of the gap to the roofline: the low, middle and high score of TraceLens's agent."""

GOOD_COMPUTE_PCT = 95.0
"""Below this share of GPU wall time, look at what is not compute before single kernels."""

_ROUNDING = 1e-9
"""Two savings that differ by a smaller part are the same."""

EFFICIENCY_SCALE = (
    (ANOMALY_PCT, "anomaly: verify the measurement and the peak"),
    (FULL_PCT, "above the peak: verify the measurement and the peak"),
    (EXCELLENT_EFFICIENCY_PCT, "excellent"),
    (GOOD_EFFICIENCY_PCT, "good"),
    (BOTTLENECK_EFFICIENCY_PCT, "acceptable"),
    (0.0, "needs investigation"),
)


def efficiency_word(efficiency_pct: float | None) -> str:
    """The place of an efficiency on the scale, in words."""
    if efficiency_pct is None:
        return "not available"
    return next(word for above, word in EFFICIENCY_SCALE if efficiency_pct > above or above == 0.0)


def marked_efficiency(efficiency_pct: float | None) -> str:
    """An efficiency in percent of the roofline; one above the peak carries a mark."""
    text = percent(efficiency_pct)
    if efficiency_pct is None or efficiency_pct <= FULL_PCT:
        return text
    return f"{text} ⚠ {efficiency_word(efficiency_pct).partition(':')[0]}"


def is_anomaly(efficiency_pct: float | None) -> bool:
    """Whether an efficiency is too high to be believed."""
    return efficiency_pct is not None and efficiency_pct > ANOMALY_PCT


def time_at_target(time_ms: float, efficiency_pct: float, target_pct: float) -> float:
    """The time of an operation at ``target_pct`` of its roofline: T·e/p, never more than T."""
    return time_ms * efficiency_pct / target_pct if target_pct > efficiency_pct else time_ms


def is_judged() -> pl.Expr:
    """Whether ``pct_roofline`` says how good a row is: it is known, and no mere lower limit."""
    return pl.col("pct_roofline").is_not_null() & pl.col("bound").ne_missing(MEMORY_ONLY)


def saved_us(target_pct: float) -> pl.Expr:
    """``kernel_time_us`` saved at a target, from ``pct_roofline``; null where not judged."""
    efficiency = pl.col("pct_roofline")
    saved = pl.col("kernel_time_us") * (1 - efficiency / target_pct)
    return pl.when(~is_judged()).then(None).when(efficiency < target_pct).then(saved).otherwise(0.0)


@dataclass(frozen=True, slots=True)
class Projection:
    """One row of a projection table; shares are in percent."""

    target_pct: float
    time_ms: float
    saved_ms: float
    op_improvement_pct: float
    compute_pct: float
    e2e_pct: float


def project(
    time_ms: float,
    efficiency_pct: float,
    target_pct: float,
    *,
    compute_ms: float,
    total_ms: float,
) -> Projection:
    """What reaching ``target_pct`` would gain for an operation of ``time_ms``.

    ``compute_ms`` and ``total_ms`` are the bases of the two shares: GPU compute time and GPU wall
    time.
    """
    projected_ms = time_at_target(time_ms, efficiency_pct, target_pct)
    saved_ms = time_ms - projected_ms
    return Projection(
        target_pct=target_pct,
        time_ms=projected_ms,
        saved_ms=saved_ms,
        op_improvement_pct=share_pct(saved_ms, time_ms),
        compute_pct=share_pct(saved_ms, compute_ms),
        e2e_pct=share_pct(saved_ms, total_ms),
    )


def projection_table(
    time_ms: float,
    efficiency_pct: float,
    target_pct: float,
    *,
    compute_ms: float,
    total_ms: float,
) -> list[Projection]:
    """``project`` at each of PROJECTION_TARGETS_PCT and at the target of the slider."""
    targets = sorted({*PROJECTION_TARGETS_PCT, target_pct})
    return [
        project(time_ms, efficiency_pct, target, compute_ms=compute_ms, total_ms=total_ms)
        for target in targets
    ]


def share_pct(part: float, whole: float) -> float:
    """``part`` in percent of ``whole``; 0 where there is no whole."""
    return 100 * part / whole if whole > 0 else 0.0


def modelled_impact(
    time_ms: float,
    efficiency_pct: float,
    target_pct: float,
    *,
    compute_ms: float,
    total_ms: float,
) -> Impact:
    """The impact of raising an operation's efficiency: half of the way to the target (low), the
    target (mid), the whole roofline (high)."""

    def saved(target: float) -> float:
        return time_ms - time_at_target(time_ms, efficiency_pct, target)

    halfway = efficiency_pct + max(0.0, target_pct - efficiency_pct) / 2
    savings = Range(low=saved(halfway), mid=saved(target_pct), high=saved(FULL_PCT))
    return _impact(time_ms, savings, "perf model", compute_ms, total_ms, efficiency_pct, target_pct)


def bounded_impact(
    time_ms: float,
    saved_ms: float,
    *,
    compute_ms: float,
    total_ms: float,
    low_ms: float = 0.0,
    mid_ms: float | None = None,
    efficiency_pct: float | None = None,
) -> Impact:
    """An impact that the trace bounds: at most ``saved_ms``; ``mid_ms`` defaults to half of the way
    from ``low_ms``. ``efficiency_pct`` is what the time runs at now, where that is known."""
    mid = (low_ms + saved_ms) / 2 if mid_ms is None else mid_ms
    savings = Range(low=low_ms, mid=mid, high=saved_ms)
    return _impact(time_ms, savings, "upper bound", compute_ms, total_ms, efficiency_pct)


def fused_impact(
    time_ms: float,
    fused_ms: float,
    traffic_pct: float,
    target_pct: float,
    *,
    floor_ms: float,
    shortest_ms: float,
    compute_ms: float,
    total_ms: float,
) -> Impact:
    """The impact of one kernel in place of several that take ``time_ms``.

    ``fused_ms`` is that kernel's time at its roofline, ``traffic_pct`` its memory traffic in
    percent of theirs; it takes at least ``floor_ms``, as any launch does, and hardly less than the
    shortest of them, ``shortest_ms``. It moves its bytes as fast as they do (low), runs at the
    target (mid), at its roofline (high).
    """

    def saved(at_ms: float, least_ms: float) -> float:
        return max(0.0, time_ms - max(at_ms, least_ms))

    high = saved(fused_ms, floor_ms)
    mid = min(high, saved(fused_ms * FULL_PCT / target_pct, shortest_ms))
    low = min(mid, saved(time_ms * traffic_pct / FULL_PCT, shortest_ms))
    efficiency_pct = share_pct(max(fused_ms, floor_ms), time_ms)
    savings = Range(low=low, mid=mid, high=high)
    return _impact(time_ms, savings, "perf model", compute_ms, total_ms, efficiency_pct, target_pct)


def sped_up_impact(
    time_ms: float,
    speedups: tuple[float, float],
    mid_ms: float | None,
    *,
    compute_ms: float,
    total_ms: float,
) -> Impact:
    """The impact of running ``speedups`` times as fast, from least to most, as experience says.

    ``mid_ms`` is a modelled time after the change; it stays within the range. Without one the
    middle is the geometric mean of the speed-ups.
    """
    least, most = speedups
    low, high = time_ms * (1 - 1 / least), time_ms * (1 - 1 / most)
    usual_ms = time_ms / (least * most) ** 0.5 if mid_ms is None else mid_ms
    savings = Range(low=low, mid=min(max(time_ms - usual_ms, low), high), high=high)
    return _impact(time_ms, savings, "heuristic", compute_ms, total_ms)


def at_target(
    found: Impact, target_pct: float, *, found_at_pct: float, compute_ms: float, total_ms: float
) -> Impact:
    """Project an impact that has a perf model from the target of its run to another target.

    ``found_at_pct`` is the target of the run. Limits still apply: a target of the finding's own,
    and the shortest time of the kernels. Other impacts do not depend on a target.
    """
    if found.method != "perf model" or found.efficiency_pct is None or found.target_pct is None:
        return found
    if target_pct == found_at_pct:
        return found
    limit_pct = found.target_pct if found.target_pct != found_at_pct else FULL_PCT

    def saved(target: float) -> float:
        after_ms = time_at_target(found.time_ms, found.efficiency_pct or 0.0, target)
        return found.time_ms - after_ms

    is_limited = found.saved_ms.mid < saved(found.target_pct) * (1 - _ROUNDING)
    most_ms = found.saved_ms.mid if is_limited else found.saved_ms.high
    reached_pct = min(target_pct, limit_pct)
    mid = min(saved(reached_pct), most_ms)
    low = min(saved((found.efficiency_pct + max(found.efficiency_pct, reached_pct)) / 2), mid)
    savings = Range(low=low, mid=mid, high=max(found.saved_ms.high, mid))
    return _impact(
        found.time_ms,
        savings,
        found.method,
        compute_ms,
        total_ms,
        found.efficiency_pct,
        reached_pct,
    )


def gap_scores(gap_pct: float) -> Range:
    """The scores that TraceLens's agent gives a gap to the roofline, taken as a share of GPU wall
    time: parts of the gap (GAP_PARTS), whatever the target."""
    low, mid, high = (part * max(0.0, gap_pct) for part in GAP_PARTS)
    return Range(low=low, mid=mid, high=high)


def _impact(
    time_ms: float,
    saved_ms: Range,
    method: str,
    compute_ms: float,
    total_ms: float,
    efficiency_pct: float | None = None,
    target_pct: float | None = None,
) -> Impact:
    def shares(whole: float) -> Range:
        return Range(
            low=share_pct(saved_ms.low, whole),
            mid=share_pct(saved_ms.mid, whole),
            high=share_pct(saved_ms.high, whole),
        )

    # Kernels that overlap take more time in sum than passes, and none of it can be saved twice.
    saved_ms = _at_most(saved_ms, total_ms) if total_ms > 0 else saved_ms
    return Impact.model_validate(
        {
            "time_ms": time_ms,
            "efficiency_pct": efficiency_pct,
            "target_pct": target_pct,
            "saved_ms": saved_ms,
            "compute_pct": shares(compute_ms),
            "e2e_pct": shares(total_ms),
            "method": method,
        }
    )


def _at_most(savings: Range, limit: float) -> Range:
    low, mid, high = (min(value, limit) for value in (savings.low, savings.mid, savings.high))
    return Range(low=low, mid=mid, high=high)


def is_time_relevant(time_ms: float, category_pct: float) -> bool:
    """Whether an operation takes enough time to be looked at within its category."""
    return time_ms > BOTTLENECK_TIME_MS or category_pct > BOTTLENECK_CATEGORY_PCT


def local_priority(
    *, compute_pct: float, efficiency_pct: float | None, is_pattern: bool = False
) -> Priority:
    """The priority as a category sees it, without the list of top operations."""
    efficiency = FULL_PCT if efficiency_pct is None else efficiency_pct
    if compute_pct > CRITICAL_COMPUTE_PCT and efficiency < CRITICAL_EFFICIENCY_PCT:
        return Priority.CRITICAL
    is_inefficient = efficiency < BOTTLENECK_EFFICIENCY_PCT and compute_pct > RELEVANT_COMPUTE_PCT
    if compute_pct > HIGH_COMPUTE_PCT or is_inefficient:
        return Priority.HIGH
    if compute_pct > MEDIUM_COMPUTE_PCT or is_pattern:
        return Priority.MEDIUM
    return Priority.LOW


def final_priority(
    *,
    is_top_operation: bool,
    compute_pct: float,
    category_pct: float,
    efficiency_pct: float | None,
    saved_compute_pct: float | None = None,
    saved_ms: float | None = None,
    is_pattern: bool = False,
) -> Priority:
    """The priority across all categories, where the top operations of the trace count.

    Nothing is urgent below RELEVANT_COMPUTE_PCT (a small trace has ten top operations too), nor
    where less than MIN_SAVED_COMPUTE_PCT or MIN_SAVED_MS is to be saved (a top operation close to
    the target).
    """
    efficiency = FULL_PCT if efficiency_pct is None else efficiency_pct
    if compute_pct <= RELEVANT_COMPUTE_PCT:
        return Priority.LOW
    if saved_compute_pct is not None and saved_compute_pct < MIN_SAVED_COMPUTE_PCT:
        return Priority.LOW
    if saved_ms is not None and saved_ms < MIN_SAVED_MS:
        return Priority.LOW
    if (
        is_top_operation
        and efficiency < CRITICAL_EFFICIENCY_PCT
        and compute_pct > CRITICAL_COMPUTE_PCT
    ):
        return Priority.CRITICAL
    is_inefficient = (
        efficiency < BOTTLENECK_EFFICIENCY_PCT and max(compute_pct, category_pct) > HIGH_COMPUTE_PCT
    )
    if is_top_operation or is_inefficient:
        return Priority.HIGH
    if compute_pct > MEDIUM_COMPUTE_PCT or is_pattern:
        return Priority.MEDIUM
    return Priority.LOW


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in the order of their P-numbers.

    By priority; within one, those whose operations another finding makes faster by more come last.
    Then by what they would save, and those that save nothing known by the time that they concern.
    """
    found = list(findings)
    covered = [_is_covered(finding, found) for finding in found]

    def order(place: int) -> tuple[int, bool, float, float, str, str]:
        finding = found[place]
        saved_ms = finding.impact.saved_ms.mid if finding.impact else 0.0
        value = finding.evidence.get("gpu_time_ms")
        time_ms = float(value) if isinstance(value, int | float) else 0.0
        names = finding.category, to_text(finding.title)
        return finding.priority.rank, covered[place], -saved_ms, -time_ms, *names

    return [found[place] for place in sorted(range(len(found)), key=order)]


def _is_covered(finding: Finding, others: Iterable[Finding]) -> bool:
    """Whether another finding, as urgent, saves more of all the rows that this one is about."""
    if finding.impact is None or not (rows := _rows(finding)):
        return False
    saved_ms = finding.impact.saved_ms.mid
    return any(
        other.impact is not None
        and other.impact.saved_ms.mid > saved_ms
        and other.priority.rank <= finding.priority.rank
        and rows <= _rows(other)
        for other in others
    )


def disjoint_findings(findings: Iterable[Finding]) -> list[Finding]:
    """The findings whose savings may be added up, largest saving first.

    Where findings share an operation or a pool of time, the one that saves most stands for all.
    """
    chosen: list[Finding] = []
    taken: set[int | str] = set()
    quantified = [finding for finding in findings if finding.impact is not None]
    for finding in sorted(quantified, key=lambda f: -f.impact.saved_ms.mid if f.impact else 0.0):
        drawn_on = time_sources(finding)
        if not drawn_on & taken:
            taken |= drawn_on
            chosen.append(finding)
    return chosen


def time_sources(finding: Finding) -> set[int | str]:
    """What a finding would take its saving from: rows of the operations table and pools of time."""
    pool = () if finding.time_pool is None else (finding.time_pool,)
    return {*_rows(finding), *pool}


def _rows(finding: Finding) -> set[int]:
    return {*(reference.uid for reference in finding.operations), *finding.shared_uids}


def disjoint_saving_ms(findings: Iterable[Finding], total_ms: float = math.inf) -> float:
    """Add up the middle estimates of findings, no time counted twice, to at most ``total_ms``."""
    added = sum(f.impact.saved_ms.mid for f in disjoint_findings(findings) if f.impact)
    return min(added, total_ms)
