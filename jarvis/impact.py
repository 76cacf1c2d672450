"""Savings and priorities: all formulas and thresholds of impact estimates."""

from dataclasses import dataclass

import polars as pl

from jarvis.core.request import DEFAULT_TARGET_PCT, Targets
from jarvis.findings import Impact, Priority, Range
from jarvis.perf_report.efficiency import MEMORY_ONLY
from jarvis.schemas.names import C
from jarvis.text.format import percent

TARGET_PCT = DEFAULT_TARGET_PCT
"""Default target efficiency of an analysis and of the slider."""

EXCELLENT_EFFICIENCY_PCT = 80.0
"""Operations above it count as excellent, regardless of the target."""

BOTTLENECK_EFFICIENCY_PCT = 40.0
"""Operations below it need investigation; default of the highlight slider."""

GOOD_EFFICIENCY_PCT = 60.0
"""Above it, tuning has limited potential."""

LITTLE_GAIN_PCT = 10.0
"""A saving at the target below this share of an operation's time is small."""

PROJECTION_TARGETS_PCT = (20.0, 50.0, 70.0, 100.0)
"""Rows of a projection table, in addition to the target of the slider."""

ANOMALY_PCT = 110.0
"""Above it, the measurement or the peak is in doubt; such rows are excluded from projections."""

FULL_PCT = 100.0
BOTTLENECK_TIME_MS = 50.0
BOTTLENECK_CATEGORY_PCT = 5.0

CRITICAL_EFFICIENCY_PCT = 30.0
CRITICAL_COMPUTE_PCT = 15.0
HIGH_COMPUTE_PCT = 10.0
MEDIUM_COMPUTE_PCT = 5.0
RELEVANT_COMPUTE_PCT = 1.0
"""Only a larger share of compute can raise the priority."""

MIN_SAVED_COMPUTE_PCT = 0.5
MIN_SAVED_MS = 0.01
"""A smaller saving, as a share of compute or as a time, is not urgent: in a short trace half a
percent is less than one launch."""

SHORT_CALL_US = 10.0
"""A call with less GPU time takes about as long as launching the next one."""

KERNEL_FLOOR_US = 2.0
"""Minimal kernel time: the shortest kernels of real traces take 1.5 to 2 µs. A call with a smaller
roofline time cannot reach its roofline."""

TINY_ROOFLINE_US = 1.0
"""A call with a smaller roofline time is launch bound whatever it takes, so the peaks of two GPUs
explain no difference between their times."""

RELEVANT_STEP_PCT = 1.0
"""A smaller change of the idle time, communication or copies of a step is not a finding."""

MOSTLY_PCT, NEARLY_ALL_PCT = 50.0, 95.0
"""Shares of kernel time with a known efficiency, or without one, from which on a statement about
these kernels holds for most of the time, or for nearly all."""

REASON_PCT = 5.0
"""Below this percentage of its roofline, a call is not limited by a peak of the GPU."""

GAP_PARTS = (0.75, 0.875, 1.0)
"""Parts of the gap to the roofline: the low, middle and high score of TraceLens's agent."""

GOOD_COMPUTE_PCT = 95.0
"""Below this share of the GPU window, look at other activity before single kernels."""

EFFICIENCY_SCALE = (
    (ANOMALY_PCT, "anomaly: verify the measurement and the peak"),
    (FULL_PCT, "above the peak: verify the measurement and the peak"),
    (EXCELLENT_EFFICIENCY_PCT, "excellent"),
    (GOOD_EFFICIENCY_PCT, "good"),
    (BOTTLENECK_EFFICIENCY_PCT, "acceptable"),
    (0.0, "needs investigation"),
)


def efficiency_word(efficiency_pct: float | None) -> str:
    """Return the rating of an efficiency."""
    if efficiency_pct is None:
        return "not available"
    return next(word for above, word in EFFICIENCY_SCALE if efficiency_pct > above or above == 0.0)


def marked_efficiency(efficiency_pct: float | None) -> str:
    """Return an efficiency in percent of the roofline, with a mark above the peak."""
    text = percent(efficiency_pct)
    if efficiency_pct is None or efficiency_pct <= FULL_PCT:
        return text
    return f"{text} ⚠ {efficiency_word(efficiency_pct).partition(':')[0]}"


def is_anomaly(efficiency_pct: float | None) -> bool:
    """Return whether an efficiency is implausibly high."""
    return efficiency_pct is not None and efficiency_pct > ANOMALY_PCT


def time_at_target(time_ms: float, efficiency_pct: float, target_pct: float) -> float:
    """Return the time of an operation at ``target_pct`` of its roofline: T·e/p, at most T."""
    return time_ms * efficiency_pct / target_pct if target_pct > efficiency_pct else time_ms


def has_efficiency() -> pl.Expr:
    """Return whether ``pct_roofline`` is known and not only a lower bound."""
    return pl.col(C.pct_roofline).is_not_null() & pl.col(C.bound).ne_missing(MEMORY_ONLY)


def target_of_rows(targets: Targets) -> pl.Expr:
    """Return the target efficiency of operations, by their ``category``."""
    own = dict(targets.own)
    return pl.col(C.category).replace_strict(own, default=targets.pct, return_dtype=pl.Float64)


def saved_us(target_pct: float | pl.Expr) -> pl.Expr:
    """Return the ``kernel_time_us`` saved at a target, from ``pct_roofline``; null without a
    reliable efficiency. Kernels take at least KERNEL_FLOOR_US on average."""
    efficiency, time_us = pl.col(C.pct_roofline), pl.col(C.kernel_time_us)
    most_us = (time_us - KERNEL_FLOOR_US * pl.col(C.kernel_count)).clip(lower_bound=0.0)
    saved = pl.min_horizontal(time_us * (1 - efficiency / target_pct), most_us)
    return (
        pl.when(~has_efficiency())
        .then(None)
        .when(efficiency < target_pct)
        .then(saved)
        .otherwise(0.0)
    )


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
    """Return the gain of reaching ``target_pct`` for an operation of ``time_ms``.

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
    """Return ``project`` at each of PROJECTION_TARGETS_PCT and at the target of the slider."""
    targets = sorted({*PROJECTION_TARGETS_PCT, target_pct})
    return [
        project(time_ms, efficiency_pct, target, compute_ms=compute_ms, total_ms=total_ms)
        for target in targets
    ]


def share_pct(part: float, whole: float) -> float:
    """Return ``part`` in percent of ``whole``; 0 if ``whole`` is 0."""
    return 100 * part / whole if whole > 0 else 0.0


def modelled_impact(
    time_ms: float,
    efficiency_pct: float,
    target_pct: float,
    *,
    compute_ms: float,
    total_ms: float,
) -> Impact:
    """Return the impact of raising an operation's efficiency.

    low: half of the way to the target; mid: the target; high: the full roofline.
    """

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
    """Return an impact with an upper bound from the trace.

    At most ``saved_ms``; ``mid_ms`` defaults to half of the way from ``low_ms``. ``efficiency_pct``
    is the present efficiency, if known.
    """
    mid = (low_ms + saved_ms) / 2 if mid_ms is None else mid_ms
    savings = Range(low=low_ms, mid=mid, high=saved_ms)
    return _impact(time_ms, savings, "upper bound", compute_ms, total_ms, efficiency_pct)


def is_little(gain: Impact) -> bool:
    """Return whether the middle estimate saves less than LITTLE_GAIN_PCT of the time."""
    return share_pct(gain.saved_ms.mid, gain.time_ms) < LITTLE_GAIN_PCT


def as_interval(gain: Impact) -> Impact:
    """Return the impact marked as an interval: a trace of one rank shows only its ends."""
    return gain.model_copy(update={"is_interval": True})


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
    """Return the impact of one kernel replacing several that take ``time_ms``.

    ``fused_ms`` is that kernel's roofline time, ``traffic_pct`` its memory traffic in percent of
    theirs; it takes at least ``floor_ms``, the minimal launch time, and hardly less than the
    shortest of them, ``shortest_ms``. low: it moves its bytes at their bandwidth; mid: it runs at
    the target; high: at its roofline.
    """

    def saved(at_ms: float, least_ms: float) -> float:
        return max(0.0, time_ms - max(at_ms, least_ms))

    high = saved(fused_ms, floor_ms)
    mid = min(high, saved(fused_ms * FULL_PCT / target_pct, shortest_ms))
    low = min(mid, saved(time_ms * traffic_pct / FULL_PCT, shortest_ms))
    efficiency_pct = share_pct(max(fused_ms, floor_ms), time_ms)
    savings = Range(low=low, mid=mid, high=high)
    is_at_target = shortest_ms <= fused_ms * FULL_PCT / target_pct
    aim_pct = target_pct if is_at_target else None
    return _impact(time_ms, savings, "perf model", compute_ms, total_ms, efficiency_pct, aim_pct)


def sped_up_impact(
    time_ms: float,
    speedups: tuple[float, float],
    mid_ms: float | None,
    *,
    compute_ms: float,
    total_ms: float,
) -> Impact:
    """Return the impact of running ``speedups`` times as fast, lowest to highest, from experience.

    ``mid_ms`` is a modelled time after the change, clipped to the range. Without it the middle is
    the geometric mean of the speedups.
    """
    least, most = speedups
    low, high = time_ms * (1 - 1 / least), time_ms * (1 - 1 / most)
    usual_ms = time_ms / (least * most) ** 0.5 if mid_ms is None else mid_ms
    savings = Range(low=low, mid=min(max(time_ms - usual_ms, low), high), high=high)
    return _impact(time_ms, savings, "heuristic", compute_ms, total_ms)


def within_steps_of(projected: Impact, found: Impact) -> Impact:
    """Return a projected impact with its step time, within the bound of the stored one."""
    projected = projected.model_copy(update={"is_interval": found.is_interval})
    if found.step_ms is None or found.step_pct is None or found.step_ms.high <= 0:
        return projected.model_copy(update={"step_ms": found.step_ms, "step_pct": found.step_pct})
    high_ms = found.step_ms.high
    return of_steps(projected, high_ms, FULL_PCT * high_ms / found.step_pct.high)


def of_steps(gain: Impact, limit_ms: float, step_ms: float) -> Impact:
    """Return the impact with its saving of step time: its range, scaled to at most ``limit_ms``.

    ``step_ms`` is the time of the steps. The middle is less than the high end, which is the bound.
    """
    saved = gain.saved_ms
    factor = min(1.0, limit_ms / saved.high) if saved.high > 0 else 0.0
    low, mid, high = (factor * value for value in (saved.low, saved.mid, saved.high))
    mid = mid if mid < high else (low + high) / 2
    return with_steps(gain, Range(low=low, mid=mid, high=high), step_ms)


def with_steps(gain: Impact, saved: Range, step_ms: float) -> Impact:
    """Return the impact with its saving of step time, of steps that take ``step_ms``."""
    low, mid, high = (share_pct(value, step_ms) for value in (saved.low, saved.mid, saved.high))
    return gain.model_copy(
        update={"step_ms": saved, "step_pct": Range(low=low, mid=mid, high=high)}
    )


def multiplied(gain: Impact, factor: float) -> Impact:
    """Return the impact with its times multiplied and its shares unchanged, for other numbers of
    steps."""

    def times(saved: Range) -> Range:
        return Range(low=saved.low * factor, mid=saved.mid * factor, high=saved.high * factor)

    return gain.model_copy(
        update={
            "time_ms": gain.time_ms * factor,
            "saved_ms": times(gain.saved_ms),
            "step_ms": times(gain.step_ms) if gain.step_ms else None,
        }
    )


def gap_scores(gap_pct: float) -> Range:
    """Return the scores of TraceLens's agent for a gap to the roofline, as a share of GPU wall
    time: parts of the gap (GAP_PARTS), independent of the target."""
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

    # Overlapping kernels sum to more than the elapsed time, which bounds the saving.
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
    """Return whether an operation takes enough time to be considered within its category."""
    return time_ms > BOTTLENECK_TIME_MS or category_pct > BOTTLENECK_CATEGORY_PCT


def local_priority(
    *, compute_pct: float, efficiency_pct: float | None, is_pattern: bool = False
) -> Priority:
    """Return the priority within a category, without the list of top operations."""
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
    """Return the priority across all categories, which considers the top operations of the trace.

    Nothing is urgent below RELEVANT_COMPUTE_PCT (a small trace has ten top operations too), or with
    a saving below MIN_SAVED_COMPUTE_PCT or MIN_SAVED_MS (a top operation close to the target).
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
