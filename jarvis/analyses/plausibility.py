"""Numbers to doubt: efficiencies above the peak, equal calls whose times differ widely."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from jarvis import impact
from jarvis.analyses.base import CategoryData
from jarvis.analyses.inefficiency import evidence_of, facts_of
from jarvis.analyses.operations import MIN_COMPUTE_PCT, OperationGroup, groups
from jarvis.analyses.wording import ms, number, pct, quoted
from jarvis.findings import Finding, OpRef, Priority

VARIANCE_RATIO = 1.0
VARIANCE_MIN_CALLS = 10
VARIANCE_MIN_TOTAL_PCT = 5.0
"""Times vary when std/mean exceeds the ratio, over more calls, in more of the wall time."""


@dataclass(frozen=True, slots=True)
class _Doubt:
    """What to say about efficiencies between two limits."""

    title: str
    consequence: str
    caveat: str


_IMPOSSIBLE = _Doubt(
    "Above the peak",
    "so the peak, the perf model or the measured time does not fit",
    "Anomaly: left out of averages and projections.",
)
_DOUBTFUL = _Doubt(
    "At the limit of the peak",
    "a little more than the peak allows, so the peak or the modelled traffic is slightly off",
    "Read it as close to the roofline, no better: nothing is to be gained or learnt from the "
    "excess.",
)


def above_peak(data: CategoryData) -> Iterator[Finding]:
    """Efficiencies that are too high to be true.

    Symptom: an operator seems to exceed what the hardware can do.
    Rule: rows above {impact.ANOMALY_PCT}% of the roofline take no part in any projection; rows
    between {impact.FULL_PCT}% and {impact.ANOMALY_PCT}% get a warning.
    Threshold: {impact.FULL_PCT}% and {impact.ANOMALY_PCT}% of the roofline; at least
    {MIN_COMPUTE_PCT}% of compute.
    """
    efficiency = pl.col("pct_roofline")
    is_anomaly = efficiency > impact.ANOMALY_PCT
    yield from _doubts(data, is_anomaly, _IMPOSSIBLE)
    yield from _doubts(data, (efficiency > impact.FULL_PCT) & ~is_anomaly, _DOUBTFUL)


def _doubts(data: CategoryData, is_meant: pl.Expr, doubt: _Doubt) -> Iterator[Finding]:
    for group in groups(data.operations.filter(is_meant & impact.is_judged())):
        efficiency = group.efficiency_pct
        if efficiency is not None and group.compute_pct >= MIN_COMPUTE_PCT:
            yield _doubt_of(data, group, efficiency, doubt)


def _doubt_of(
    data: CategoryData, group: OperationGroup, efficiency_pct: float, doubt: _Doubt
) -> Finding:
    facts, rate = facts_of(group), group.rate
    reached = f" ({number(rate[0])} of {number(rate[1])} {rate[2]})" if rate else ""
    preset = f" of {data.hardware.title}" if data.hardware else ""
    return Finding(
        check="above_peak",
        category=data.key,
        title=f"{doubt.title}: {quoted(group.name)}",
        operations=group.operations,
        evidence=evidence_of(group),
        issue=f"{quoted(group.name)} appears to run at {pct(efficiency_pct)} of its {group.bound} "
        f"roofline{reached} over {ms(group.time_ms)}, {doubt.consequence}.",
        algorithmic=f"Draw no conclusion from the efficiency of {quoted(group.name)}; judge the "
        "other operators.",
        kernel=f"Verify that the {group.bound} peak{preset} is that of the recorded GPU, and "
        f"whether {facts['arguments']} fits in a cache, which makes the modelled "
        f"{facts['moved']} per call too large.",
        priority_local=Priority.LOW,
        priority=Priority.LOW,
        caveat=doubt.caveat,
        verify=f"Replay {quoted(group.name)} alone with {facts['arguments']} and compare its time "
        f"with the recorded {facts['mean_time']} per call.",
        capture=f"Measure the bytes that {facts['kernel']} really moves with the platform's "
        "hardware-counter profiler on the replay package.",
    )


def high_variance(data: CategoryData) -> Iterator[Finding]:
    """Calls with equal arguments whose times differ widely.

    Symptom: the same call is sometimes fast and sometimes slow.
    Rule: a row with recorded arguments whose standard deviation of kernel time exceeds its mean,
    over enough calls and GPU wall time.
    Threshold: std/mean above {VARIANCE_RATIO}; more than {VARIANCE_MIN_CALLS} calls;
    {VARIANCE_MIN_TOTAL_PCT}% of GPU wall time.
    """
    ratio = pl.col("kernel_time_us_std") / pl.col("kernel_time_us_mean")
    rows = data.operations.with_columns(variation=ratio).filter(
        (pl.col("variation") > VARIANCE_RATIO)
        & (pl.col("operation_count") > VARIANCE_MIN_CALLS)
        & (pl.col("percent_of_total") >= VARIANCE_MIN_TOTAL_PCT)
        & pl.col("input_dims").is_not_null()
    )
    for row in rows.iter_rows(named=True):
        name, calls = quoted(row["name"]), f"{row['operation_count']:,} calls"
        of_arguments = f" of {row['arguments']}" if row["arguments"] else ""
        yield Finding(
            check="high_variance",
            category=data.key,
            title=f"Unsteady times: {name}",
            operations=(
                OpRef.model_validate(
                    {key: row[key] for key in ("uid", "name", "input_dims", "operation_count")}
                ),
            ),
            evidence={
                "Mean (µs)": row["kernel_time_us_mean"],
                "Standard deviation (µs)": row["kernel_time_us_std"],
                "Std / mean": row["variation"],
                "Calls": row["operation_count"],
            },
            issue=f"{row['operation_count']:,} equal calls of {name}{of_arguments} vary widely: "
            f"standard deviation {number(row['kernel_time_us_std'])} µs around a mean of "
            f"{number(row['kernel_time_us_mean'])} µs.",
            algorithmic=f"Check whether the first of the {calls} of {name}, other streams or "
            "changing data make the difference, and record a later window if it is warm-up.",
            kernel=f"Compare the slow calls of {name} with the fast ones on the timeline before "
            "tuning: their mean stands for neither.",
            priority_local=Priority.MEDIUM,
            priority=Priority.MEDIUM,
            caveat="The saving is not quantified: a trace does not say which of the times is "
            "typical.",
            verify=f"Record several steps after warm-up: the standard deviation of the {calls} of "
            f"{name} must fall below {number(row['kernel_time_us_mean'])} µs.",
            capture="Record with a schedule that skips the first steps (wait and warm-up), over at "
            f"least three steps, so that the {calls} of {name} can be told apart by step.",
        )
