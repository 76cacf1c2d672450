"""The checks that every category shares; each is pure: ``CategoryData -> Iterator[Finding]``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl

from jarvis import impact
from jarvis.analyses.advice import values_of
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import evidence_of, expectation, low_efficiency, opportunity
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups, weighted_efficiency
from jarvis.analyses.small_calls import many_small_calls
from jarvis.findings import Finding, OpRef, Priority, texts_of
from jarvis.perf_report.populations import MIN_CALLS as MIN_CALLS
from jarvis.perf_report.populations import MIN_GAP_US as MIN_GAP_US
from jarvis.perf_report.populations import MIN_RATIO as MIN_RATIO
from jarvis.schemas.names import C
from jarvis.text.format import milliseconds
from jarvis.text.messages import Message, MessageTable, action

VARIANCE_RATIO = 1.0
VARIANCE_MIN_CALLS = 10
VARIANCE_MIN_TOTAL_PCT = 5.0
"""Times vary if std/mean exceeds VARIANCE_RATIO, over more than VARIANCE_MIN_CALLS calls, in at
least this share of the GPU window."""

OUTLIERS_MIN_TOTAL_PCT = 0.5
"""Outliers are reported from this share of the GPU window on, by what they take beyond the other
calls."""

IMPOSSIBLE, DOUBTFUL = "impossible", "doubtful"
"""Kinds of efficiencies above the peak, by the excess."""

DOUBTS = MessageTable(
    "plausibility",
    {
        "title.impossible": "Above the peak: {name}",
        "title.doubtful": "At the limit of the peak: {name}",
        "issue": "{name} appears to run at {efficiency_pct} of its {bound} roofline{rate} over "
        "{time_ms}, {consequence}.",
        "rate": " ({achieved:number} of {peak:number} {unit})",
        "consequence.impossible": "so the peak, the perf model or the measured time is wrong",
        "consequence.doubtful": "a little more than the peak allows, so the peak or the modeled "
        "traffic is slightly off",
        "algorithmic": "Ignore the efficiency of {name}; rely on that of the other operators.",
        "kernel": "Verify that the {bound} peak{of_gpu} is that of the recorded GPU, and whether "
        "{arguments} fits in a cache, which makes the modeled {moved_bytes} per call too large.",
        "of_gpu": " of {gpu}",
        "caveat.impossible": "Anomaly: excluded from averages and projections.",
        "caveat.doubtful": "Treat it as close to the roofline: the excess has no meaning.",
        "verify": "Time {name} alone with {arguments} and compare its time with the recorded "
        "{mean_time_ms} per call.",
        "capture": "Measure the bytes that {kernel} actually moves with the platform's "
        "hardware-counter profiler{on_package}.",
    },
)

VARIANCE = MessageTable(
    "variance",
    {
        "title": "Unsteady times: {name}",
        "issue": "{calls:,} equal calls of {name}{of_arguments} vary widely: standard deviation "
        "{std_us:number} µs around a mean of {mean_us:number} µs.",
        "of_arguments": " of {arguments}",
        "algorithmic": "Check whether the first of the {calls} of {name}{other_streams} or "
        "changing data cause the difference, and record a later window if it is warm-up.",
        "other_streams": action(", other streams", "has_several_streams"),
        "kernel": "Compare the slow calls of {name} with the fast ones on the timeline before "
        "tuning: their mean represents neither.",
        "caveat": "The saving is not quantified: a trace does not show which of the times is "
        "typical.",
        "title.outliers": "Outlier calls: {name}",
        "title.groups": "Separate groups of times: {name}",
        "issue.groups": "{calls:,} equal calls of {name}{of_arguments} fall into groups whose "
        "times lie apart: {groups:joined ; }.",
        "group": "{group_calls:count call} of {group}{where}",
        "outlier": "{group_calls:count outlier} of {group}{where}{beyond}",
        "group.one": "{group_ms}",
        "group.range": "{shortest_ms} to {longest_ms}",
        "where.kernel": " with {kernel}",
        "where.modules": " in {modules:names}",
        "where.first": ", the first to run",
        "beyond": ", {beyond_ms} beyond {group_calls:either the time|the times} of the group below",
        "algorithmic.groups": "Find out what the slow calls of {name} do more than the fast ones, "
        "such as a longer window or the first use of a buffer: their arguments are equal.",
        "kernel.groups": "Tune each group of the {calls} of {name} by itself: their mean of "
        "{mean_us:number} µs mixes the groups.",
        "caveat.groups": "The saving is not quantified: equal arguments do not prove equal work.",
        "verify.groups": "After a change, compare each group of the {calls} of {name} with itself; "
        "the mean over all of them mixes the groups.",
        "capture.groups": action(
            "Record with `with_stack=True`: modules and lines then distinguish the groups of "
            "{name}.",
            "not has_stacks",
        ),
        "verify": "Record several steps after warm-up: the standard deviation of the {calls} of "
        "{name} must fall below {mean_us:number} µs.",
        "capture": action(
            "Record with a schedule that skips the first steps (wait and warm-up), over at least "
            "three steps, so that the {calls} of {name} can be separated by step.",
            "not has_several_steps",
        ),
    },
)


def above_peak(data: CategoryData) -> Iterator[Finding]:
    """Efficiencies above the hardware's peak.

    Symptom: an operator seems to exceed what the hardware can do.
    Rule: rows above {impact.ANOMALY_PCT}% of the roofline are excluded from all projections; rows
    between {impact.FULL_PCT}% and {impact.ANOMALY_PCT}% get a warning.
    Threshold: {impact.FULL_PCT}% and {impact.ANOMALY_PCT}% of the roofline; at least
    {MIN_COMPUTE_PCT}% of compute.
    """
    efficiency = pl.col(C.pct_roofline)
    is_anomaly = efficiency > impact.ANOMALY_PCT
    yield from _doubts(data, is_anomaly, IMPOSSIBLE)
    yield from _doubts(data, (efficiency > impact.FULL_PCT) & ~is_anomaly, DOUBTFUL)


def _doubts(data: CategoryData, is_in_range: pl.Expr, doubt: str) -> Iterator[Finding]:
    for group in groups(data.operations, is_in_range & impact.has_efficiency(), MIN_COMPUTE_PCT):
        if (efficiency := group.efficiency_pct) is not None:
            yield _doubt_of(data, group, efficiency, doubt)


def _doubt_of(
    data: CategoryData, group: OperationGroup, efficiency_pct: float, doubt: str
) -> Finding:
    rate = group.rate
    values = values_of(group) | {
        "time_ms": group.time_ms,
        "efficiency_pct": efficiency_pct,
        "rate": DOUBTS("rate", achieved=rate[0], peak=rate[1], unit=rate[2]) if rate else None,
        "of_gpu": DOUBTS("of_gpu", gpu=data.hardware.title) if data.hardware else None,
        "consequence": DOUBTS(f"consequence.{doubt}"),
    }
    return Finding(
        check="above_peak",
        category=data.key,
        operations=group.operations,
        evidence=evidence_of(group),
        **texts_of(DOUBTS, values),
        **texts_of(DOUBTS, values, suffix=doubt),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
    )


def high_variance(data: CategoryData) -> Iterator[Finding]:
    """Calls with equal arguments whose times differ widely.

    Symptom: the same call is sometimes fast and sometimes slow.
    Rule: a row with recorded arguments whose standard deviation of kernel time exceeds its mean, or
    whose calls are in several groups with times that lie apart (each at least {MIN_RATIO} times and
    more than {MIN_GAP_US} µs above the one before, of at least {MIN_CALLS} calls), over enough
    calls and the GPU window; or whose outliers, groups of fewer calls, take enough time beyond the
    others.
    Threshold: std/mean above {VARIANCE_RATIO}; more than {VARIANCE_MIN_CALLS} calls;
    {VARIANCE_MIN_TOTAL_PCT}% of the GPU window, {OUTLIERS_MIN_TOTAL_PCT}% for outliers.
    """
    ratio = pl.col(C.kernel_time_us_std) / pl.col(C.kernel_time_us_mean)
    each = pl.element().struct
    is_usual = ~each.field(C.is_outlier)
    groups = pl.col(C.populations).list.agg(is_usual.sum())
    usual_us = each.field(C.mean_us).filter(is_usual).max()
    beyond_us = each.field(C.total_us) - each.field(C.count) * usual_us
    outliers_us = pl.col(C.populations).list.agg(beyond_us.filter(~is_usual).clip(0).sum())
    outliers_pct = pl.col(C.percent_of_total) * outliers_us / pl.col(C.kernel_time_us)
    varies = (pl.col("variation") > VARIANCE_RATIO) | (groups > 1)
    rows = data.operations.with_columns(variation=ratio, usual_groups=groups).filter(
        (
            (varies & (pl.col(C.percent_of_total) >= VARIANCE_MIN_TOTAL_PCT))
            | (outliers_pct >= OUTLIERS_MIN_TOTAL_PCT)
        )
        & (pl.col(C.operation_count) > VARIANCE_MIN_CALLS)
        & pl.col(C.input_dims).is_not_null()
    )
    for row in rows.iter_rows(named=True):
        yield _unsteady(data, row)


def _unsteady(data: CategoryData, row: dict[str, Any]) -> Finding:
    arguments, kind = row["arguments"], "groups" if row[C.populations] else ""
    values = {
        "name": row[C.name],
        "calls": row[C.operation_count],
        "of_arguments": VARIANCE("of_arguments", arguments=arguments) if arguments else None,
        "mean_us": row[C.kernel_time_us_mean],
        "std_us": row[C.kernel_time_us_std],
        "groups": tuple(_call_groups(row[C.populations] or ())),
        "other_streams": VARIANCE("other_streams"),
    }
    texts = texts_of(VARIANCE, values, suffix=kind)
    if row["usual_groups"] == 1:
        texts |= texts_of(VARIANCE, values, suffix="outliers")
    priority = Priority.MEDIUM if row["variation"] > VARIANCE_RATIO else Priority.LOW
    return Finding(
        check="high_variance",
        category=data.key,
        **texts,
        operations=(
            OpRef(
                uid=row[C.uid],
                name=row[C.name],
                input_dims=row[C.input_dims],
                operation_count=row[C.operation_count],
            ),
        ),
        evidence={
            "mean_us": row[C.kernel_time_us_mean],
            "std_us": row[C.kernel_time_us_std],
            "std_over_mean": row["variation"],
            "calls": row[C.operation_count],
        },
        priority_local=priority,
        priority=priority,
    )


def _call_groups(groups: Sequence[dict[str, Any]]) -> Iterator[Message]:
    """Yield each group of ``populations`` as text; slow outliers with what they cost more than
    calls of the group below."""
    usual_us: float | None = None
    for group in groups:
        values = {"group_calls": group[C.count], "group": _times(group), "where": _where(group)}
        if not group[C.is_outlier]:
            usual_us = group[C.mean_us]
            yield VARIANCE("group", **values)
        elif usual_us is None:
            yield VARIANCE("outlier", **values, beyond=None)
        else:
            beyond_ms = (group[C.total_us] - group[C.count] * usual_us) / 1000
            beyond = VARIANCE("beyond", beyond_ms=beyond_ms, group_calls=group[C.count])
            yield VARIANCE("outlier", **values, beyond=beyond)


def _times(group: dict[str, Any]) -> Message:
    shortest_ms, longest_ms = group[C.min_us] / 1000, group[C.max_us] / 1000
    if milliseconds(shortest_ms) == milliseconds(longest_ms):
        return VARIANCE("group.one", group_ms=longest_ms)
    return VARIANCE("group.range", shortest_ms=shortest_ms, longest_ms=longest_ms)


def _where(group: dict[str, Any]) -> Message | None:
    """Return what only the calls of a group have in common; None if nothing is known."""
    if group[C.kernel]:
        return VARIANCE("where.kernel", kernel=group[C.kernel])
    if group[C.modules]:
        return VARIANCE("where.modules", modules=tuple(group[C.modules]))
    return VARIANCE("where.first") if group[C.is_first] else None


CHECK = "nothing_to_fix"

NOTHING_TO_FIX = MessageTable(
    CHECK,
    {
        "title": "Nothing to fix: {category}",
        "issue": "{calls} of {category} take {time_ms} ({compute_pct} of compute), and {good_pct} "
        "of that runs at the target of {target_pct:g}% or above{usual}, on average at "
        "{efficiency_pct} of the roofline.",
        "usual": " what such calls usually reach",
        "algorithmic": "Leave {name}{of_arguments} as it is: only less work, such as fewer than "
        "{calls} or smaller tensors, makes it faster.",
        "of_arguments": " ({arguments})",
        "kernel": "Leave the kernels as they are: at most {rest_pct} of their {time_ms} separates "
        "them from the roofline.",
        "verify": "After other changes, {category} must still take no more than {time_ms}.",
    },
)


def nothing_to_fix(data: CategoryData) -> Iterator[Finding]:
    """A category that takes relevant time and whose kernels need no fix.

    Symptom: none; all of the category runs at or above its target or what is usual.
    Rule: at least {impact.MEDIUM_COMPUTE_PCT}% of compute, of which all but
    {impact.BOTTLENECK_CATEGORY_PCT}% runs at the target efficiency or above what is usual for its
    pattern, without exceeding the peak by so much that the number is in doubt. Suppressed if
    another finding of the analysis names something to fix.
    Threshold: {impact.MEDIUM_COMPUTE_PCT}% of compute; the target efficiency, {impact.TARGET_PCT}%
    by default.
    """
    rows = data.operations.filter(pl.col(C.kernel_time_us) > 0)
    if rows.is_empty():
        return
    whole = OperationGroup(rows)
    good = _good_rows(data, rows)
    good_pct = float(good[C.percent_of_category].sum())
    is_relevant = whole.compute_pct >= impact.MEDIUM_COMPUTE_PCT
    if is_relevant and good_pct >= impact.FULL_PCT - impact.BOTTLENECK_CATEGORY_PCT:
        yield _card(data, whole, good, good_pct)


def has_work(findings: Iterable[Finding]) -> bool:
    """Return whether a finding names something to fix, so that ``nothing_to_fix`` is none."""
    return any(finding.check not in (CHECK, "above_peak") for finding in findings)


def _good_rows(data: CategoryData, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows at or above the target, and those that exceed what is usual for their
    pattern."""
    efficiency = pl.col(C.pct_roofline)
    rated = rows.filter(impact.has_efficiency() & (efficiency <= impact.ANOMALY_PCT))
    usual = [(group, expectation(data, group)) for group in groups(rated)]
    uids = [
        row.uid for group, e in usual if e is not None and e.is_exceeded for row in group.operations
    ]
    return rated.filter((efficiency >= data.target_pct) | pl.col(C.uid).is_in(uids))


def _card(
    data: CategoryData, whole: OperationGroup, good: pl.DataFrame, good_pct: float
) -> Finding:
    efficiency = weighted_efficiency(good) or 0.0
    heaviest = good.sort(C.kernel_time_us, C.uid, descending=[True, False]).row(0, named=True)
    arguments = heaviest["arguments"]
    is_usual = not (good[C.pct_roofline] >= data.target_pct).all()
    values = {
        "calls": whole.calls,
        "category": data.title,
        "time_ms": whole.time_ms,
        "compute_pct": whole.compute_pct,
        "good_pct": good_pct,
        "target_pct": data.target_pct,
        "usual": NOTHING_TO_FIX("usual") if is_usual else None,
        "efficiency_pct": efficiency,
        "rest_pct": max(0.0, impact.FULL_PCT - efficiency),
        "name": heaviest[C.name],
        "of_arguments": NOTHING_TO_FIX("of_arguments", arguments=arguments) if arguments else None,
    }
    of_heaviest = {**values, "calls": heaviest[C.operation_count]}
    texts = texts_of(NOTHING_TO_FIX, values)
    texts["algorithmic"] = NOTHING_TO_FIX.pick("algorithmic", of_heaviest)
    return Finding(
        check=CHECK,
        category=data.key,
        **texts,
        operations=whole.operations,
        evidence={
            "gpu_time_ms": whole.time_ms,
            "compute_pct": whole.compute_pct,
            "good_pct": good_pct,
            "efficiency_pct": efficiency,
            "target_pct": data.target_pct,
            "calls": whole.calls,
        },
        priority_local=Priority.LOW,
        priority=Priority.LOW,
    )


SHARED_CHECKS = (
    low_efficiency,
    opportunity,
    many_small_calls,
    above_peak,
    high_variance,
    nothing_to_fix,
)

__all__ = [
    "SHARED_CHECKS",
    "above_peak",
    "high_variance",
    "low_efficiency",
    "many_small_calls",
    "nothing_to_fix",
    "opportunity",
]
