"""Checks that every category shares; each is pure: ``CategoryData -> Iterator[Finding]``."""

from collections.abc import Iterator, Mapping

import polars as pl

from jarvis import impact
from jarvis.analyses.base import Advice, CategoryData
from jarvis.analyses.operations import (
    LAUNCH_BOUND,
    LAUNCH_BOUND_RULE,
    MIN_COMPUTE_PCT,
    SHORT_CALL_US,
    OperationGroup,
    groups,
)
from jarvis.analyses.unmodelled import no_perf_model
from jarvis.analyses.wording import counted, ms, number, pct, quoted
from jarvis.findings import CALLED_FROM, GPU_TIME, Finding, Impact, OpRef, Priority

MANY_CALLS = 100
"""From here on short calls of one operator are worth batching."""

VARIANCE_RATIO = 1.0
VARIANCE_MIN_CALLS = 10
VARIANCE_MIN_TOTAL_PCT = 5.0
"""Times vary when std/mean exceeds the ratio, over more calls, in more of the wall time."""

DEFAULT_ADVICE: Mapping[str, Advice] = {
    "compute": Advice(
        rule="bound by the compute peak, no pattern",
        reason="the arithmetic units are mostly waiting",
        algorithmic="Check whether larger or better batched inputs give each call more work, and "
        "whether a compiler can batch such calls.",
        kernel="Give a replay package of {arguments} to the kernel team to tune tile sizes and "
        "kernel selection.",
    ),
    "memory": Advice(
        rule="bound by memory bandwidth, no pattern",
        reason="memory bandwidth is left unused",
        algorithmic="Fuse it with its neighbours so that the data crosses memory once, for "
        "instance with torch.compile or a custom fused kernel.",
        kernel="Give a replay package of {arguments} to the kernel team to improve memory access "
        "and launch configuration.",
    ),
    LAUNCH_BOUND: Advice(
        rule=LAUNCH_BOUND_RULE,
        reason="each call has so little work that the fixed cost of a kernel decides its time",
        algorithmic="Fuse the chain of small operators around it, for instance with torch.compile, "
        "or batch the calls so that each has more work.",
        kernel="Use a multi-tensor or grouped kernel that takes the calls together; a GPU graph "
        "only shortens the gaps between them, and tuning the single kernel gains little.",
    ),
}
"""What to say where a category has nothing more specific."""


def low_efficiency(data: CategoryData) -> Iterator[Finding]:
    """Operators that take time and run far below their roofline.

    Symptom: an operator's kernels reach a small part of what the GPU can do for its arithmetic
    intensity.
    Rule: rows of one operator and pattern with an efficiency below BOTTLENECK_EFFICIENCY_PCT that
    together take more than BOTTLENECK_TIME_MS or BOTTLENECK_CATEGORY_PCT of the category.
    Threshold: 40% of the roofline; 50 ms or 5% of category time; at least 0.5% of compute.
    """
    for group in groups(_below(data, impact.BOTTLENECK_EFFICIENCY_PCT)):
        if impact.is_time_relevant(group.time_ms, group.category_pct) and _is_felt(group):
            yield _inefficiency(data, group, "low_efficiency", "Low efficiency")


def opportunity(data: CategoryData) -> Iterator[Finding]:
    """Operators that matter and could still come closer to their roofline.

    Symptom: one of the trace's top operations, or one with much time, is below the target.
    Rule: rows below the target that are no ``low_efficiency`` finding, and either hold one of the
    top operations of the trace or pass the time test of ``low_efficiency``.
    Threshold: the target efficiency, 80% by default; at least 0.5% of compute.
    """
    low = pl.col("pct_roofline") < impact.BOTTLENECK_EFFICIENCY_PCT
    below = _below(data, data.target_pct)
    for group in groups(below.filter(~low)):
        if _is_felt(group) and (
            group.is_top or impact.is_time_relevant(group.time_ms, group.category_pct)
        ):
            yield _inefficiency(data, group, "opportunity", "Below target")
    for group in groups(below.filter(low)):
        is_bottleneck = impact.is_time_relevant(group.time_ms, group.category_pct)
        if _is_felt(group) and group.is_top and not is_bottleneck:
            yield _inefficiency(data, group, "opportunity", "Below target")


def many_small_calls(data: CategoryData) -> Iterator[Finding]:
    """Many calls that are shorter than a launch.

    Symptom: one operator is called again and again for a few microseconds each.
    Rule: an operator with at least MANY_CALLS calls whose mean GPU time is below SHORT_CALL_US,
    among the rows that no ``low_efficiency`` finding covers, and that passes its time test.
    Threshold: 100 calls, 10 µs; 50 ms or 5% of category time; at least 0.5% of compute.
    """
    is_low = impact.is_judged() & (pl.col("pct_roofline") < impact.BOTTLENECK_EFFICIENCY_PCT)
    rows = data.operations.filter(~is_low).sort("kernel_time_us", "uid", descending=[True, False])
    for part in rows.partition_by("name", maintain_order=True):
        group = OperationGroup(part)
        if group.calls < MANY_CALLS or not _is_felt(group):
            continue
        mean_us = 1000 * group.time_ms / group.calls
        if mean_us < SHORT_CALL_US and impact.is_time_relevant(group.time_ms, group.category_pct):
            yield _small_calls(data, group, mean_us)


def above_peak(data: CategoryData) -> Iterator[Finding]:
    """Efficiencies that are too high to be true.

    Symptom: an operator seems to exceed what the hardware can do.
    Rule: rows above ANOMALY_PCT of the roofline; they take no part in any projection.
    Threshold: 110% of the roofline; at least 0.5% of compute.
    """
    for group in groups(data.operations.filter(pl.col("pct_roofline") > impact.ANOMALY_PCT)):
        efficiency = group.efficiency_pct
        if efficiency is None or not _is_felt(group):
            continue
        yield Finding(
            check="above_peak",
            category=data.key,
            title=f"Above the peak: {quoted(group.name)}",
            operations=group.operations,
            evidence=_evidence(group),
            issue=f"{quoted(group.name)} appears to run at {pct(efficiency)} of its roofline over "
            f"{ms(group.time_ms)}, so the peak, the perf model or the measured time does not fit.",
            algorithmic="Draw no conclusion from this efficiency; judge the other operators.",
            kernel="Verify the chosen hardware and preset, and whether inputs that fit in a cache "
            "make the modelled memory traffic too large.",
            priority_local=Priority.LOW,
            priority=Priority.LOW,
            caveat="Anomaly: left out of averages and projections.",
            verify="Replay the operator alone with its recorded arguments and compare its time.",
        )


def high_variance(data: CategoryData) -> Iterator[Finding]:
    """Calls with equal arguments whose times differ widely.

    Symptom: the same call is sometimes fast and sometimes slow.
    Rule: a row with recorded arguments whose standard deviation of kernel time exceeds its mean,
    over more than VARIANCE_MIN_CALLS calls and at least VARIANCE_MIN_TOTAL_PCT of GPU wall time.
    Threshold: std/mean above 1; more than 10 calls; 5% of GPU wall time.
    """
    ratio = pl.col("kernel_time_us_std") / pl.col("kernel_time_us_mean")
    rows = data.operations.with_columns(variation=ratio).filter(
        (pl.col("variation") > VARIANCE_RATIO)
        & (pl.col("operation_count") > VARIANCE_MIN_CALLS)
        & (pl.col("percent_of_total") >= VARIANCE_MIN_TOTAL_PCT)
        & pl.col("input_dims").is_not_null()
    )
    for row in rows.iter_rows(named=True):
        name, variation = quoted(row["name"]), row["variation"]
        yield Finding(
            check="high_variance",
            category=data.key,
            title=f"Unsteady times: {name}",
            operations=(_reference(row),),
            evidence={
                "Mean (µs)": row["kernel_time_us_mean"],
                "Standard deviation (µs)": row["kernel_time_us_std"],
                "Std / mean": variation,
                "Calls": row["operation_count"],
            },
            issue=f"{row['operation_count']:,} equal calls of {name} vary widely: standard "
            f"deviation {number(row['kernel_time_us_std'])} µs around a mean of "
            f"{number(row['kernel_time_us_mean'])} µs.",
            algorithmic="Check whether the first iterations, other streams or changing data make "
            "the difference, and record a later window if it is warm-up.",
            kernel="Compare the slow calls with the fast ones on the timeline before tuning: their "
            "mean stands for neither.",
            priority_local=Priority.MEDIUM,
            priority=Priority.MEDIUM,
            caveat="The saving is not quantified: a trace does not say which of the times is "
            "typical.",
            verify="Record several steps after warm-up and compare the spread.",
        )


SHARED_CHECKS = (
    low_efficiency,
    opportunity,
    no_perf_model,
    many_small_calls,
    above_peak,
    high_variance,
)


def _below(data: CategoryData, efficiency_pct: float) -> pl.DataFrame:
    is_below = impact.is_judged() & (pl.col("pct_roofline") < efficiency_pct)
    is_explained = pl.col("uid").is_in(list(data.explained_uids))
    return data.operations.filter(is_below & ~is_explained & (pl.col("kernel_time_us") > 0))


def _is_felt(group: OperationGroup) -> bool:
    return group.compute_pct >= MIN_COMPUTE_PCT


def _inefficiency(data: CategoryData, group: OperationGroup, check: str, title: str) -> Finding:
    advice = _advice(data, group)
    efficiency = group.efficiency_pct or 0.0
    facts = {key: "?" if value is None else value for key, value in group.heaviest.items()}
    facts["arguments"] = group.heaviest["arguments"] or "the heaviest call"
    gain = _gain(data, group, efficiency)
    is_expected = advice.expected_pct is not None and efficiency >= advice.expected_pct[0]
    local = impact.local_priority(
        compute_pct=group.compute_pct, efficiency_pct=efficiency, is_pattern=advice.is_notable
    )
    final = impact.final_priority(
        is_top_operation=group.is_top,
        compute_pct=group.compute_pct,
        category_pct=group.category_pct,
        efficiency_pct=efficiency,
        saved_compute_pct=gain.compute_pct.mid,
        is_pattern=advice.is_notable,
    )
    return Finding(
        check=check,
        category=data.key,
        title=f"{title}: {_subject(group)}",
        operations=group.operations,
        evidence=_evidence(group),
        issue=_issue(group, efficiency, advice, facts),
        algorithmic=advice.algorithmic.format_map(facts),
        kernel=advice.kernel.format_map(facts),
        priority_local=local.lowered() if is_expected else local,
        priority=final.lowered() if is_expected else final,
        impact=gain,
        caveat=_caveat(group, is_expected=is_expected),
        verify=f"Record the trace again and compare the {ms(gain.time_ms)} of "
        f"{quoted(group.name)} with the projected times.",
    )


def _caveat(group: OperationGroup, *, is_expected: bool) -> str | None:
    if group.is_launch_bound:
        return (
            "Calls this small cannot reach the roofline one by one: the saving is an upper bound "
            "for fusing them away."
        )
    if is_expected:
        return "The efficiency is what such calls usually reach or more, so little may be left."
    good_pct = impact.GOOD_EFFICIENCY_PCT
    if (group.efficiency_pct or 0.0) > good_pct:
        return f"Above {good_pct:.0f}% an operator is good already: the potential is limited."
    return None


def _advice(data: CategoryData, group: OperationGroup) -> Advice:
    if group.pattern is not None and group.pattern in data.advice:
        return data.advice[group.pattern]
    kind = LAUNCH_BOUND if group.is_launch_bound else group.bound or "memory"
    return data.advice.get(kind) or DEFAULT_ADVICE[kind]


def _subject(group: OperationGroup) -> str:
    kind = group.pattern or (LAUNCH_BOUND if group.is_launch_bound else None)
    is_news = kind is not None and kind not in group.name
    return f"{quoted(group.name)} ({kind})" if is_news else quoted(group.name)


def _issue(
    group: OperationGroup, efficiency_pct: float, advice: Advice, facts: Mapping[str, object]
) -> str:
    shapes = group.rows.height
    rate = group.rate
    reached = f" ({number(rate[0])} of {number(rate[1])} {rate[2]})" if rate else ""
    takes, reaches = ("takes", "reaches") if group.calls == 1 else ("take", "reach")
    return (
        f"{counted(group.calls, 'call')} of {_subject(group)} over {counted(shapes, 'signature')} "
        f"{takes} {ms(group.time_ms)} ({pct(group.compute_pct)} of compute) and {reaches} "
        f"{pct(efficiency_pct)} of the {group.bound} roofline{reached}"
        f"{_expectation(efficiency_pct, advice)}: {advice.reason.format_map(facts)}."
    )


def _expectation(efficiency_pct: float, advice: Advice) -> str:
    if advice.expected_pct is None:
        return ""
    low, high = advice.expected_pct
    usual = f"{low:.0f}-{high:.0f}%"
    if efficiency_pct < low:
        return f", where {usual} is to be expected"
    place = "within" if efficiency_pct <= high else "above"
    return f", {place} the {usual} that such calls usually reach"


def _evidence(group: OperationGroup) -> dict[str, float | int | str]:
    heaviest = group.heaviest
    evidence: dict[str, float | int | str | None] = {
        GPU_TIME: group.time_ms,
        "Share of compute (%)": group.compute_pct,
        "Share of category (%)": group.category_pct,
        "Efficiency (% of roofline)": group.efficiency_pct,
        "Bound": group.bound,
        "Calls": group.calls,
        "Mean kernel time per call (µs)": 1000 * group.time_ms / max(group.calls, 1),
        "FLOPs/byte of the heaviest call": heaviest["flops_per_byte"],
    }
    if rate := group.rate:
        evidence |= {f"Achieved ({rate[2]})": rate[0], f"Peak ({rate[2]})": rate[1]}
    evidence |= {
        "Heaviest call": heaviest["arguments"],
        "Main kernel": quoted(heaviest["main_kernel"]) if heaviest["main_kernel"] else None,
        CALLED_FROM: heaviest["called_from"],
    }
    return {label: value for label, value in evidence.items() if value is not None}


def _gain(data: CategoryData, group: OperationGroup, efficiency_pct: float) -> Impact:
    modelled = impact.modelled_impact(group.time_ms, efficiency_pct, data.target_pct, **data.bases)
    if not group.is_launch_bound:
        return modelled
    return impact.bounded_impact(group.time_ms, modelled.saved_ms.mid, **data.bases)


def _small_calls(data: CategoryData, group: OperationGroup, mean_us: float) -> Finding:
    priority = Priority.MEDIUM if group.compute_pct > impact.RELEVANT_COMPUTE_PCT else Priority.LOW
    return Finding(
        check="many_small_calls",
        category=data.key,
        title=f"Many short calls: {quoted(group.name)}",
        operations=group.operations,
        evidence={
            "Calls": group.calls,
            "Launches": group.launches,
            "Mean GPU time per call (µs)": mean_us,
            GPU_TIME: group.time_ms,
            "Share of compute (%)": group.compute_pct,
        },
        issue=f"{group.calls:,} calls of {quoted(group.name)} take {number(mean_us)} µs of GPU "
        f"time on average, so launching takes about as long as the work of {ms(group.time_ms)}.",
        algorithmic="Batch the calls or let a compiler fuse them, so that one launch does the work "
        "of many.",
        kernel="Replay the sequence from a GPU graph, or use a multi-tensor or grouped kernel that "
        "takes the calls together.",
        priority_local=priority,
        priority=priority,
        caveat="The saving is not quantified: the gaps between launches are idle time of the GPU, "
        "not time of this operator.",
        verify="After batching, the number of calls and the idle time of the GPU must fall.",
    )


def _reference(row: Mapping[str, object]) -> OpRef:
    return OpRef.model_validate(
        {key: row[key] for key in ("uid", "name", "input_dims", "operation_count")}
    )
