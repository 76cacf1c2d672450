"""Categories that take time and do what they can: a card that says so saves a search."""

from collections.abc import Iterable, Iterator

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import expectation
from jarvis.analyses.operations import OperationGroup, groups, weighted_efficiency
from jarvis.analyses.wording import counted, ms, pct, quoted
from jarvis.findings import GPU_TIME, Finding, Priority

CHECK = "nothing_to_fix"


def nothing_to_fix(data: CategoryData) -> Iterator[Finding]:
    """A category that takes relevant time and has nothing to fix in its kernels.

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
    """``findings`` less ``nothing_to_fix`` where another one names something to fix."""
    found = list(findings)
    has_work = any(finding.check not in (CHECK, "above_peak") for finding in found)
    return [finding for finding in found if finding.check != CHECK or not has_work]


def _good_rows(data: CategoryData, rows: pl.DataFrame) -> pl.DataFrame:
    """The rows at or above the target, and those that exceed what is usual for their pattern."""
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
    shape = f" ({heaviest['arguments']})" if heaviest["arguments"] else ""
    target = f"the target of {data.target_pct:.0f}%"
    is_usual = not (good["pct_roofline"] >= data.target_pct).all()
    bar = f"{target} or above what such calls usually reach" if is_usual else f"{target} or above"
    rest_pct = max(0.0, impact.FULL_PCT - efficiency)
    return Finding(
        check=CHECK,
        category=data.key,
        title=f"Nothing to fix: {data.title}",
        operations=whole.operations,
        evidence={
            GPU_TIME: whole.time_ms,
            "Share of compute (%)": whole.compute_pct,
            "Time at or above target or expectation (% of category)": good_pct,
            "Efficiency (% of roofline)": efficiency,
            "Target (% of roofline)": data.target_pct,
            "Calls": whole.calls,
        },
        issue=f"{counted(whole.calls, 'call')} of {data.title} take {ms(whole.time_ms)} "
        f"({pct(whole.compute_pct)} of compute), and {pct(good_pct)} of that runs at {bar}, on "
        f"average at {pct(efficiency)} of the roofline.",
        algorithmic=f"Leave {quoted(heaviest['name'])}{shape} as it is: only less work, such as "
        f"fewer than its {counted(heaviest['operation_count'], 'call')} or smaller tensors, makes "
        "it faster.",
        kernel=f"Leave the kernels alone: at most {pct(rest_pct)} of their {ms(whole.time_ms)} "
        "separates them from the roofline.",
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        verify=f"After other changes, {data.title} must still take no more than "
        f"{ms(whole.time_ms)}.",
    )
