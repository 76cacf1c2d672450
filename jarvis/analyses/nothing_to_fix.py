"""Findings for categories that take time but already perform as well as expected."""

from collections.abc import Iterable, Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import expectation
from jarvis.analyses.operations import OperationGroup, groups, weighted_efficiency
from jarvis.findings import Finding, Priority
from jarvis.text.messages import MessageTable

CHECK = "nothing_to_fix"

MESSAGES = MessageTable(
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
    rows = data.operations.filter(pl.col("kernel_time_us") > 0)
    if rows.is_empty():
        return
    whole = OperationGroup(rows)
    good = _good_rows(data, rows)
    good_pct = float(good["percent_of_category"].sum())
    is_relevant = whole.compute_pct >= impact.MEDIUM_COMPUTE_PCT
    if is_relevant and good_pct >= impact.FULL_PCT - impact.BOTTLENECK_CATEGORY_PCT:
        yield _card(data, whole, good, good_pct)


def without_contradiction(findings: Iterable[Finding]) -> list[Finding]:
    """Return ``findings`` without ``nothing_to_fix`` if another one names something to fix."""
    found = list(findings)
    has_work = any(finding.check not in (CHECK, "above_peak") for finding in found)
    return [finding for finding in found if finding.check != CHECK or not has_work]


def _good_rows(data: CategoryData, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows at or above the target, and those that exceed what is usual for their
    pattern."""
    efficiency = pl.col("pct_roofline")
    judged = rows.filter(impact.is_judged() & (efficiency <= impact.ANOMALY_PCT))
    usual = [(group, expectation(data, group)) for group in groups(judged)]
    uids = [
        row.uid for group, e in usual if e is not None and e.is_exceeded for row in group.operations
    ]
    return judged.filter((efficiency >= data.target_pct) | pl.col("uid").is_in(uids))


def _card(
    data: CategoryData, whole: OperationGroup, good: pl.DataFrame, good_pct: float
) -> Finding:
    efficiency = weighted_efficiency(good) or 0.0
    heaviest = good.sort("kernel_time_us", "uid", descending=[True, False]).row(0, named=True)
    arguments = heaviest["arguments"]
    is_usual = not (good["pct_roofline"] >= data.target_pct).all()
    return Finding(
        check=CHECK,
        category=data.key,
        title=MESSAGES("title", category=data.title),
        operations=whole.operations,
        evidence={
            "gpu_time_ms": whole.time_ms,
            "compute_pct": whole.compute_pct,
            "good_pct": good_pct,
            "efficiency_pct": efficiency,
            "target_pct": data.target_pct,
            "calls": whole.calls,
        },
        issue=MESSAGES(
            "issue",
            calls=whole.calls,
            category=data.title,
            time_ms=whole.time_ms,
            compute_pct=whole.compute_pct,
            good_pct=good_pct,
            target_pct=data.target_pct,
            usual=MESSAGES("usual") if is_usual else None,
            efficiency_pct=efficiency,
        ),
        algorithmic=MESSAGES(
            "algorithmic",
            name=heaviest["name"],
            of_arguments=MESSAGES("of_arguments", arguments=arguments) if arguments else None,
            calls=heaviest["operation_count"],
        ),
        kernel=MESSAGES(
            "kernel", rest_pct=max(0.0, impact.FULL_PCT - efficiency), time_ms=whole.time_ms
        ),
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        verify=MESSAGES("verify", category=data.title, time_ms=whole.time_ms),
    )
